//! Room that is not needed any more goes back to what is below: counted in blocks that files have.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Context, Device, Request, Runtime};

use super::super::{Candidate, OpenOptions, Volume, VolumeOptions};
use crate::member::VersionsPolicy;
use crate::testing::{ask, flush, write};

const MIB: u64 = 1 << 20;

fn candidates(paths: &[PathBuf]) -> Vec<Candidate> {
    let open = |path: &PathBuf| {
        let options = FileOptions { direct: false, ..FileOptions::default() };
        let device = FileDevice::open(path, options).expect("it opens");
        Candidate { name: path.display().to_string(), device }
    };
    paths.iter().map(open).collect()
}

/// MiB that a file has on its disk.
fn allocated(path: &Path) -> i64 {
    (std::fs::metadata(path).expect("it is there").blocks() * 512 / MIB) as i64
}

fn some(megabytes: u64, byte: u8) -> Vec<u8> {
    (0..megabytes * MIB).map(|at| (at / 4096) as u8 ^ byte).collect()
}

#[test]
fn what_is_discarded_and_what_deleted_versions_held_is_free_on_each_member() {
    let kinds = [Some(crate::checksum::ChecksumKind::Crc32c), None];
    for (checksum, has_versions) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<PathBuf> = ["a", "b"].iter().map(|name| folder.path().join(name)).collect();
        for path in &paths {
            std::fs::File::create(path).and_then(|file| file.set_len(64 * MIB)).expect("a sparse file");
        }
        let all = || paths.iter().map(|path| allocated(path)).collect::<Vec<i64>>();
        let runtime = Runtime::uring(RuntimeOptions::new(0)).expect("io_uring");
        let versions = has_versions.then(VersionsPolicy::default);
        let options = VolumeOptions { checksum, versions, ..VolumeOptions::default() };
        let what = format!("{checksum:?}, versions {has_versions}");
        let volume: Arc<Volume> = runtime
            .block_on(async {
                Volume::create(&candidates(&paths), options, 1, &runtime).await?;
                // Time is the machine's here: a disk that others keep busy is not to be given up.
                let options = OpenOptions::with_patience(Duration::from_secs(30));
                Volume::open(candidates(&paths), options, &runtime).await
            })
            .expect("runs")
            .expect("it is there");
        let before = all();
        let grown = |by: i64, from: &[i64]| {
            let now = all();
            let is_near = now.iter().zip(from).all(|(now, from)| (now - from - by).abs() <= 1);
            assert!(is_near, "{what}: {from:?} and {by} more, not {now:?}");
            now
        };
        write(&*volume, &runtime, 0, &some(16, 1)).expect("written");
        flush(&*volume, &runtime);
        let full = grown(16, &before);
        let discard = Request::discard(4 * MIB, 8 * MIB, Context::default());
        ask(&*volume, &runtime, discard).result.expect("discarded");
        // What readers may still see goes with the next flush.
        flush(&*volume, &runtime);
        flush(&*volume, &runtime);
        let part = grown(-8, &full);
        if has_versions {
            let kept =
                runtime.block_on(volume.capture(&runtime, "kept", 1)).expect("runs").expect("captured");
            write(&*volume, &runtime, 12 * MIB, &some(4, 2)).expect("written");
            write(&*volume, &runtime, 0, &some(2, 3)).expect("written");
            flush(&*volume, &runtime);
            let both = grown(6, &part);
            runtime.block_on(volume.delete_version(&runtime, kept)).expect("runs").expect("deleted");
            grown(-6, &both);
            let size = volume.info().size;
            assert!(size > 16 * MIB);
        }
        runtime.block_on(volume.close(&runtime)).expect("runs").expect("closed");
        drop(volume);
        runtime.abandon_tasks();
    }
}
