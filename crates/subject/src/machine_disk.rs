//! The disk of a guest by another way than the file: a server of NBD or vhost-user-blk for this one client, whose connection the
//! guest is handed open.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{Device, Error, Result};
use rotproof_export::{NbdAddress, NbdExport, NbdOptions, NbdServer, VhostExport, VhostOptions, VhostServer};
use rotproof_guest::GuestDisk;

use crate::SubjectEnvironment;
use crate::machine_spec::MachineDisk;

/// The folder for its socket, in the scratch folder of the run. A server that is killed leaves the socket there.
pub(crate) const FOLDER: &str = "disk-server";

/// What serves the disk. Its socket is removed with it.
pub(crate) enum DiskServer {
    Nbd(NbdServer),
    Vhost(VhostServer),
}

impl DiskServer {
    /// Serves `device` by `disk`, and connects to it. For the file, which is served already, there is no server.
    pub(crate) fn start<'a>(
        disk: MachineDisk,
        device: Arc<dyn Device>,
        file: &'a Path,
        environment: &SubjectEnvironment,
    ) -> Result<(Option<Self>, GuestDisk<'a>)> {
        let block_bytes = device.info().block_size;
        let socket = environment.run.scratch().join(FOLDER).join("socket");
        let (seed, epoch) = (environment.seed, environment.epoch);
        let phase = Arc::clone(&environment.phase);
        let server = match disk {
            MachineDisk::File => return Ok((None, GuestDisk::File { path: file, block_bytes })),
            MachineDisk::Nbd => {
                let export = NbdExport { name: String::new(), description: String::new(), device };
                let options = NbdOptions { seed, epoch, phase, tls: None };
                Self::Nbd(NbdServer::start(vec![export], &[NbdAddress::Unix(socket.clone())], options)?)
            }
            MachineDisk::Vhost => {
                let export = VhostExport { name: "rotproof".to_owned(), socket: socket.clone(), device };
                let options = VhostOptions { queues: 1, seed, epoch, phase };
                Self::Vhost(VhostServer::start(&[export], options)?)
            }
        };
        let connection = UnixStream::connect(&socket)
            .doing(|| format!("connecting to {}, the disk of a guest", socket.display()))?;
        let disk = match disk {
            MachineDisk::Vhost => GuestDisk::Vhost(connection),
            _ => GuestDisk::Nbd { socket: connection, block_bytes },
        };
        Ok((Some(server), disk))
    }

    /// Ends it, when the guest is gone: what was asked for completes first.
    pub(crate) fn stop(self) -> Result<()> {
        let stopped = match &self {
            Self::Nbd(server) => server.stop(),
            Self::Vhost(server) => server.stop(),
        };
        stopped.map_err(|error| {
            Error::new(error.kind(), "ending what serves the disk of a guest").caused_by(error)
        })
    }
}
