//! The versions of a volume that keeps some.

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result, Runtime};

use super::Volume;
use crate::versions::{VersionView, VersionsDevice};

impl Volume {
    /// Its versions.
    ///
    /// Fails with [`ErrorKind::Unsupported`] if it keeps none.
    pub fn versions(&self) -> Result<&Arc<VersionsDevice>> {
        self.versions.as_ref().ok_or_else(|| {
            let context = "the volume keeps no versions; that is said when it is made: `create --versions`";
            Error::new(ErrorKind::Unsupported, context)
        })
    }

    /// Captures the present; the number of the version. See [`VersionsDevice::capture`].
    pub async fn capture(&self, runtime: &Runtime, name: &str, time_ns: u64) -> Result<u64> {
        self.versions()?.capture(runtime, name, time_ns).await
    }

    /// Makes the present what a version was; the number of the version that undoes it. Whoever uses the device meanwhile sees
    /// it change: a file system over it must not be mounted.
    pub async fn roll_back(&self, runtime: &Runtime, id: u64, time_ns: u64) -> Result<u64> {
        self.versions()?.roll_back(runtime, id, time_ns).await
    }

    /// Gives a version up.
    pub async fn delete_version(&self, runtime: &Runtime, id: u64) -> Result<()> {
        self.versions()?.delete(runtime, id).await
    }

    /// Whether nothing but the record of the last flush itself says that it was done. Never so without versions: data stay where they are.
    pub fn is_unvouched(&self) -> bool {
        self.versions.as_ref().is_some_and(|versions| versions.is_unvouched())
    }

    /// Has it on record that the last flush was done. See [`VersionsDevice::vouch`].
    pub async fn vouch(&self, runtime: &Runtime) -> Result<()> {
        match &self.versions {
            Some(versions) => versions.vouch(runtime).await,
            None => Ok(()),
        }
    }

    /// A version as a device that can be read.
    pub fn view(&self, id: u64) -> Result<Arc<VersionView>> {
        self.versions()?.view(id)
    }
}
