//! What a subject needs of the machine, asked for before anything is created.

use rotproof_block::error::IoContext;
use rotproof_block::{DeviceInfo, Error, ErrorKind, Result};
use rotproof_machine::{Cancel, Program};
use rotproof_spec::Bytes;

use crate::mkfs::Recipe;
use crate::{ExportSpec, FileSystem, SubjectSpec};

/// Ok if this machine can make the subject on such a device. Fails with [`ErrorKind::Missing`] and a text that says
/// what to install or how to get the right, or with [`ErrorKind::Invalid`] if the device is too small.
pub fn check_requirements(spec: &SubjectSpec, export: ExportSpec, info: &DeviceInfo) -> Result<()> {
    let spec = spec.on_top();
    let missing = |what: String| Err(Error::new(ErrorKind::Missing, what));
    if *spec == SubjectSpec::Fat && info.read_only {
        return Err(Error::new(
            ErrorKind::Invalid,
            "no file system can be made on a stack that is read-only; fat needs to write",
        ));
    }
    if spec.is_in_process() {
        return Ok(());
    }
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return missing(format!(
            "the subject {} needs root, to make a block device{}; run with sudo, or take `subject: raw` or `subject: fat`",
            spec.name(),
            if spec.is_mounted() { " and to mount a file system" } else { "" }
        ));
    }
    let export = if spec.takes_export() { export } else { ExportSpec::Loop };
    crate::served::check_requirements(export)?;
    if spec.zfs().is_some() {
        rotproof_zfs::check_requirements()?;
        return check_device(spec.name(), crate::zfs_spec::DEVICE_SIZE_MIN, info);
    }
    let is_machine = spec.machine().is_some();
    if let Some(machine) = spec.machine() {
        machine.check_requirements()?;
    }
    let Some(spec) = spec.file_system() else { return Ok(()) };
    let recipe = Recipe::of(spec.kind);
    if !spec.existing {
        Program::find(recipe.program, recipe.package)?;
    }
    if !is_machine && !kernel_knows(spec.kind)? {
        return missing(format!(
            "the kernel has no file system {}: neither built in nor as a module that `modprobe {0}` could load",
            spec.kind
        ));
    }
    let size_min = if spec.existing { Bytes(0) } else { spec.kind.device_size_min() };
    check_device(spec.kind.name(), size_min, info)
}

/// Whether the device is large enough, and can be written.
fn check_device(name: &str, size_min: Bytes, info: &DeviceInfo) -> Result<()> {
    let what = if info.size < size_min.0 {
        format!("{name} needs a device of at least {size_min}, but the stack has {}", Bytes(info.size))
    } else if info.read_only {
        format!("no load can work on a stack that is read-only; {name} needs to write")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, what))
}

fn kernel_knows(kind: FileSystem) -> Result<bool> {
    let is_listed = || -> Result<bool> {
        let list =
            std::fs::read_to_string("/proc/filesystems").doing(|| "reading /proc/filesystems".into())?;
        Ok(list.lines().any(|line| line.trim_start_matches("nodev").trim() == kind.name()))
    };
    if is_listed()? {
        return Ok(true);
    }
    // As a module it is listed only once it is loaded. Without modprobe there are no modules.
    let Ok(modprobe) = Program::find("modprobe", "kmod") else { return Ok(false) };
    let loaded = modprobe.start(["--quiet", kind.name()]).and_then(|running| running.wait(&Cancel::new()));
    Ok(loaded.is_ok() && is_listed()?)
}

#[cfg(test)]
mod tests {
    use rotproof_block::Features;

    use super::*;

    fn info(size: u64) -> DeviceInfo {
        let features = Features { flush: true, fua: false, discard: false, write_zeroes: false };
        DeviceInfo { size, block_size: 512, atomic_write_bytes: 512, read_only: false, features }
    }

    #[test]
    fn the_stack_itself_needs_nothing() {
        check_requirements(&SubjectSpec::Raw, ExportSpec::Loop, &info(4096)).expect("nothing is needed");
        check_requirements(&SubjectSpec::Fat, ExportSpec::Loop, &info(1 << 20)).expect("nothing is needed");
    }

    #[test]
    fn fat_needs_to_write() {
        let read_only = DeviceInfo { read_only: true, ..info(1 << 20) };
        let error =
            check_requirements(&SubjectSpec::Fat, ExportSpec::Loop, &read_only).expect_err("it cannot");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
