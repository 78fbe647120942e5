//! Whether a stack may be built where its description says: on nothing that may be dear to somebody.

use rotproof_block::Result;
use rotproof_block::leaf::NbdDevice;
use rotproof_layers::{DeviceSpec, StackSpec};

use crate::host;

/// Ok if the leaf of `stack` may be written all over; fails as [`host::refuse_precious`] and
/// [`host::refuse_precious_export`] do, as [`host::require_image_fits`] does, and if a server cannot be reached.
pub(crate) fn refuse_precious(stack: &StackSpec, overwrite: bool) -> Result<()> {
    for device in &stack.0 {
        match device {
            DeviceSpec::File(file) => {
                host::refuse_precious(&file.path, overwrite)?;
                if let Some(size) = file.size {
                    host::require_image_fits(&file.path, size.0)?;
                }
            }
            DeviceSpec::Nbd(nbd) => {
                let device = NbdDevice::connect(&nbd.uri.parse()?)?;
                host::refuse_precious_export(&device, overwrite)?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_block::{Buffer, Context, Device, ErrorKind, Request, Runtime};
    use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer};

    use super::*;

    #[test]
    fn an_export_that_holds_a_file_system_needs_permission() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("opens");
        let export = NbdExport { name: String::new(), description: String::new(), device };
        let address = NbdAddress::Unix(folder.path().join("s"));
        let server = NbdServer::start(vec![export], &[address], NbdOptions::default()).expect("starts");
        let json = format!(r#"[{{"nbd":{{"uri":"{}"}}}}]"#, server.uris()[0]);
        let stack: StackSpec = serde_json::from_str(&json).expect("a stack");
        refuse_precious(&stack, false).expect("zeros are dear to nobody");
        let mut superblock = Buffer::zeroed(512);
        superblock[..4].copy_from_slice(b"XFSB");
        let write = Request::write(0, superblock, Context::default());
        runtime.block_on(queue.submit(write)).expect("completes").result.expect("written");
        let error = refuse_precious(&stack, false).expect_err("an XFS file system");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("--overwrite"), "{error}");
        refuse_precious(&stack, true).expect("permitted");
    }
}
