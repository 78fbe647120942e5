//! A stack as a block device `/dev/ublkbN`: the kernel hands requests to a server in user space through io_uring.
//!
//! `wire` has the driver's numbers and layouts, `control` makes and removes devices, `queue` serves one of their queues.
//! This file puts a device together and takes it apart. If it is to, the device outlives a server that is killed: programs that use
//! it wait, and the next server takes it over with what waits ([`UblkDevice::recover`]).
//!
//! Source: the kernel's `Documentation/block/ublk.rst` (Linux 6.5 and later).

mod control;
mod queue;
mod wire;

use std::fmt;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Device, Error, ErrorKind, Result, Runtime};

use self::control::Control;
use self::queue::{Gate, QueueServer};
use self::wire::{
    DEPTH_MAX, DeviceRecord, FLAGS, Parameters, RECOVERY, STATE_LIVE, STATE_QUIESCED, TRANSFER_BYTES_MAX,
};
use crate::byte_queue::ByteQueue;
use crate::stripes::SharedStripes;
use crate::system;

/// How long a device may take to appear, and a dead server's to be let go of.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server that is about to end may take, before it is believed to live on.
const ENDING: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(5);
/// Queues of a device at the most.
const QUEUES_MAX: u16 = 64;

/// How to serve.
#[derive(Clone)]
pub struct UblkOptions {
    /// Queues, each with a thread; 1 to 64.
    pub queues: u16,
    /// Requests of a queue at a time; 1 to 4096.
    pub depth: u16,
    /// Whether programs that use it wait for another server when this one is killed. Otherwise their requests fail.
    pub outlives_server: bool,
    /// A number of the maker's own that stays with the device ([`UblkInfo::owner`]).
    pub owner: u64,
    /// Seed of the queues' runtimes.
    pub seed: u64,
    /// Time zero of the queues' runtimes.
    pub epoch: Instant,
    /// Number of the [`rotproof_block::Phase`] that every request gets in its context; may change at any time.
    pub phase: Arc<AtomicU8>,
}

impl Default for UblkOptions {
    fn default() -> Self {
        Self {
            queues: 2,
            depth: 128,
            outlives_server: true,
            owner: 0,
            seed: 1,
            epoch: Instant::now(),
            phase: Arc::default(),
        }
    }
}

/// What the kernel says of a ublk device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkInfo {
    /// The number that its maker gave it.
    pub owner: u64,
    /// The process that serves it; none if it has died or has not begun.
    pub server: Option<u32>,
}

/// A served device. Stop it; dropping it does so too.
pub struct UblkDevice {
    number: u32,
    threads: Mutex<Option<Vec<JoinHandle<Result<()>>>>>,
    gate: Arc<Gate>,
}

/// Ok if this machine can serve ublk devices. Fails with [`ErrorKind::Missing`] and a text that says what is missing.
pub fn check_ublk() -> Result<()> {
    Control::open()?.check_features()
}

/// What is known of the device with this number; none if there is none, also where the kernel has no ublk.
pub fn find_ublk(number: u32) -> Result<Option<UblkInfo>> {
    let mut control = match Control::open() {
        Ok(control) => control,
        Err(error) if error.kind() == ErrorKind::Missing => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(control.find(number)?.map(|record| UblkInfo {
        owner: record.owner,
        server: if record.state == STATE_LIVE { u32::try_from(record.server_pid).ok() } else { None },
    }))
}

/// Removes a device, whoever serves it.
pub fn remove_ublk(number: u32) -> Result<()> {
    let mut control = Control::open()?;
    if control.find(number)?.is_none() {
        return Ok(());
    }
    control.stop(number)?;
    control.delete(number)
}

/// A number, `from` or above, that no device has now; one that is being removed may have it for a moment more.
pub fn free_ublk_number(from: u32) -> u32 {
    (from..).find(|number| !character_path(*number).exists()).unwrap_or(u32::MAX)
}

fn character_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{number}"))
}

