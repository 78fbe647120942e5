//! Answers of FUSE, as bytes (`include/uapi/linux/fuse.h`, protocol 7.31).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// An answer under way: 16 bytes of header, then the body.
pub struct Reply(Vec<u8>);

impl Reply {
    pub fn new() -> Self {
        Self(vec![0; 16])
    }

    /// Room for `length` bytes of body, to be filled by the caller.
    pub fn with_room(length: usize) -> Self {
        Self(vec![0; 16 + length])
    }

    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0[16..]
    }

    pub fn truncate(&mut self, body: usize) {
        self.0.truncate(16 + body);
    }

    pub fn len(&self) -> usize {
        self.0.len() - 16
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// `struct fuse_attr`.
    pub fn attributes(&mut self, of: &Metadata) -> &mut Self {
        self.u64(of.ino()).u64(of.size()).u64(of.blocks());
        self.u64(of.atime() as u64).u64(of.mtime() as u64).u64(of.ctime() as u64);
        self.u32(of.atime_nsec() as u32).u32(of.mtime_nsec() as u32).u32(of.ctime_nsec() as u32);
        self.u32(of.mode()).u32(of.nlink() as u32).u32(of.uid()).u32(of.gid());
        self.u32(of.rdev() as u32).u32(of.blksize() as u32).u32(0)
    }

    /// `struct fuse_entry_out`. Nothing is valid for any time: the host is to ask each time.
    pub fn entry(&mut self, node: u64, of: &Metadata) -> &mut Self {
        self.u64(node).u64(0).u64(0).u64(0).u32(0).u32(0).attributes(of)
    }

    /// `struct fuse_attr_out`.
    pub fn attributes_out(&mut self, of: &Metadata) -> &mut Self {
        self.u64(0).u32(0).u32(0).attributes(of)
    }

    /// `struct fuse_open_out`, with direct I/O: the host caches no data.
    pub fn opened(&mut self, handle: u64) -> &mut Self {
        const FOPEN_DIRECT_IO: u32 = 1;
        self.u64(handle).u32(FOPEN_DIRECT_IO).u32(0)
    }

    /// With its header.
    pub fn finish(mut self, unique: u64) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0[8..16].copy_from_slice(&unique.to_le_bytes());
        self.0
    }
}

/// The answer that it failed.
pub fn failure(unique: u64, errno: i32) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[0] = 16;
    bytes[4..8].copy_from_slice(&(-errno).to_le_bytes());
    bytes[8..].copy_from_slice(&unique.to_le_bytes());
    bytes
}
