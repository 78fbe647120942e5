//! Offering a stack over NBD: where it listens, what it insists on, what is recorded so that nothing stays behind.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer, nbd_tls};
use rotproof_layers::NamedDevice;
use rotproof_machine::registry::{CleanupStack, Socket};

use crate::export::{Address, ExportKind, Surroundings};

/// Where an NBD server listens.
pub(crate) type NbdAddresses = Vec<NbdAddress>;

/// How a stack is offered over NBD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NbdServing {
    /// Where it listens; by default at a Unix socket in the run's own folder.
    pub listen: Vec<NbdAddress>,
    /// Nothing is told without TLS.
    pub tls: Option<TlsServing>,
}

/// The certificates of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServing {
    /// The folder they are in ([`nbd_tls`]).
    pub folder: PathBuf,
    /// Only clients with a certificate of the folder's authority are let in.
    pub verify_clients: bool,
}

impl NbdServing {
    /// Places that other machines may reach, where nothing keeps a stranger from reading and writing.
    pub fn open_to_strangers(&self) -> impl Iterator<Item = &NbdAddress> {
        let is_guarded = self.tls.as_ref().is_some_and(|tls| tls.verify_clients);
        let is_open = move |address: &&NbdAddress| match address {
            NbdAddress::Tcp(address) => !is_guarded && !address.ip().is_loopback(),
            NbdAddress::Unix(_) => false,
        };
        self.listen.iter().filter(is_open)
    }

    /// Starts the server, with an export for each device, and gives where they are to be found, in the order asked for.
    pub(crate) fn open(
        &self,
        devices: &[NamedDevice],
        surroundings: &Surroundings,
        cleanup: &mut CleanupStack,
    ) -> Result<(Vec<Address>, NbdAddresses, Weak<NbdServer>)> {
        let Surroundings { folder, seed, epoch, phase, .. } = surroundings;
        let tls = self.tls.as_ref().map(|tls| nbd_tls(&tls.folder, tls.verify_clients)).transpose()?;
        let addresses = match &self.listen[..] {
            [] => vec![NbdAddress::Unix(folder.join("nbd"))],
            listen => listen.iter().map(absolute).collect::<Result<_>>()?,
        };
        for address in &addresses {
            if let NbdAddress::Unix(path) = address {
                // What is there now is not ours, and must not come into the record.
                refuse_taken(path)?;
                cleanup.create(Socket { path: path.clone() }, || Ok(((), Box::new(|| Ok(())))))?;
            }
        }
        let export = |NamedDevice { name, device }: &NamedDevice| NbdExport {
            name: name.clone().unwrap_or_default(),
            description: String::new(),
            device: Arc::clone(device),
        };
        let options = NbdOptions { seed: *seed, epoch: *epoch, phase: Arc::clone(phase), tls };
        let server = Arc::new(NbdServer::start(devices.iter().map(export).collect(), &addresses, options)?);
        let places = devices
            .iter()
            .flat_map(|device| server.addresses().iter().map(move |place| (device.name.clone(), place)));
        let found = places
            .zip(server.uris())
            .map(|((device, place), uri)| Address { device, ..self.address(place, uri) })
            .collect();
        let (places, running) = (server.addresses().to_vec(), Arc::downgrade(&server));
        cleanup.end_with("the NBD server", Box::new(move || server.stop()));
        Ok((found, places, running))
    }

    /// Has a server that listens at these places offer one more device, and gives where that is to be found.
    pub(crate) fn add(
        &self,
        server: &NbdServer,
        places: &[NbdAddress],
        NamedDevice { name, device }: &NamedDevice,
    ) -> Result<Vec<Address>> {
        let export = NbdExport {
            name: name.clone().unwrap_or_default(),
            description: String::new(),
            device: Arc::clone(device),
        };
        let uris = server.add(export)?;
        let found = places.iter().zip(uris);
        Ok(found.map(|(place, uri)| Address { device: name.clone(), ..self.address(place, uri) }).collect())
    }

    fn address(&self, place: &NbdAddress, uri: String) -> Address {
        let commands = match &self.tls {
            None => vec![
                format!("fio --name=nbd --ioengine=nbd --uri='{uri}' --rw=randrw"),
                format!("qemu-system-x86_64 -drive 'file={},format=raw,if=virtio'", uri.replace(',', ",,")),
                match place {
                    NbdAddress::Tcp(address) => {
                        format!("nbd-client {} {} /dev/nbd0", address.ip(), address.port())
                    }
                    NbdAddress::Unix(path) => format!("nbd-client -unix '{}' /dev/nbd0", path.display()),
                },
            ],
            Some(tls) => {
                let joint = if uri.contains('?') { '&' } else { '?' };
                let folder = tls.folder.display();
                vec![format!("nbdinfo '{uri}{joint}tls-certificates={folder}'")]
            }
        };
        Address { kind: ExportKind::Nbd, device: None, address: uri, commands }
    }
}

/// Whoever reads the URI may be in another folder.
fn absolute(address: &NbdAddress) -> Result<NbdAddress> {
    let NbdAddress::Unix(path) = address else { return Ok(address.clone()) };
    std::path::absolute(path)
        .map(NbdAddress::Unix)
        .map_err(|error| Error::from_io(error, format!("the path {}", path.display())))
}

fn refuse_taken(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let message =
        format!("{} is there already; remove it or choose another path for the socket", path.display());
    Err(Error::new(ErrorKind::Refused, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_can_reach_without_a_certificate_is_open_to_strangers() {
        let listen: Vec<NbdAddress> =
            ["127.0.0.1:1", "[::1]:1", "unix:x", "0.0.0.0:1", "[::]:1", "192.0.2.1:1"]
                .map(|text| text.parse().expect("an address"))
                .to_vec();
        let open =
            |serving: &NbdServing| serving.open_to_strangers().map(ToString::to_string).collect::<Vec<_>>();
        let serving = NbdServing { listen, tls: None };
        assert_eq!(open(&serving), ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"]);
        let tls = |verify_clients| Some(TlsServing { folder: "x".into(), verify_clients });
        assert_eq!(open(&NbdServing { tls: tls(false), ..serving.clone() }).len(), 3);
        assert_eq!(open(&NbdServing { tls: tls(true), ..serving }).len(), 0);
    }
}
