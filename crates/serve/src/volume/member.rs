//! Files and block devices as members of volumes, claimed so that nobody else uses them.

use std::io::Read;
use std::path::Path;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::{Error, ErrorKind, Result, Runtime};
use rotproof_machine::{Claim, Filled, Use};
use rotproof_volume::volume::{Candidate, read_record};

/// A file or block device, opened as a member may be.
pub fn candidate(path: &Path, read_only: bool) -> Result<Candidate> {
    let options = FileOptions { direct: true, read_only, ..FileOptions::default() };
    let device = FileDevice::open(path, options)?;
    Ok(Candidate { name: path.display().to_string(), device })
}

/// A number that no other volume or member has.
pub fn identity() -> Result<u128> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::from_io(error, "drawing a number from /dev/urandom"))?;
    Ok(u128::from_le_bytes(bytes))
}

/// Fails with [`ErrorKind::Refused`] if a device is a member of a volume: it holds data of somebody's, whatever else there is
/// to see. One of a later version is one as well.
pub async fn refuse_member(candidate: &Candidate, runtime: &Runtime) -> Result<()> {
    match read_record(candidate, runtime).await? {
        None => Ok(()),
        Some(record) => {
            let message = format!(
                "{} is a member of the volume {:032x}; --overwrite permits to destroy what it holds",
                candidate.name, record.volume
            );
            Err(Error::new(ErrorKind::Refused, message))
        }
    }
}

/// A device that is to become a member, which loses what it holds, with the right to use it alone for as long as that is kept.
///
/// Fails as [`Claim::of_path`] and [`refuse_member`] do, unless `overwrite` permits it.
pub async fn member_to_fill(path: &Path, overwrite: bool, runtime: &Runtime) -> Result<(Candidate, Claim)> {
    let claim = Claim::of_path(path, &Use::fill(Filled::ByClients, overwrite))?;
    let candidate = candidate(path, false)?;
    if !overwrite {
        refuse_member(&candidate, runtime).await?;
    }
    Ok((candidate, claim))
}
