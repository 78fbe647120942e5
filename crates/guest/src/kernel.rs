//! The kernel of a guest: for QEMU an image, and for both kinds of guests which of its modules a guest takes.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// What a guest uses, if it is a module: disk, line, file systems, and the checksums that these ask for by name.
const WANTED: [&str; 11] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "crc32c_generic",
    "crc32c_intel",
    "xxhash_generic",
    "sha256_generic",
    "blake2b_generic",
    "libcrc32c",
    "crc16",
    "crc32_generic",
];
/// Where installed kernels and their modules are.
const BOOT: &str = "/boot";
const MODULES: &str = "/lib/modules";
/// Where the modules of User Mode Linux are.
const MODULES_OF_UML: &str = "/usr/lib/uml/modules";
/// How an installed image begins, before its release.
const IMAGE: &str = "vmlinuz-";

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The image, as a boot loader would take it.
    pub image: PathBuf,
    /// The folder with its modules and `modules.dep`; `None` if all that is needed is built in.
    pub modules: Option<PathBuf>,
    /// The file system that is to be mounted, by its name.
    pub file_system: &'static str,
}

impl Kernel {
    /// The kernel in `image`, or else the newest that is installed here for which there are modules. Without `modules`, those
    /// that are installed for the release in the image's name are taken, if there are any.
    ///
    /// Fails with [`ErrorKind::Missing`] if there is none.
    pub fn find(image: Option<&Path>, modules: Option<&Path>, file_system: &'static str) -> Result<Self> {
        let image = match image {
            Some(image) => image.to_owned(),
            None => newest(Path::new(BOOT)).ok_or_else(|| {
                let context = "no kernel is installed in /boot: install one (Debian: linux-image-cloud-amd64), or \
                               name one with `kernel`";
                Error::new(ErrorKind::Missing, context)
            })?,
        };
        if !image.is_file() {
            let context = format!("{} is no file, and was to be the kernel of a guest", image.display());
            return Err(Error::new(ErrorKind::Missing, context));
        }
        let installed = || {
            let folder = Path::new(MODULES).join(release(&image)?);
            folder.join("modules.dep").is_file().then_some(folder)
        };
        let modules = modules.map(Path::to_owned).or_else(installed);
        if let Some(folder) = &modules
            && !folder.join("modules.dep").is_file()
        {
            let context = format!(
                "{} has no modules.dep: it is the folder of one release, such as /lib/modules/6.12.1, after depmod",
                folder.display()
            );
            return Err(Error::new(ErrorKind::Missing, context));
        }
        if let Some(folder) = &modules {
            check_file_system(folder, file_system)?;
        }
        Ok(Self { image, modules, file_system })
    }

    /// Its release, if the name of the image has it.
    pub(crate) fn release(&self) -> Option<&str> {
        release(&self.image)
    }

    /// Opens the image.
    pub(crate) fn open_image(&self) -> Result<File> {
        File::open(&self.image).doing(|| format!("opening {}, the kernel of a guest", self.image.display()))
    }

    /// The modules that a guest takes, as their files are, in the order in which they are to be loaded.
    pub(crate) fn modules(&self) -> Result<Vec<Vec<u8>>> {
        self.modules.as_deref().map_or_else(|| Ok(Vec::new()), |folder| modules_in(folder, self.file_system))
    }
}

/// The folder with the modules of a User Mode Linux of this release, if they are installed.
///
/// Fails with [`ErrorKind::Missing`] if they are, and the file system is neither among them nor built in.
pub(crate) fn modules_of_uml(release: Option<&str>, file_system: &str) -> Result<Option<PathBuf>> {
    let folder = release.map(|release| Path::new(MODULES_OF_UML).join(release.trim()));
    let folder = folder.filter(|folder| folder.join("modules.dep").is_file());
    if let Some(folder) = &folder {
        check_file_system(folder, file_system)?;
    }
    Ok(folder)
}

/// The modules in `folder` that a guest takes, as their files are, in the order in which they are to be loaded.
pub(crate) fn modules_in(folder: &Path, file_system: &str) -> Result<Vec<Vec<u8>>> {
    let index = folder.join("modules.dep");
    let text = std::fs::read_to_string(&index).doing(|| format!("reading {}", index.display()))?;
    let wanted: Vec<&str> = WANTED.into_iter().chain([file_system]).collect();
    let in_order = in_order(&text, &wanted);
    let read = |path: &&str| {
        let path = folder.join(path);
        std::fs::read(&path).doing(|| format!("reading {}, a module of a guest's kernel", path.display()))
    };
    in_order.iter().map(read).collect()
}

