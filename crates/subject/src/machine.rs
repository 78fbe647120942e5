//! The subject `machine`: a guest kernel with a file system on the exported stack. The load works on a folder of this
//! machine, behind which every request is carried out in the guest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_attach::FuseMount;
use rotproof_block::{Device, Error, ErrorKind, Power, Result, ability};
use rotproof_guest::{End, Guest, GuestFolder, GuestMemory, GuestOptions};
use rotproof_machine::registry::{CleanupStack, Process, Undo};

use crate::exported::Exported;
use crate::machine_disk::{self, DiskServer};
use crate::mkfs::{self, Made, Recipe};
use crate::{Attached, Destination, Prepared, SubjectDescription, SubjectEnvironment};
use crate::{FileSystemSpec, MachineKind, MachineSpec};

/// What ext4, btrfs and xfs say when they stop writing for good. jfs says it among the options of its mount, and f2fs of Linux 6.1 nowhere.
const GAVE_UP: [&str; 3] =
    ["Remounting filesystem read-only", "forced readonly", "Filesystem has been shut down"];
/// How long a call may take in a guest that is to be stopped; as long as an unmount may.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Lines of the console that go into the results as the kernel's messages.
const MESSAGES_MAX: usize = 200;

/// A guest over the stack.
pub(crate) struct MachineSubject {
    exported: Exported,
    spec: MachineSpec,
    /// Something below can lose what is not durable, or what is durable is to be seen in a recording.
    writes_through: bool,
    /// `None` where it was there already.
    made: Option<Made>,
    /// Where its file system is shown.
    mountpoint: PathBuf,
    console: PathBuf,
    environment: SubjectEnvironment,
    /// How high the clean-up stack is without the guest.
    guest_mark: usize,
    guest: Option<Arc<Guest>>,
    /// Where its file system is shown, while it is.
    folder: Option<Arc<GuestFolder>>,
    /// Where its disk is served by something other than the file.
    disk_server: Option<DiskServer>,
    options_in_force: Option<String>,
}

impl MachineSubject {
    pub(crate) fn prepare(
        spec: &MachineSpec,
        devices: Vec<Arc<dyn Device>>,
        environment: &SubjectEnvironment,
    ) -> Result<Self> {
        let mut stack = CleanupStack::new(&environment.run);
        let mountpoint = environment.run.scratch().join("mount");
        stack.create_directory(&mountpoint)?;
        let console = environment.run.scratch().join("console");
        drop(stack.create_file(&console)?);
        stack.create_tree(&environment.run.scratch().join(machine_disk::FOLDER))?;
        // The disk of a guest of QEMU takes flushes, and hands them on.
        let writes_through = spec.kind == MachineKind::Uml
            && (environment.is_recorded
                || devices.iter().any(|device| ability::find::<dyn Power>(&**device).is_some()));
        let mut exported = Exported::for_everybody(stack, devices, environment)?;
        let of = &spec.file_system;
        let made = match of.existing {
            true => None,
            false => {
                exported.attach()?;
                let devices = exported.devices();
                let made = mkfs::make(of, &devices, environment.seed, &environment.run, &environment.cancel)?;
                // The guest takes the file below the loop device.
                exported.detach()?;
                Some(made)
            }
        };
        Ok(Self {
            exported,
            spec: spec.clone(),
            writes_through,
            made,
            mountpoint,
            console,
            environment: environment.clone(),
            guest_mark: 0,
            guest: None,
            folder: None,
            disk_server: None,
            options_in_force: None,
        })
    }

    fn mount_options(spec: &FileSystemSpec) -> String {
        let own = Recipe::of(spec.kind).mount.iter().map(|&option| option.to_owned());
        own.chain(spec.mount.iter().cloned()).collect::<Vec<_>>().join(",")
    }

