//! What one copy of a volume has, for who can tell a right one from a wrong one: a file system or a guard above that has checksums of its
//! own, where the volume has none.

use rotproof_block::{Buffer, Context, Error, ErrorKind, Result, Runtime};

use super::Volume;
use crate::io::Io;

impl Volume {
    /// How many copies there are of everything.
    ///
    /// Fails with [`ErrorKind::Unsupported`] where nobody can choose among them: if there is one, if the volume has checksums and mends
    /// them by itself, or if it keeps versions, so that they lie elsewhere.
    pub fn copy_count(&self) -> Result<usize> {
        let options = self.options();
        let why = match usize::from(options.ways) {
            _ if options.checksum.is_some() => "the volume has checksums, and mends its copies by itself",
            _ if options.versions.is_some() => {
                "the volume keeps versions, so nobody but itself reaches its copies"
            }
            1 => "the volume keeps one copy of everything",
            ways => return Ok(ways),
        };
        Err(Error::new(ErrorKind::Unsupported, why))
    }

    /// Reads `length` bytes at `offset` as copy number `copy` has them, whether it is current or not.
    ///
    /// Fails as [`Volume::copy_count`], and with [`ErrorKind::Invalid`] if there is no such copy or stretch, in whole blocks of one
    /// segment.
    pub async fn read_copy(
        &self,
        copy: usize,
        offset: u64,
        length: u64,
        runtime: &Runtime,
    ) -> Result<Buffer> {
        let count = self.copy_count()?;
        let no_such = || {
            let context = format!("there is no copy {copy} of {length} bytes at {offset}");
            Error::new(ErrorKind::Invalid, context)
        };
        if copy >= count || length == 0 {
            return Err(no_such());
        }
        let mut within = offset;
        for segment in &self.bare {
            let info = segment.info();
            if within < info.size {
                let is_whole = (within | length).is_multiple_of(u64::from(info.block_size));
                if !is_whole || length > info.size - within {
                    return Err(no_such());
                }
                let io = Io::open(segment, runtime, self.book.patience)?;
                return io.read_copy(copy, within, length as usize, Context::default()).await;
            }
            within -= info.size;
        }
        Err(no_such())
    }
}
