//! How the kernel reaches the devices of the stack, where the subject is a block device or a file system on one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use rotproof_spec::{Path, Problems};

use crate::SubjectSpec;

/// What makes a block device of each device of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportSpec {
    /// A loop device over a file that FUSE serves.
    #[default]
    Loop,
    /// The kernel's driver for block devices that a program serves: Linux 6.5 or later.
    Ublk,
}

impl ExportSpec {
    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            ExportSpec::Loop => "loop",
            ExportSpec::Ublk => "ublk",
        }
    }

    /// Whether nobody has chosen.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Ok if this machine has what was chosen, for whoever asks before anything is made. Fails with
    /// [`ErrorKind::Missing`](rotproof_block::ErrorKind::Missing).
    pub fn check_chosen(self) -> rotproof_block::Result<()> {
        if self.is_default() { Ok(()) } else { crate::served::check_requirements(self) }
    }

    /// Reports an export that the subject has no use for.
    pub fn validate(self, subject: &SubjectSpec, path: &Path, problems: &mut Problems) {
        if self.is_default() || subject.takes_export() {
            return;
        }
        let message =
            format!("the subject {} takes no block device of this machine's kernel", subject.name());
        let help = match subject.machine() {
            Some(_) => "leave `export` out; how a machine reaches its disk is its own option `disk`",
            None => "leave `export` out, or take `device`, ext4, xfs or btrfs",
        };
        problems.add_with_help(path, message, help);
    }
}

impl SubjectSpec {
    /// Whether a block device of this machine's kernel lies between it and the stack.
    pub fn takes_export(&self) -> bool {
        match self.on_top() {
            SubjectSpec::Device | SubjectSpec::FileSystem(_) => true,
            SubjectSpec::Guard(guard) => guard.over.takes_export(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_refused_where_no_block_device_is_between() {
        for (yaml, help) in [
            ("device", None),
            ("xfs", None),
            ("{ guard: { over: ext4 } }", None),
            ("{ volume: { under: btrfs } }", None),
            ("raw", Some("or take `device`")),
            ("zfs", Some("or take `device`")),
            ("{ machine: { file_system: ext4 } }", Some("its own option `disk`")),
        ] {
            let subject: SubjectSpec = serde_saphyr::from_str(yaml).expect(yaml);
            let mut problems = Problems::default();
            ExportSpec::Ublk.validate(&subject, &Path::root().key("export"), &mut problems);
            let found = problems.into_iter().next().and_then(|problem| problem.help);
            assert_eq!(found.is_some(), help.is_some(), "{yaml}");
            assert!(found.unwrap_or_default().contains(help.unwrap_or_default()), "{yaml}");
            ExportSpec::Loop.validate(&subject, &Path::root(), &mut Problems::default());
        }
    }
}
