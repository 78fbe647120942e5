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
        }
    }

    fn describe(&self) -> String {
        let size = self.size.map_or("as large as it is".to_owned(), |size| size.to_string());
        let cache = if self.direct { "" } else { ", through the page cache" };
        format!("{}, {size}{cache}", self.path.display())
    }

    fn open(&self, _below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let read_only = opening.is_read_only();
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
        Ok(file)
    }
}
