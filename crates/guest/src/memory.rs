//! The memory of a guest: searched and changed from outside, its pages known by the word of its kernel.

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_inject::{PAGE_BYTES, PageKind, SharedMemory, page_kind};

use crate::guest::ANSWER_MAX;
use crate::link::Link;

/// Pages asked for at once.
const BATCH: u64 = 8192;

/// The memory of a guest that runs. It stays usable when the guest is gone, but nobody then uses what is changed.
#[derive(Clone, Debug)]
pub struct GuestMemory {
    memory: Arc<SharedMemory>,
    link: Arc<Link>,
}

impl GuestMemory {
    pub(crate) fn new(memory: SharedMemory, link: Arc<Link>) -> Self {
        Self { memory: Arc::new(memory), link }
    }

    /// Its bytes, by physical addresses.
    pub fn bytes(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The address of the page in which the guest caches block `block` (of 4096 bytes) of a file in its file system;
    /// `None` if it does not. The guest's kernel is asked, which does not read the file for it.
    pub fn page_of(&self, file: &str, block: u64) -> Result<Option<u64>> {
        if file.contains(['\t', '\0', '\n']) || file.split('/').any(|part| part == "..") {
            return Err(Error::new(ErrorKind::Invalid, format!("{file:?} names no file of the guest's")));
        }
        let said = self.link.command(&format!("page\t{file}\t{block}"), ANSWER_MAX)?;
        if said == "none" {
            return Ok(None);
        }
        let page: u64 = said.parse().map_err(|_| {
            Error::new(ErrorKind::Internal, format!("the agent in the guest names `{said}` as a page"))
        })?;
        let address = page.checked_mul(PAGE_BYTES as u64).filter(|address| *address < self.memory.len());
        address.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("page {page} of the guest is beyond its memory"))
        })
    }

    /// What `count` pages from `first` on are used for, at this moment; `None` of each of which the guest's kernel does not say
    /// it. User Mode Linux 6.1 says nothing of its last pages, as many as it has set aside when it started: some 16 MiB.
    pub fn kinds(&self, first: u64, count: u64) -> Result<Vec<Option<PageKind>>> {
        let mut kinds = Vec::new();
        while (kinds.len() as u64) < count {
            let (from, batch) = (first + kinds.len() as u64, (count - kinds.len() as u64).min(BATCH));
            let said = self.link.command(&format!("flags\t{from}\t{batch}"), ANSWER_MAX)?;
            let before = kinds.len();
            for word in said.split_ascii_whitespace() {
                let flags = u64::from_str_radix(word, 16).map_err(|_| {
                    Error::new(ErrorKind::Internal, format!("the agent in the guest names `{word}` as flags"))
                })?;
                kinds.push(page_kind(flags));
            }
            if kinds.len() == before {
                break;
            }
        }
        kinds.resize(usize::try_from(count).unwrap_or_default(), None);
        Ok(kinds)
    }
}
