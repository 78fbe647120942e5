//! The control device of the ublk driver: makes, starts, stops and removes devices.
//!
//! Every command is one entry of a ring of its own and is waited for, but not for ever.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rotproof_block::{Error, ErrorKind, Result};

use super::wire::{self, DEVICE_RECORD_BYTES, DeviceRecord, FLAGS, PARAMETER_BYTES, Parameters, control};
use crate::system::open;

const PATH: &str = "/dev/ublk-control";
/// How long the driver may take for a command. Starting and stopping wait for requests.
const PATIENCE: Duration = Duration::from_secs(20);
/// What the driver says of commands that it does not know: an errno of the kernel's own.
const ENOTSUPP: i32 = 524;
/// A command that names no device.
const ANY: u32 = u32::MAX;

/// The control device, opened.
pub(super) struct Control {
    file: OwnedFd,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Fails with [`ErrorKind::Missing`] where the kernel has no ublk, or not to root only.
    pub(super) fn open() -> Result<Self> {
        let path = Path::new(PATH);
        if !path.exists() {
            let message = format!(
                "{PATH} does not exist, so the kernel has no ublk (CONFIG_BLK_DEV_UBLK, Linux 6.5 or later); try \
                 `modprobe ublk_drv`, or another way to offer the stack, such as a loop device"
            );
            return Err(Error::new(ErrorKind::Missing, message));
        }
        let file = open(path, libc::O_RDWR).map_err(|error| match error.kind() {
            ErrorKind::Refused | ErrorKind::Os(libc::EACCES | libc::EPERM) => {
                Error::new(ErrorKind::Missing, "ublk needs root; run with sudo").caused_by(error)
            }
            _ => error,
        })?;
        let ring = IoUring::builder().build(2).map_err(|error| {
            Error::new(ErrorKind::Missing, "this machine offers no io_uring, which ublk needs")
                .caused_by(error)
        })?;
        Ok(Self { file, ring })
    }

    /// Fails with [`ErrorKind::Missing`] if the driver is too old.
    pub(super) fn check_features(&mut self) -> Result<()> {
        let mut features = [0; 8];
        let asked =
            self.command(control::GET_FEATURES, ANY, Some(&mut features), 0, "asking for its features");
        match asked {
            Ok(()) if u64::from_ne_bytes(features) & FLAGS == FLAGS => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Missing,
                "the kernel's ublk is too old: it lacks recovery or copying by the server (Linux 6.5 has both)",
            )),
        }
    }

    /// Makes a device; the driver may give it fewer queues and less depth. Fails with `EEXIST` if the number is taken.
    pub(super) fn add(&mut self, record: DeviceRecord) -> Result<DeviceRecord> {
        let mut bytes = record.to_bytes();
        self.command(control::ADD_DEV, record.number, Some(&mut bytes), 0, "adding it")?;
        Ok(DeviceRecord::from_bytes(&bytes))
    }

    pub(super) fn set_parameters(&mut self, number: u32, parameters: Parameters) -> Result<()> {
        let mut bytes = parameters.to_bytes();
        self.command(control::SET_PARAMS, number, Some(&mut bytes), 0, "describing the disk")
    }

    /// Size in bytes, and size of a block.
    pub(super) fn geometry(&mut self, number: u32) -> Result<(u64, u32)> {
        let mut bytes = [0; PARAMETER_BYTES];
        bytes[..4].copy_from_slice(&(PARAMETER_BYTES as u32).to_ne_bytes());
        self.command(control::GET_PARAMS, number, Some(&mut bytes), 0, "asking what disk it is")?;
        Ok(Parameters::geometry(&bytes))
    }

    /// What the driver says of a device; none if there is no such device.
    pub(super) fn find(&mut self, number: u32) -> Result<Option<DeviceRecord>> {
        let mut bytes = [0; DEVICE_RECORD_BYTES];
        match self.command(control::GET_DEV_INFO, number, Some(&mut bytes), 0, "asking for it") {
            Ok(()) => Ok(Some(DeviceRecord::from_bytes(&bytes))),
            Err(error) if error.kind() == ErrorKind::Gone || error.kind() == ErrorKind::Os(libc::ENODEV) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the disk appear, once every queue waits for requests.
    pub(super) fn start(&mut self, number: u32) -> Result<()> {
        self.command(control::START_DEV, number, None, std::process::id().into(), "starting it")
    }

    /// Takes the disk away: what was asked for is completed, and every queue is told that there will be no more.
    pub(super) fn stop(&mut self, number: u32) -> Result<()> {
        self.command(control::STOP_DEV, number, None, 0, "stopping it")
    }

    /// Removes a device that has been stopped. Its number is free when the last program that has the disk open closes it,
    /// for which kernels before 6.9 wait.
    pub(super) fn delete(&mut self, number: u32) -> Result<()> {
        match self.command(control::DEL_DEV_ASYNC, number, None, 0, "removing it") {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Os(ENOTSUPP)) => {
                self.command(control::DEL_DEV, number, None, 0, "removing it")
            }
            result => result,
        }
    }

    /// The device of a dead server gets queues again.
    pub(super) fn begin_recovery(&mut self, number: u32) -> Result<()> {
        self.command(control::START_USER_RECOVERY, number, None, 0, "taking it over")
    }

    /// Goes on with what waits, once every queue waits for requests.
    pub(super) fn end_recovery(&mut self, number: u32) -> Result<()> {
        let pid = std::process::id().into();
        self.command(control::END_USER_RECOVERY, number, None, pid, "going on with it")
    }

    fn command(
        &mut self,
        command: u32,
        device: u32,
        buffer: Option<&mut [u8]>,
        data: u64,
        what: &str,
    ) -> Result<()> {
        let doing =
            || if device == ANY { format!("ublk: {what}") } else { format!("ublk device {device}: {what}") };
        // The driver writes there until the command completes; if it does not, the memory is never freed.
        let length = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let mut held: Box<[u8]> = buffer.as_ref().map_or(Box::default(), |buffer| (**buffer).into());
        let address = if length == 0 { 0 } else { held.as_mut_ptr() as u64 };
        let length = u16::try_from(length).expect("the structures are short");
        let bytes = wire::control_command(device, address, length, data);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the entry names the memory held above and the file of the control device, which outlive it.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| Error::new(ErrorKind::Internal, "the ring for ublk's commands is full"))?;
        let limit = Timespec::from(PATIENCE);
        let answer = loop {
            let waited = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit));
            if let Some(completion) = self.ring.completion().next() {
                break completion.result();
            }
            match waited.as_ref().map_err(std::io::Error::raw_os_error) {
                Ok(_) | Err(Some(libc::EINTR)) => {}
                Err(_) => {
                    std::mem::forget(held);
                    let message = format!("{}: the kernel does not answer", doing());
                    return Err(Error::new(ErrorKind::TimedOut, message));
                }
            }
        };
        if answer < 0 {
            return Err(Error::from_errno(-answer, doing()));
        }
        if let Some(buffer) = buffer {
            buffer.copy_from_slice(&held);
        }
        Ok(())
    }
}
