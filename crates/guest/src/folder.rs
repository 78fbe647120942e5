//! The file system of a guest, in a folder of this machine: every request to it is carried out in the guest, and what
//! the guest says is what the caller gets. Nothing of it is cached here.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::Result;
use rotproof_block::error::IoContext;
use rotproof_export::ForwardedMount;
use rotproof_machine::start_thread;

use crate::link::{Link, MESSAGE_BYTES_MAX, TRANSFER_BYTES_MAX};

/// How long an unmount waits for the last user of a file.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// A folder in which a guest's file system is mounted. Dropped, it is unmounted, by force if need be.
#[derive(Debug)]
pub struct GuestFolder {
    mount: Arc<ForwardedMount>,
    link: Arc<Link>,
    is_mounted: Mutex<bool>,
    /// Requests that were sent into the guest and not answered.
    under_way: Arc<AtomicUsize>,
}

/// Of `enum fuse_opcode` those that nobody answers: FORGET, INTERRUPT and BATCH_FORGET.
const UNANSWERED: [u32; 3] = [2, 36, 42];
/// How often is looked whether requests are still under way.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl GuestFolder {
    pub(crate) fn mount(link: &Arc<Link>, point: &Path) -> Result<Self> {
        let mount = Arc::new(ForwardedMount::mount(point, TRANSFER_BYTES_MAX)?);
        let answers = Arc::clone(&mount);
        let under_way = Arc::new(AtomicUsize::new(0));
        let answered = Arc::clone(&under_way);
        link.set_taker(Some(Box::new(move |answer| {
            // A guest whose memory is wrong may answer what nobody has asked.
            let _ = answered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
            // What the kernel does not take is answered by nobody; its caller waits until the guest or the mount ends.
            let _ = answers.answer(answer);
        })));
        let connection = Arc::clone(&mount);
        // Whoever waits for a guest that is gone gets an error.
        link.at_end(Some(Box::new(move || connection.abort())));
        let folder = Self {
            mount: Arc::clone(&mount),
            link: Arc::clone(link),
            is_mounted: Mutex::new(true),
            under_way: Arc::clone(&under_way),
        };
        let link = Arc::clone(link);
        start_thread("guest-folder", move || {
            let mut buffer = vec![0; MESSAGE_BYTES_MAX + 4096];
            while let Ok(Some(length)) = mount.receive(&mut buffer) {
                let operation = buffer[..length].get(4..8).and_then(|bytes| bytes.try_into().ok());
                if operation.map(u32::from_le_bytes).is_some_and(|code| !UNANSWERED.contains(&code)) {
                    under_way.fetch_add(1, Ordering::SeqCst);
                }
                if link.send_fuse(&mut buffer[..length]).is_err() {
                    // Nobody answers any more: whoever waits gets an error.
                    mount.abort();
                    break;
                }
            }
        })?;
        Ok(folder)
    }

    /// Unmounts. Fails with `EBUSY` if a file stays open.
    pub fn unmount(&self) -> Result<()> {
        let mut is_mounted = self.is_mounted.lock();
        if *is_mounted {
            self.mount.unmount(BUSY_PATIENCE)?;
            *is_mounted = false;
            self.forget();
        }
        Ok(())
    }

    /// Waits until no request is under way in the guest, for as long as that; whether it came to that.
    pub fn is_at_rest_within(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        while self.under_way.load(Ordering::SeqCst) > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }

    /// Ends every request to it, those to come too, with an error.
    pub fn abort(&self) {
        self.mount.abort();
    }

    fn forget(&self) {
        self.link.set_taker(None);
        self.link.at_end(None);
    }

    /// Opens its root, as a look at whether it is there.
    pub fn look(&self) -> Result<()> {
        std::fs::metadata(self.mount.point()).map(drop).doing(|| "looking into the guest".into())
    }
}

impl Drop for GuestFolder {
    fn drop(&mut self) {
        if std::mem::take(self.is_mounted.get_mut()) && self.mount.unmount(Duration::ZERO).is_err() {
            self.mount.abort();
            // What is open belongs to a dead connection; the place in the tree becomes free.
            let _ = self.mount.detach();
        }
        self.forget();
    }
}
