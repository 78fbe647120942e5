//! What the kernel sees of a stack, as resources of a run: FUSE mounts, loop devices and ublk devices.
//!
//! Each says how it is found and removed from the record alone, without the objects that made it, as `rotproof clean`
//! needs it. How they are made is known in `rotproof_export`, which knows no runs.

mod fuse_mount;
mod loop_device;
mod mount;
mod named_fuse_mount;
mod ublk;

use rotproof_machine::registry::Kind;

pub use fuse_mount::FuseMount;
pub use loop_device::Loop;
pub use mount::Mount;
pub use named_fuse_mount::{NamedFuseMount, Serving};
pub use ublk::Ublk;

/// Every kind of resource that is known here.
pub static KINDS: [&Kind; 5] = [
    &fuse_mount::FUSE_MOUNT,
    &named_fuse_mount::NAMED_FUSE_MOUNT,
    &loop_device::LOOP,
    &ublk::UBLK,
    &mount::MOUNT,
];

#[cfg(test)]
mod tests {
    use rotproof_machine::registry::Resource;

    use super::*;

    #[test]
    fn what_is_gone_already_is_no_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("gone");
        let resources: [Box<dyn Resource>; 3] = [
            Box::new(FuseMount { path: path.clone() }),
            Box::new(Mount { path: path.clone(), filesystem: "ext4".into() }),
            Box::new(Loop { backing_file: path.clone() }),
        ];
        for resource in resources {
            assert!(!resource.exists().expect("asked"), "{resource}");
            resource.remove(None).expect("nothing to do");
        }
    }

    #[test]
    fn what_older_versions_have_left_on_record_is_read() {
        let said = [
            ("fuse_mount", r#"{"path":"/m"}"#, "the FUSE mount /m"),
            ("named_fuse_mount", r#"{"path":"/m"}"#, "the FUSE mount /m"),
            ("loop", r#"{"backing_file":"/m/disk"}"#, "the loop device over /m/disk"),
            ("ublk", r#"{"number":3,"owner":7}"#, "the ublk device 3"),
            ("mount", r#"{"path":"/m","filesystem":"xfs"}"#, "the xfs mount /m"),
        ];
        for (word, json, text) in said {
            let kind = KINDS.iter().find(|kind| kind.word == word).unwrap_or_else(|| panic!("{word}"));
            let value = serde_json::from_str(json).expect("JSON");
            let resource = (kind.read)(value).unwrap_or_else(|error| panic!("{word}: {error}"));
            assert_eq!(resource.to_string(), text);
            assert_eq!(
                resource.recorded().expect("JSON"),
                serde_json::from_str::<serde_json::Value>(json).expect("JSON")
            );
        }
    }
}
