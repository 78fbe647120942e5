//! What checksums, maps, versions and histories look like on a device.

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::{Buffer, Context, Device, Request, Runtime};
use rotproof_volume::checksum::{ChecksumDevice, ChecksumOptions};
use rotproof_volume::parts::{Part, part_of, seal};
use rotproof_volume::versions::{VersionsDevice, VersionsOptions};

/// It is a part or none; also with a sum that is right, and then what it is does not hang on chance.
pub fn check(bytes: &[u8]) {
    let _ = part_of(bytes);
    for length in [bytes.len(), 4096, 12_288, 32_768] {
        let mut sealed = bytes.to_vec();
        sealed.resize(length, 0);
        if seal(&mut sealed) {
            assert_eq!(part_of(&sealed), part_of(&sealed));
        }
    }
}

/// Every part of a table, a list and a history as they are written.
pub fn seeds() -> Vec<Vec<u8>> {
    let runtime = Runtime::simulated(1);
    let mut seeds = Vec::new();
    let media: Vec<std::sync::Arc<dyn Device>> = (0..2)
        .map(|_| MemoryDevice::new(8 << 20, 512).expect("sizes that fit") as std::sync::Arc<dyn Device>)
        .collect();
    let run = |device: &dyn Device| {
        let queue = device.open_queue(&runtime).expect("opens");
        for request in [
            Request::write(8192, Buffer::copy_of(&[7; 8192]), Context::default()),
            Request::flush(Context::default()),
        ] {
            runtime.block_on(queue.submit(request)).expect("completes").result.expect("done");
        }
    };
    let options = ChecksumOptions::default();
    let sums = runtime.block_on(ChecksumDevice::open_on(media[0].clone(), options, &runtime));
    run(&*sums.expect("runs").expect("opens"));
    let options = VersionsOptions::default();
    let versions = runtime.block_on(VersionsDevice::open_on(media[1].clone(), options, &runtime));
    let versions = versions.expect("runs").expect("opens");
    runtime.block_on(versions.capture(&runtime, "one", 1)).expect("runs").expect("captured");
    run(&*versions);
    for medium in media {
        let queue = medium.open_queue(&runtime).expect("opens");
        for at in (0..4 << 20).step_by(4096) {
            let mut found: Vec<(Part, Vec<u8>)> = Vec::new();
            for length in [4096, 12_288, 32_768] {
                let request = Request::read(at, Buffer::zeroed(length), Context::default());
                let bytes = runtime.block_on(queue.submit(request)).expect("completes").buffer.to_vec();
                found.extend(part_of(&bytes).map(|part| (part, bytes)));
            }
            // One of each is enough.
            for (_, bytes) in found {
                let is_new = |seed: &Vec<u8>| seed[..8] != bytes[..8];
                if seeds.iter().all(is_new) {
                    seeds.push(bytes);
                }
            }
        }
    }
    assert_eq!(seeds.len(), 5, "a part is missing");
    seeds
}
