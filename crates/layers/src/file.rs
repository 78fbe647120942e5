//! The leaf in a file or on a block device, as a stack has it: `file: { path: disk.img, size: 1GiB }`.

use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Device, Result};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;
use crate::snapshot::SnapshotDevice;
use crate::stack_spec::validate_size;

/// A leaf in a file or on a block device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// The file; one that does not exist is created sparse, and then the size is needed.
    pub path: PathBuf,
    /// Capacity. Default: the size of the file that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Past the page cache (O_DIRECT). Default true.
    #[serde(default = "direct_default")]
    pub direct: bool,
    /// Copy on write: what is written stays in memory and is gone afterwards; the file is only read. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub snapshot: bool,
    /// Refuse every write. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl FileSpec {
    /// Whether the file stays as it is, whatever is written to the stack.
    pub fn is_untouched(&self) -> bool {
        self.snapshot || self.read_only
    }
}

fn direct_default() -> bool {
    true
}

impl Kind for FileSpec {
    const WORD: &'static str = "file";
    const EXAMPLE: &'static str = "{ file: { path: disk.img, size: 1GiB } }";
    const SUMMARY: &'static str = "a file or block device";
    const STANDS: Stands = Stands::Alone;

    fn size(&self, _below: &[Option<u64>]) -> Option<u64> {
        self.size.map(|size| size.0)
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if self.path.as_os_str().is_empty() {
            problems.add(&path.key("path"), "the path is empty");
        }
        if let Some(size) = self.size {
            validate_size(size, 512, path, problems);
            if self.is_untouched() {
                problems.add_with_help(
                    &path.key("size"),
                    "a file that stays as it is has its own size",
                    "leave `size` out",
                );
            }
        }
        if self.snapshot && self.read_only {
            problems.add_with_help(
                &path.key("read_only"),
                "a snapshot takes writes, and `read_only` refuses them",
                "keep one of them; with either, the file stays as it is",
            );
        }
    }

    fn describe(&self) -> String {
        let size = self.size.map_or("as large as it is".to_owned(), |size| size.to_string());
        let cache = if self.direct { "" } else { ", through the page cache" };
        let how = match (self.snapshot, self.read_only) {
            (true, _) => ", copy on write",
            (_, true) => ", read-only",
            _ => "",
        };
        format!("{}, {size}{cache}{how}", self.path.display())
    }

    fn open(&self, _below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let read_only = opening.is_read_only() || self.is_untouched();
        let options = FileOptions {
            size_bytes: self.size.map(|size| size.0),
            direct: self.direct,
            read_only,
            create: self.size.is_some() && !read_only,
            ..FileOptions::default()
        };
        let file = FileDevice::open(&self.path, options)?;
        let watched = Arc::clone(&file);
        opening.may_fail(move || watched.check());
        if self.snapshot {
            return Ok(SnapshotDevice::new(file)?);
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::runtime::RuntimeOptions;
    use rotproof_block::{Buffer, Context, Request, Runtime};

    use crate::{StackEnvironment, StackSpec};

    #[test]
    fn a_file_below_a_snapshot_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let content: Vec<u8> = (0..1 << 20).map(|at| (at / 4096) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let stack = |more: &str| -> StackSpec {
            let json = format!(r#"[{{"file":{{"path":"{}","direct":false,{more}}}}}]"#, path.display());
            serde_json::from_str(&json).expect("a stack")
        };
        let environment = StackEnvironment {
            seed: 1,
            needs_faults: false,
            read_only: false,
            epoch_ns: 0,
            recordings: None,
        };
        for (more, is_taken) in [(r#""snapshot":true"#, true), (r#""read_only":true"#, false)] {
            let opened = crate::open(&stack(more), &environment).expect("it is there");
            let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("io_uring");
            let queue = opened.devices[0].device.open_queue(&runtime).expect("a queue");
            let write = Request::write(4096, Buffer::copy_of(&[0xaa; 4096]), Context::default());
            let written = runtime.block_on(queue.submit(write)).expect("it ends");
            assert_eq!(written.result.is_ok(), is_taken, "{more}");
            let read = Request::read(0, Buffer::stale(12288), Context::default());
            let read = runtime.block_on(queue.submit(read)).expect("it ends");
            read.result.expect("readable");
            let middle = if is_taken { 0xaa } else { 1 };
            assert_eq!((read.buffer[0], read.buffer[4096], read.buffer[8192]), (0, middle, 2), "{more}");
            assert_eq!(std::fs::read(&path).expect("readable"), content, "{more}");
        }
    }
}
