//! Looks at what there is when all is over: the device as its user sees it, and the files of a load of files.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Buffer, ContentHash, Context, Device, Request, Runtime};
use rotproof_load::BLOCK_BYTES;
use rotproof_trial::verdict::Medium;

/// The device as its user sees it, when all is over.
pub struct Top(pub Arc<dyn Device>);

impl Medium for Top {
    fn count(&self, contents: &HashSet<ContentHash>) -> Option<HashMap<ContentHash, u64>> {
        let runtime = Runtime::simulated(0);
        let queue = self.0.open_queue(&runtime).ok()?;
        let read = |offset: u64, bytes: u64| {
            let request = Request::read(offset, Buffer::zeroed(bytes as usize), Context::default());
            let completion = runtime.block_on(queue.submit(request)).ok()?;
            completion.result.is_ok().then_some(completion.buffer)
        };
        let size = self.0.info().size;
        let mut found = HashMap::new();
        let mut look_at = |bytes: &[u8]| {
            for block in bytes.chunks_exact(BLOCK_BYTES).filter(|block| block.iter().any(|&byte| byte != 0)) {
                let hash = ContentHash::of(block);
                if contents.contains(&hash) {
                    *found.entry(hash).or_default() += 1;
                }
            }
        };
        for start in (0..size).step_by(1 << 20) {
            let end = (start + (1 << 20)).min(size);
            match read(start, end - start) {
                Some(bytes) => look_at(&bytes),
                // One bad block fails all of it.
                None => (start..end)
                    .step_by(BLOCK_BYTES)
                    .filter_map(|block| read(block, 4096))
                    .for_each(|bytes| look_at(&bytes)),
            }
        }
        Some(found)
    }
}

/// Looks through the files below a folder for blocks that are none of `hashes`.
pub fn strange(root: &Path, name: &str, hashes: &HashSet<u128>, found: &mut Vec<(String, u64)>) {
    let path = root.join(name);
    let join = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}/{inner}") };
    if path.is_dir() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            strange(root, &join(&entry.file_name().to_string_lossy()), hashes, found);
        }
        return;
    }
    let Ok(bytes) = std::fs::read(&path) else { return };
    for (number, block) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
        let mut padded = [0; BLOCK_BYTES];
        padded[..block.len()].copy_from_slice(block);
        if !hashes.contains(&ContentHash::of(&padded).0) {
            found.push((name.to_owned(), number));
        }
    }
}
