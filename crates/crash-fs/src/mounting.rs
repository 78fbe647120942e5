//! Whose kernel mounts the states of a device: that of this machine ([`Scene`]) or that of a guest.

use std::ops::Range;
use std::path::Path;

use rotproof_block::Result;
use rotproof_crash::ImageDevice;

use crate::scene::Scene;

/// So much of a device is read in one place to see that it is ours.
const SIGN_BYTES: u64 = 4096;
/// Where the superblock of btrfs lies, before which there are only zeros.
const SIGN_OF_BTRFS: u64 = 64 << 10;

/// The parts of a device of so many bytes, by offset and length, that tell it from another one.
pub(crate) fn signs(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let length = move |start: u64| (size.saturating_sub(start)).min(SIGN_BYTES) as usize;
    [0, SIGN_OF_BTRFS].map(|start| (start, length(start))).into_iter().filter(|(_, length)| *length > 0)
}

/// A device of ours with a place to mount what is on it, by some kernel. States are put on it one after the other.
pub trait Mounting: Send {
    /// See [`Scene::changed`].
    fn changed(&self, ranges: &[Range<u64>], image: &ImageDevice) -> Result<()>;

    /// The device has no use for flushes: what is written to it is there, and goes with it.
    fn needs_no_flushes(&self);

    /// Lets the kernel keep what it reads, where it is one that may, or not, so that the device sees every read. Nothing may be mounted.
    fn keep_reads(&mut self, keep: bool) -> Result<()>;

    /// Fails if the device does not show `image`, or if nobody knows what the state last mounted has done.
    fn check(&self, image: &ImageDevice) -> Result<()>;

    /// The device, or a file that stands for it, as programs of this machine take it. Nothing may be mounted.
    fn device(&self) -> &Path;

    /// Where its files are seen while it is mounted.
    fn mountpoint(&self) -> &Path;

    /// See [`Scene::mount`].
    fn mount(&mut self, options: &[String]) -> Result<()>;

    /// See [`Scene::unmount`].
    fn unmount(&mut self) -> Result<()>;

    /// Waits until nobody uses the device any more.
    fn wait_until_free(&self) -> Result<()>;

    /// See [`Scene::forget`].
    fn forget(&self) -> Result<()>;

    /// What the kernel has said about the device since it was asked last.
    fn kernel_words(&mut self) -> Vec<String>;
}

impl Mounting for Scene {
    fn changed(&self, ranges: &[Range<u64>], image: &ImageDevice) -> Result<()> {
        Scene::changed(self, ranges, image)
    }

    fn needs_no_flushes(&self) {
        Scene::needs_no_flushes(self);
    }

    fn keep_reads(&mut self, keep: bool) -> Result<()> {
        Scene::keep_reads(self, keep)
    }

    fn check(&self, image: &ImageDevice) -> Result<()> {
        Scene::check(self, image)
    }

    fn device(&self) -> &Path {
        Scene::device(self)
    }

    fn mountpoint(&self) -> &Path {
        Scene::mountpoint(self)
    }

    fn mount(&mut self, options: &[String]) -> Result<()> {
        Scene::mount(self, options)
    }

    fn unmount(&mut self) -> Result<()> {
        Scene::unmount(self)
    }

    fn wait_until_free(&self) -> Result<()> {
        Scene::wait_until_free(self)
    }

    fn forget(&self) -> Result<()> {
        Scene::forget(self)
    }

    fn kernel_words(&mut self) -> Vec<String> {
        Scene::kernel_words(self)
    }
}