    /// Starts a guest and shows its file system. The inner error is what the guest says of the file system, the outer one of
    /// this machine.
    fn start(&mut self) -> Result<Result<()>> {
        self.exported.serve()?;
        self.guest_mark = self.exported.stack().height();
        let (file, device) = self.exported.first();
        let (disk_server, disk) = DiskServer::start(self.spec.disk, device, &file, &self.environment)?;
        self.disk_server = disk_server;
        let guest = Arc::new(Guest::start(&GuestOptions {
            kind: self.spec.guest_kind()?,
            disk,
            memory_bytes: self.spec.memory.0,
            console: &self.console,
            scratch: self.environment.run.scratch(),
            holds_dirty: self.spec.holds_dirty,
            writes_through: self.writes_through,
            snapshots: self.spec.snapshot_folder().as_deref(),
            cancel: &self.environment.cancel,
        })?);
        let ends = Arc::clone(&guest);
        self.exported.stack().create(Process(guest.identity()), || {
            let undo: Undo = Box::new(move || {
                ends.kill();
                Ok(())
            });
            Ok(((), undo))
        })?;
        if let Err(error) =
            guest.mount(self.spec.file_system.kind.name(), &Self::mount_options(&self.spec.file_system))
        {
            return Ok(Err(explained(error, &guest)));
        }
        let mountpoint = self.mountpoint.clone();
        let folder = self.exported.stack().create(FuseMount { path: mountpoint.clone() }, || {
            let folder = Arc::new(guest.show(&mountpoint)?);
            let shown = Arc::clone(&folder);
            let undo: Undo = Box::new(move || shown.unmount());
            Ok((folder, undo))
        })?;
        self.folder = Some(folder);
        self.options_in_force = guest.mount_options().ok().flatten();
        self.guest = Some(guest);
        Ok(Ok(()))
    }

    /// Ends what serves the disk of a guest that is gone.
    fn stop_disk_server(&mut self) -> Option<Error> {
        self.disk_server.take()?.stop().err()
    }

    /// Ends the guest in order, and gives what it and its file system have noticed.
    fn stop(&mut self) -> (Vec<Error>, Result<()>) {
        let mut reported = Vec::new();
        let Some(guest) = self.guest.take() else {
            // It may not have come up.
            return (reported, self.stop_disk_server().map_or(Ok(()), Err));
        };
        if let Some(end) = guest.end() {
            reported.push(of_end(&end));
            // Whoever still waits for it gets an error, and lets go of its folder.
            guest.kill();
        } else if is_read_only(&guest) {
            let context = "the guest has made its file system read-only";
            reported.push(explained(Error::new(ErrorKind::ReadOnly, context), &guest));
        }
        // Whoever has called it has gone, or was given up. A call that is still under way in the guest holds a file for good.
        let folder = self.folder.take();
        if reported.iter().all(|error| error.kind() == ErrorKind::ReadOnly)
            && folder.is_some_and(|folder| !folder.is_at_rest_within(CALL_MAX))
        {
            reported.push(of_end(&End::Hang));
            guest.kill();
        }
        // The folder first: it lets go of what the guest has open for it.
        let folder_mark = self.guest_mark + 1;
        let mut failures = self.exported.stack().undo_to(folder_mark);
        if reported.iter().all(|error| error.kind() == ErrorKind::ReadOnly) {
            if let Err(error) = guest.unmount() {
                reported.push(end_of_unmount(error, || guest.end(), |error| explained(error, &guest)));
            } else if let Some(end) = guest.end() {
                reported.push(of_end(&end));
            }
        }
        failures.extend(self.exported.stack().undo_to(self.guest_mark));
        failures.extend(self.stop_disk_server());
        (reported, crate::joined(failures).map_or(Ok(()), Err))
    }
}

/// Whether the guest's kernel has stopped writing to its file system. Not all that do so say it among the options of the mount:
/// ext4 has not since Linux 6.12, and in 6.1 since that was taken over there.
fn is_read_only(guest: &Guest) -> bool {
    let is_mounted_so = guest
        .mount_options()
        .is_ok_and(|options| options.is_some_and(|options| options.split(',').any(|option| option == "ro")));
    is_mounted_so || GAVE_UP.iter().any(|words| guest.console_text().contains(words))
}

/// What a failed unmount says: that the guest is gone, if it is, or hangs, if it has not unmounted in time, whatever else it still answers;
/// else the error of its kernel.
fn end_of_unmount(
    error: Error,
    end: impl FnOnce() -> Option<End>,
    explained: impl FnOnce(Error) -> Error,
) -> Error {
    match (error.kind(), end()) {
        (_, Some(end)) => of_end(&end).caused_by(error),
        (ErrorKind::TimedOut, None) => of_end(&End::Hang).caused_by(error),
        (_, None) => explained(error),
    }
}

fn of_end(end: &End) -> Error {
    Error::new(ErrorKind::Gone, end.to_string())
}

/// With the last words of the guest's kernel.
fn explained(error: Error, guest: &Guest) -> Error {
    let console = guest.console_text();
    let last: Vec<&str> = console.lines().filter(|line| is_of_interest(line)).collect();
    match last.get(last.len().saturating_sub(3)..) {
        Some(last) if !last.is_empty() => {
            Error::new(error.kind(), format!("{error}; its kernel says: {}", last.join(" | ")))
        }
        _ => error,
    }
}

