//! Whether a stack may be built where its description says: on nothing that somebody uses, or that may be dear to somebody.

use rotproof_block::Result;
use rotproof_block::leaf::NbdDevice;
use rotproof_layers::{DeviceSpec, StackSpec};
use rotproof_machine::registry::Registry;
use rotproof_machine::{Claim, Use};

/// The right to use what a stack stands on, for as long as it is kept. It must outlive the stack.
#[derive(Debug)]
#[must_use = "without it others may use the same"]
pub struct Backing {
    /// Whether it is only to be read.
    pub is_read_only: bool,
    #[expect(dead_code, reason = "held, not used")]
    claims: Vec<Claim>,
}

/// Claims the leaves of `stack`; fails as [`Claim::of_path`] and [`Claim::of_export`] do, as [`rotproof_machine::require_image_fits`] does,
/// and if a server cannot be reached.
pub fn claim(stack: &StackSpec, wanted: Use) -> Result<Backing> {
    let mut claims = Vec::new();
    for device in stack.leaves() {
        match device {
            DeviceSpec::File(file) => {
                let size = file.size.map(|size| size.0);
                // One that stays as it is is only read, whatever the load does.
                let wanted = if file.is_untouched() { Use::READ } else { wanted };
                claims.push(Claim::of_path(&file.path, &Use { size, ..wanted })?);
                if let Some(size) = size {
                    rotproof_machine::require_image_fits(&file.path, size)?;
                }
            }
            DeviceSpec::Nbd(nbd) => {
                let device = NbdDevice::connect(&nbd.uri.parse()?)?;
                claims.push(Claim::of_export(&device, &wanted, Registry::of_user()?.folder())?);
            }
            _ => {}
        }
    }
    Ok(Backing { is_read_only: wanted.fills.is_none(), claims })
}

#[cfg(test)]
mod tests {
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_block::{Buffer, Context, Device, ErrorKind, Request, Runtime};
    use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer};
    use rotproof_machine::Filled;

    use super::*;

    #[test]
    fn an_export_that_holds_anything_needs_permission_and_one_in_use_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("opens");
        let export = NbdExport { name: String::new(), description: String::new(), device };
        let address = NbdAddress::Unix(folder.path().join("s"));
        let server = NbdServer::start(vec![export], &[address], NbdOptions::default()).expect("starts");
        let json = format!(r#"[{{"nbd":{{"uri":"{}"}}}}]"#, server.uris()[0]);
        let stack: StackSpec = serde_json::from_str(&json).expect("a stack");
        let fill = |overwrite| claim(&stack, Use::fill(Filled::ByClients, overwrite));
        let write = |bytes: &[u8]| {
            let mut sector = Buffer::zeroed(512);
            sector[..bytes.len()].copy_from_slice(bytes);
            let write = queue.submit(Request::write(0, sector, Context::default()));
            runtime.block_on(write).expect("completes").result.expect("written");
        };
        for (content, words) in [(&b"XFSB"[..], "an XFS file system"), (b"x", "it holds data")] {
            write(content);
            let error = fill(false).expect_err("not blank");
            assert_eq!(error.kind(), ErrorKind::Refused);
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("--overwrite"), "{text}");
            drop(fill(true).expect("permitted"));
        }
        let backing = fill(true).expect("permitted");
        for wanted in [Use::fill(Filled::ByLoad, true), Use::READ] {
            let text = claim(&stack, wanted).expect_err("in use").to_string();
            assert!(text.contains(&format!("is in use by process {}", std::process::id())), "{text}");
        }
        drop(backing);
        write(b"");
        let readers = [(); 2].map(|()| claim(&stack, Use::READ).expect("shared"));
        fill(false).expect_err("they read");
        drop(readers);
        // Blank: what this process fills it with is its own from now on.
        drop(fill(false).expect("zeros are dear to nobody"));
        write(b"a client's");
        drop(fill(false).expect("served again"));
        claim(&stack, Use::fill(Filled::ByLoad, false)).expect_err("a client's content is no load's");
    }
}