/// Ok if the kernel whose modules are in `folder` has the file system, or if nothing there says what is built in.
fn check_file_system(folder: &Path, file_system: &str) -> Result<()> {
    let listed = |name: &str| std::fs::read_to_string(folder.join(name));
    let (Ok(built_in), Ok(modules)) = (listed("modules.builtin"), listed("modules.dep")) else {
        return Ok(());
    };
    let paths = modules.lines().filter_map(|line| line.split_once(':')).map(|(path, _)| path);
    if built_in.lines().chain(paths).any(|path| name_of(path) == file_system) {
        return Ok(());
    }
    let context = format!(
        "the kernel of the guest has no file system {file_system}: it is neither built in nor among the modules in {}",
        folder.display()
    );
    Err(Error::new(ErrorKind::Missing, context))
}

/// The release in the name of an image.
fn release(image: &Path) -> Option<&str> {
    image.file_name()?.to_str()?.strip_prefix(IMAGE)
}

/// The image with the highest release in `boot`.
fn newest(boot: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(boot).ok()?.flatten();
    let images = entries.map(|entry| entry.path()).filter(|path| release(path).is_some());
    images.max_by_key(|path| release(path).map(numbers))
}

/// The numbers in a release, by which releases are compared.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Paths of `wanted` modules and of what they depend on, each after what it depends on. `index` is `modules.dep`: lines of a path, a
/// colon, and the paths of all that it depends on, of which the last is to be loaded first. What is not in it is built in, or not there.
fn in_order<'a>(index: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let lines: HashMap<String, (&str, &str)> = index
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (name_of(path), (path, needs)))
        .collect();
    let mut paths = Vec::new();
    for name in wanted {
        let Some((path, needs)) = lines.get(*name) else { continue };
        for path in needs.split_ascii_whitespace().rev().chain([*path]) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

/// The name of a module: that of its file without its endings, with underscores.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on_and_once() {
        let index = "kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz\n\
                     kernel/lib/libcrc32c.ko.xz:\n\
                     kernel/crypto/crc32c-intel.ko:\n\
                     kernel/fs/btrfs/btrfs.ko.xz: kernel/lib/raid6.ko.xz kernel/crypto/xor.ko.xz kernel/lib/libcrc32c.ko.xz\n";
        assert_eq!(
            in_order(index, &["virtio_blk", "crc32c_intel", "xfs", "btrfs"]),
            [
                "kernel/crypto/crc32c-intel.ko",
                "kernel/lib/libcrc32c.ko.xz",
                "kernel/fs/xfs/xfs.ko.xz",
                "kernel/crypto/xor.ko.xz",
                "kernel/lib/raid6.ko.xz",
                "kernel/fs/btrfs/btrfs.ko.xz"
            ]
        );
    }

    #[test]
    fn the_newest_kernel_is_the_one_with_the_highest_release() {
        let boot = tempfile::tempdir().expect("a folder");
        for name in
            ["vmlinuz-6.9.7-cloud-amd64", "vmlinuz-6.12.117+deb12-cloud-amd64", "initrd.img-6.99", "vmlinuz"]
        {
            std::fs::write(boot.path().join(name), []).expect("written");
        }
        let newest = newest(boot.path()).expect("there is one");
        assert_eq!(release(&newest), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!(super::newest(&boot.path().join("nowhere")), None);
    }

    #[test]
    fn a_file_system_that_a_kernel_lacks_is_known_before_it_starts() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("bzImage");
        std::fs::write(&image, []).expect("written");
        std::fs::write(folder.path().join("modules.dep"), "kernel/fs/f2fs/f2fs.ko.xz:\n").expect("written");
        let find = |name| Kernel::find(Some(&image), Some(folder.path()), name).map(drop);
        assert!(find("jfs").is_ok(), "nobody says what is built in");
        std::fs::write(folder.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").expect("written");
        assert!(find("ext4").is_ok() && find("f2fs").is_ok());
        let error = find("jfs").expect_err("neither");
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("has no file system jfs"), "{error}");
    }

    #[test]
    fn a_kernel_that_is_not_there_and_modules_without_an_index_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("bzImage");
        let error = Kernel::find(Some(&image), None, "ext4").expect_err("no file");
        assert!(error.to_string().contains("is no file"), "{error}");
        std::fs::write(&image, []).expect("written");
        let error = Kernel::find(Some(&image), Some(folder.path()), "ext4").expect_err("no index");
        assert!(error.to_string().contains("modules.dep"), "{error}");
        let kernel = Kernel::find(Some(&image), None, "ext4").expect("all is built in");
        assert_eq!((kernel.modules.as_deref(), kernel.modules().expect("none")), (None, Vec::new()));
    }
}