/// Whether a line of a console is about the file system, or about the kernel's end.
fn is_of_interest(line: &str) -> bool {
    [
        "rotproof: ",
        "ubda",
        "vda",
        "Linux version",
        "EXT4",
        "JBD2",
        "XFS",
        "BTRFS",
        "JFS",
        "jfs",
        "F2FS",
        "panic",
        "BUG",
        "WARNING",
        "Oops",
        "I/O error",
    ]
    .iter()
    .any(|word| line.contains(word))
}

impl Prepared for MachineSubject {
    fn place(&self) -> Destination {
        Destination::Folder(self.mountpoint.clone())
    }

    fn attach(&mut self) -> Result<Attached> {
        // A new kernel: nothing of the memory of the one before answers, be it right or wrong.
        let phase = self.exported.enter_setup();
        let started = self.start();
        self.exported.leave_setup(phase);
        Ok(started?.map_or_else(Attached::Refused, |()| Attached::Up))
    }

    fn detach(&mut self) -> Result<Vec<Error>> {
        let (reported, stopped) = self.stop();
        stopped.map(|()| reported)
    }

    fn kill(&mut self) -> Result<()> {
        if let Some(guest) = self.guest.take() {
            guest.kill();
        }
        self.folder = None;
        let served = self.stop_disk_server();
        self.exported.kill()?;
        served.map_or(Ok(()), Err)
    }

    fn sync(&self) -> Result<()> {
        // This machine has nothing of its files in memory; the guest has.
        self.guest.as_ref().map_or(Ok(()), |guest| guest.sync())
    }

    fn describe(&self) -> SubjectDescription {
        SubjectDescription {
            export: None,
            name: match self.spec.kind {
                MachineKind::Uml => format!("machine with {}", self.spec.file_system.kind.name()),
                MachineKind::Qemu => format!("machine (qemu) with {}", self.spec.file_system.kind.name()),
            },
            tool: self.made.as_ref().and_then(|made| made.tool.clone()),
            mkfs: self.made.as_ref().map(|made| made.command_line.clone()),
            mount_options: Some(Self::mount_options(&self.spec.file_system)),
            mount_options_in_force: self.options_in_force.clone(),
        }
    }

    fn kernel_messages(&mut self) -> Vec<String> {
        let console = self.console().unwrap_or_default();
        let lines = console.lines().filter(|line| is_of_interest(line)).map(str::to_owned);
        lines.take(MESSAGES_MAX).collect()
    }

    fn console(&self) -> Option<String> {
        read_lossy(&self.console)
    }

    fn memory(&self) -> Option<GuestMemory> {
        self.guest.as_ref().map(|guest| guest.memory().clone())
    }

    fn abort(&self) {
        self.exported.abort();
        if let Some(guest) = &self.guest {
            guest.kill();
        }
    }

    fn axe(&self) -> Option<crate::Axe> {
        // Not kept alive by it: its memory goes with it.
        let guest = Arc::downgrade(self.guest.as_ref()?);
        Some(Box::new(move || {
            if let Some(guest) = guest.upgrade() {
                guest.strike();
            }
        }))
    }

    fn teardown(mut self: Box<Self>) -> Vec<Error> {
        if self.environment.cancel.is_cancelled() {
            self.abort();
        }
        let (_, stopped) = self.stop();
        let mut failures: Vec<Error> = stopped.err().into_iter().collect();
        failures.extend(self.exported.teardown());
        failures
    }
}

fn read_lossy(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmount_that_panics_or_hangs_says_so_and_another_error_is_what_it_is() {
        let said = |kind: ErrorKind, end: Option<End>| {
            let error = Error::new(kind, "the unmount failed");
            end_of_unmount(error, || end, |error| error.while_doing("explained")).to_string()
        };
        let panicked = said(ErrorKind::Gone, Some(End::Panic("Segfault with no mm".into())));
        assert_eq!(panicked, "the kernel of the guest panicked: Segfault with no mm: the unmount failed");
        // Whether it answers anything else or not.
        for end in [None, Some(End::Hang)] {
            let hung = said(ErrorKind::TimedOut, end);
            assert!(hung.starts_with("the guest hangs"), "{hung}");
        }
        assert_eq!(said(ErrorKind::ReadOnly, None), "explained: the unmount failed");
    }
}
