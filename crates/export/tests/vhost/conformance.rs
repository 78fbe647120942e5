//! The export and a driver together keep the contract of a device.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rotproof_block::conformance::{On, check};
use rotproof_block::leaf::MemoryDevice;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, Context, Device, DeviceInfo, Error, ErrorKind, Features, Operation, Queue, Request,
    Result, Runtime, Submission,
};
use rotproof_volume::copies::MemberState;
use rotproof_volume::member::VersionsPolicy;
use rotproof_volume::volume::{Candidate, OpenOptions, Volume, VolumeOptions};

use crate::driver::{Attached, RING_BYTES, Ring, SPDK_FEATURES, kind, status};
use crate::scripted::{Action, Scripted};
use crate::server::Served;

const RINGS: usize = 3;

/// A device reached through its export: its queues share the rings.
struct Reached {
    info: DeviceInfo,
    rings: Vec<Arc<Mutex<Ring>>>,
    next: AtomicUsize,
    _attached: Mutex<Attached>,
    _served: Served,
}

impl Reached {
    fn through(device: Arc<dyn Device>, features: u64) -> Arc<dyn Device> {
        let served = Served::one(device);
        let mut attached = Attached::new(&served.socket(), RINGS, features);
        let number = |at: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(&attached.config[at..at + bytes]);
            u64::from_le_bytes(number)
        };
        let block_size = number(20, 4) as u32;
        let has = |bit: u64| attached.features & 1 << bit != 0;
        let info = DeviceInfo {
            size: number(0, 8) * 512,
            block_size,
            atomic_write_bytes: block_size,
            read_only: has(5),
            features: Features { flush: has(9), fua: false, discard: has(13), write_zeroes: has(14) },
        };
        let rings = attached.rings.drain(..).map(|ring| Arc::new(Mutex::new(ring))).collect();
        Arc::new(Self {
            info,
            rings,
            next: AtomicUsize::new(0),
            _attached: Mutex::new(attached),
            _served: served,
        })
    }
}

impl Device for Reached {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.rings.len();
        Ok(Rc::new(RingQueue { info: self.info, ring: Arc::clone(&self.rings[number]) }))
    }
}

struct RingQueue {
    info: DeviceInfo,
    ring: Arc<Mutex<Ring>>,
}

impl RingQueue {
    fn run(&self, request: &mut Request) -> u8 {
        let ring = &mut *self.ring.lock();
        let (sector, length) = (request.offset / 512, request.length);
        match request.operation {
            Operation::Read => {
                let status = ring.run(kind::READ, sector, length as u32);
                let data = ring.get(0, length as usize);
                request.buffer.copy_from_slice(&data);
                status
            }
            Operation::Write { fua } => match ring.write(sector, &request.buffer) {
                status::OK if fua => ring.run(kind::FLUSH, 0, 0),
                status => status,
            },
            Operation::Flush => ring.run(kind::FLUSH, 0, 0),
            Operation::Discard => ring.clear(kind::DISCARD, sector, (length / 512) as u32, 0),
            Operation::WriteZeroes => ring.clear(kind::WRITE_ZEROES, sector, (length / 512) as u32, 1),
        }
    }
}

impl Queue for RingQueue {
    fn submit(&self, mut request: Request) -> Submission {
        assert!(request.buffer.len() <= RING_BYTES / 2, "room for the data");
        let completion: Completion = match self.info.check(&request) {
            Err(error) => request.fail(error),
            Ok(()) => match self.run(&mut request) {
                status::OK => request.succeed(),
                status::UNSUPPORTED => request.fail(Error::new(ErrorKind::Unsupported, "the disk cannot")),
                _ => request.fail(Error::new(ErrorKind::Medium, "the disk fails")),
            },
        };
        completion.into()
    }
}

#[test]
fn a_disk_behind_several_rings_keeps_the_contract() {
    check(On::Uring, &|| Ok(Reached::through(MemoryDevice::new(4 << 20, 512)?, u64::MAX)))
        .expect("every clause holds");
}

#[test]
fn a_disk_that_spdk_drives_keeps_the_contract() {
    check(On::Uring, &|| Ok(Reached::through(MemoryDevice::new(4 << 20, 512)?, SPDK_FEATURES)))
        .expect("every clause holds");
}

#[test]
fn a_disk_of_large_blocks_that_is_late_keeps_the_contract() {
    let late = || {
        let device = Scripted::new(4 << 20, 4096, |request| {
            let random = rotproof_block::hash::mix(request.context.id, 5, request.offset);
            match random % 4 {
                0 => Action::Late(Duration::from_micros(random >> 8 & 255)),
                _ => Action::Pass,
            }
        });
        Ok(Reached::through(Arc::new(device), u64::MAX))
    };
    check(On::Uring, &late).expect("every clause holds");
}

#[test]
fn a_read_only_disk_without_features_is_one_through_its_export_too() {
    let plain = || {
        let device = Scripted::new(1 << 20, 512, |_| Action::Pass).with(|info| {
            info.read_only = true;
            info.features.discard = false;
            info.features.write_zeroes = false;
        });
        Ok(Reached::through(Arc::new(device), u64::MAX))
    };
    let info = plain().expect("opens").info();
    assert!(info.read_only && !info.features.discard && !info.features.write_zeroes);
    check(On::Uring, &plain).expect("every clause holds");
}

/// Two copies with checksums, and a version captured while it was empty: so what is written moves, and what was there stays.
async fn volume(runtime: &Runtime) -> Result<(Arc<Volume>, u64)> {
    let member = |name: &str| -> Result<Candidate> {
        Ok(Candidate { name: name.into(), device: MemoryDevice::new(16 << 20, 512)? })
    };
    let members = [member("a")?, member("b")?];
    let versions = Some(VersionsPolicy { reserve_percent: 40, every_ms: 0, keep: 3 });
    let options = VolumeOptions { versions, ..VolumeOptions::default() };
    Volume::create(&members, options, 7, runtime).await?;
    let patience = OpenOptions::with_patience(Duration::from_secs(10));
    let volume = Volume::open(members.to_vec(), patience, runtime).await?;
    let version = volume.capture(runtime, "empty", 1).await?;
    Ok((volume, version))
}

#[test]
fn a_volume_keeps_the_contract() {
    let made: Mutex<Vec<(Arc<Volume>, u64)>> = Mutex::default();
    let served = || {
        let runtime = Runtime::uring(RuntimeOptions::new(0))?;
        let (volume, version) = runtime.block_on(volume(&runtime))??;
        made.lock().push((Arc::clone(&volume), version));
        Ok(Reached::through(volume, u64::MAX))
    };
    check(On::Uring, &served).expect("every clause holds");
    let (mut verified, runtime) = (0, Runtime::uring(RuntimeOptions::new(0)).expect("starts"));
    for (volume, version) in made.into_inner() {
        let report = volume.checksum_report().expect("it has checksums");
        assert_eq!((report.unrecoverable, report.wrong_copies, report.lost), (0, 0, 0));
        assert!(volume.status().members.iter().all(|member| member.state == MemberState::Current));
        let queue = volume.view(version).expect("it is kept").open_queue(&runtime).expect("opens");
        for at in (0..volume.info().size).step_by(1 << 20) {
            let read = Request::read(at, Buffer::stale(64 << 10), Context::default());
            let read = runtime.block_on(queue.submit(read)).expect("completes");
            assert!(read.result.is_ok() && read.buffer.iter().all(|byte| *byte == 0), "the version changed");
        }
        verified += report.verified;
    }
    assert!(verified > 0, "nothing was read");
}
