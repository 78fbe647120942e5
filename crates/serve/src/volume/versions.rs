//! Versions of a volume that are offered beside its present.

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_layers::{NamedDevice, Stack};

/// The device that is the present, where versions are offered beside it.
const PRESENT: &str = "present";

/// The devices of a stack, and with them these versions of the volume in it: `present`, `version-3` and so on.
///
/// Fails with [`ErrorKind::Invalid`] if there is not one volume, and as [`rotproof_volume::live::LiveVolume::version`] does. A version
/// that is given up later answers every read with an error.
pub(crate) fn with_versions(stack: &Stack, versions: &[u64]) -> Result<Vec<NamedDevice>> {
    let mut devices = stack.devices.clone();
    if versions.is_empty() {
        return Ok(devices);
    }
    let ([volume], [present]) = (stack.volumes(), &mut devices[..]) else {
        let context = "versions are offered beside one volume, and this stack is not one";
        return Err(Error::new(ErrorKind::Invalid, context));
    };
    present.name = Some(PRESENT.to_owned());
    for version in versions {
        let name = Some(format!("version-{version}"));
        if devices.iter().all(|known| known.name != name) {
            devices.push(NamedDevice { name, device: volume.version(*version)? });
        }
    }
    Ok(devices)
}