impl UblkDevice {
    /// Makes the device with this number and serves it. Fails with [`ErrorKind::Missing`] where the kernel cannot,
    /// with [`ErrorKind::Os`] of `EEXIST` if the number is taken, with [`ErrorKind::Invalid`] for options that make no
    /// sense. On an error nothing is left.
    pub fn add(device: &Arc<dyn Device>, number: u32, options: &UblkOptions) -> Result<Self> {
        let UblkOptions { queues, depth, owner, outlives_server, .. } = *options;
        if !(1..=QUEUES_MAX).contains(&queues) || !(1..=DEPTH_MAX).contains(&depth) {
            let message =
                format!("a ublk device has 1 to {QUEUES_MAX} queues and a depth of 1 to {DEPTH_MAX}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let info = device.info();
        let mut control = Control::open()?;
        control.check_features()?;
        let asked = DeviceRecord {
            queues,
            depth,
            number,
            server_pid: -1,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            flags: if outlives_server { FLAGS } else { FLAGS & !RECOVERY },
            owner,
            ..DeviceRecord::default()
        };
        let given = control.add(asked)?;
        let parameters = Parameters {
            size: info.size,
            block_size: info.block_size,
            read_only: info.read_only,
            flush: info.features.flush,
            fua: info.features.fua,
            discard: info.features.discard,
            write_zeroes: info.features.write_zeroes,
        };
        let served = control
            .set_parameters(number, parameters)
            .and_then(|()| Self::serve(device, given, options, || Control::open()?.start(number)));
        if served.is_err() {
            let _ = remove_ublk(number);
        }
        served
    }

    /// Takes over the device of a server that has died, with all that waits for an answer. Fails with
    /// [`ErrorKind::Missing`] if there is no such device, with [`ErrorKind::Refused`] if its server lives, with
    /// [`ErrorKind::Invalid`] if the disk is another than `device`. On an error it waits on.
    pub fn recover(device: &Arc<dyn Device>, number: u32, options: &UblkOptions) -> Result<Self> {
        let mut control = Control::open()?;
        let began = Instant::now();
        let deadline = began + PATIENCE;
        let record = loop {
            let Some(record) = control.find(number)? else {
                return Err(Error::new(ErrorKind::Missing, format!("there is no ublk device {number}")));
            };
            // The kernel takes a moment to see that a server has died.
            if record.state == STATE_QUIESCED {
                break record;
            }
            let patience = if is_alive(record.server_pid) { ENDING } else { PATIENCE };
            if began.elapsed() >= patience {
                let message = format!(
                    "the ublk device {number} is served by process {}; only one whose server has died can be taken over",
                    record.server_pid
                );
                return Err(Error::new(ErrorKind::Refused, message));
            }
            std::thread::sleep(INTERVAL);
        };
        let info = device.info();
        let (size, block_size) = control.geometry(number)?;
        if (size, block_size) != (info.size, info.block_size) {
            let message = format!(
                "the ublk device {number} has {size} bytes in blocks of {block_size}, the stack {} in blocks of {}; \
                 serve the stack that it was made from",
                info.size, info.block_size
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if record.flags & FLAGS != FLAGS {
            let message = format!("the ublk device {number} was made by another program, in another way");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        while let Err(error) = control.begin_recovery(number) {
            // As long as the dead server's files are not closed.
            if error.kind() != ErrorKind::Os(libc::EBUSY) || Instant::now() >= deadline {
                return Err(error);
            }
            std::thread::sleep(INTERVAL);
        }
        let served = Self::serve(device, record, options, || Control::open()?.end_recovery(number));
        if served.is_err() {
            let _ = remove_ublk(number);
        }
        served
    }

    /// Starts the threads of the queues, and then the device.
    fn serve(
        device: &Arc<dyn Device>,
        record: DeviceRecord,
        options: &UblkOptions,
        start: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let DeviceRecord { number, queues, depth, .. } = record;
        let character = open_when_there(&character_path(number))?;
        let stripes = SharedStripes::of(device);
        let gate = Arc::new(Gate::new()?);
        let mut threads = Vec::with_capacity(queues.into());
        let (ready, is_ready) = mpsc::channel();
        for queue in 0..queues {
            let (device, character, stripes) = (Arc::clone(device), Arc::clone(&character), stripes.clone());
            let (options, ready, gate) = (options.clone(), ready.clone(), Arc::clone(&gate));
            let serve = move || {
                run_queue(&device, character, (queue, depth), gate, &stripes, &options, number, &ready)
            };
            let thread = std::thread::Builder::new().name(format!("ublk{number}-{queue}")).spawn(serve);
            threads.push(thread.doing(|| "starting a thread of the ublk device".into())?);
        }
        drop((ready, character));
        for _ in 0..queues {
            is_ready.recv().map_err(|_| {
                Error::new(
                    ErrorKind::Internal,
                    "a thread of the ublk device panicked while it opened its queue",
                )
            })??;
        }
        let served = Self { number, threads: Mutex::new(Some(threads)), gate };
        // Returns when every tag of every queue waits in the kernel.
        start()?;
        open_when_there(&served.path())?;
        Ok(served)
    }

    /// Its number, in the names of its files.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.number))
    }

    /// From now on no request reaches the stack: each fails, those that wait for an answer too. From any thread, and waits for
    /// nobody; the device stays until [`UblkDevice::stop`].
    pub fn abort(&self) {
        self.gate.shut();
    }

    /// Completes what was asked for and removes the device, under its users if it has any. Without effect if that has
    /// been done. An error of kind [`ErrorKind::Internal`] tells of a queue that failed by a fault of the server's.
    pub fn stop(&self) -> Result<()> {
        let Some(threads) = self.threads.lock().take() else { return Ok(()) };
        let mut control = Control::open()?;
        control.stop(self.number)?;
        // Their files must be closed before the device can be removed.
        let mut failure = None;
        for thread in threads {
            let outcome =
                thread.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "it panicked")));
            failure = failure.or(outcome.err());
        }
        control.delete(self.number)?;
        match failure {
            Some(failure) => {
                Err(Error::new(ErrorKind::Internal, format!("a queue of the ublk device failed: {failure}")))
            }
            None => Ok(()),
        }
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl fmt::Debug for UblkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UblkDevice({})", self.number)
    }
}

fn is_alive(pid: i32) -> bool {
    // SAFETY: plain numbers; the signal 0 is none.
    pid > 0
        && (unsafe { libc::kill(pid, 0) } == 0
            || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
}

/// Files of a device appear a moment after it does.
fn open_when_there(path: &Path) -> Result<Arc<OwnedFd>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match system::open(path, libc::O_RDWR) {
            Err(error) if error.kind() == ErrorKind::Missing && Instant::now() < deadline => {
                std::thread::sleep(INTERVAL);
            }
            // A disk without the right to write is there too.
            Err(error) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Refused) => {
                return system::open(path, libc::O_RDONLY).map(Arc::new);
            }
            result => return result.map(Arc::new),
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "a thread's beginning")]
fn run_queue(
    device: &Arc<dyn Device>,
    character: Arc<OwnedFd>,
    (queue, depth): (u16, u16),
    gate: Arc<Gate>,
    stripes: &SharedStripes,
    options: &UblkOptions,
    number: u32,
    ready: &mpsc::Sender<Result<()>>,
) -> Result<()> {
    system::mark_as_io_flusher();
    let opened = (|| {
        let entries = u32::from(depth).next_power_of_two().max(8);
        let runtime = Runtime::uring(RuntimeOptions {
            seed: options.seed,
            epoch: options.epoch,
            ring_entries: entries,
            fixed_buffers: None,
            polled: false,
        })?;
        let byte_queue = ByteQueue {
            queue: device.open_queue(&runtime)?,
            runtime,
            info: device.info(),
            size: Arc::new(device.info().size.into()),
            stripes: stripes.on_this_thread(),
            phase: Arc::clone(&options.phase),
            thread: queue,
            requests: Default::default(),
        };
        QueueServer::open(byte_queue, character, (queue, depth), gate)
    })();
    let server = match opened {
        Ok(server) => server,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let _ = ready.send(Ok(()));
    let outcome = catch_unwind(AssertUnwindSafe(|| server.run()));
    let outcome = outcome.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "it panicked")));
    if outcome.is_err() {
        // Nobody answers for this queue any more, and its commands come back only when the device is stopped. Not from
        // this thread, which has to take them.
        let _ = std::thread::Builder::new()
            .name("ublk-stop".into())
            .spawn(move || Control::open().and_then(|mut control| control.stop(number)));
    }
    drop(server);
    outcome
}
