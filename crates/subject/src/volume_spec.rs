//! What a trial file says of the subject `volume`: the devices of the stack are the members of one volume.
//!
//! It is a word for a stack that ends with the device of that kind, so that the same stack can be put on trial below a volume and
//! below btrfs. Nothing else makes a volume for a trial.

use std::borrow::Cow;

use rotproof_layers::{DeviceSpec, Kind, Legs, StackSpec, VolumeChecksum, VolumeSpec, VolumeVersions};
use rotproof_spec::{Bytes, Path, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SubjectSpec;

/// How the devices of the stack are put together, and what stands on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumeSubjectSpec {
    /// Copies of everything: 1 to 3. So many devices in a row keep the same. Default 2.
    pub copies: u8,
    /// Bytes of a chunk of the stripe over the mirrors. Default 64KiB.
    pub chunk: Bytes,
    /// Which checksum. Default crc32c.
    pub checksum: VolumeChecksum,
    /// How long a member may take to answer. Default 500ms.
    pub patience: Span,
    /// Keep versions. Default: none are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<VolumeVersions>,
    /// What the volume is under, such as ext4. Default raw: the load works on the volume itself.
    pub under: Box<SubjectSpec>,
}

impl Default for VolumeSubjectSpec {
    /// As the device of the stack has it.
    fn default() -> Self {
        let VolumeSpec { copies, chunk, checksum, patience, versions, .. } =
            VolumeSpec::over(Legs::default());
        Self { copies, chunk, checksum, patience, versions, under: Box::default() }
    }
}

impl VolumeSubjectSpec {
    fn over(&self, legs: Legs) -> VolumeSpec {
        let Self { copies, chunk, checksum, patience, versions, under: _ } = *self;
        VolumeSpec { copies, chunk, checksum, patience, versions, ..VolumeSpec::over(legs) }
    }

    /// Reports what makes no sense over the devices of `stack`, which stands at `stack_path` and whose devices have these sizes,
    /// as far as they are known. `path` is where the subject stands.
    pub fn validate_over(
        &self,
        (stack, sizes): (&StackSpec, &[Option<u64>]),
        (path, stack_path): (&Path, &Path),
        problems: &mut Problems,
    ) {
        let (path, mut found) = (path.key(super::spec::VOLUME), Problems::default());
        self.over(stack.0.clone()).validate(sizes, &path, &mut found);
        let members = path.key("of");
        for problem in found {
            // Its members are the devices of the stack.
            let at = if problem.path == members { stack_path } else { &problem.path };
            match problem.help {
                Some(help) => problems.add_with_help(at, problem.message, help),
                None => problems.add(at, problem.message),
            }
        }
    }
}

impl SubjectSpec {
    /// What the load works on: the subject itself, or what stands on the volume.
    pub fn on_top(&self) -> &SubjectSpec {
        match self {
            SubjectSpec::Volume(volume) => &volume.under,
            other => other,
        }
    }

    /// The stack with what the subject makes of its devices: one volume, if it is that.
    pub fn whole_stack<'a>(&self, stack: &'a StackSpec) -> Cow<'a, StackSpec> {
        match self {
            SubjectSpec::Volume(volume) => {
                let volume = DeviceSpec::Volume(volume.over(stack.0.clone()));
                Cow::Owned(StackSpec::chain(vec![volume]))
            }
            _ => Cow::Borrowed(stack),
        }
    }

    /// The name in results: the word, and what stands on a volume.
    pub fn title(&self) -> String {
        match self {
            SubjectSpec::Volume(volume) if *volume.under != SubjectSpec::Raw => {
                format!("{} under {}", self.name(), volume.under.name())
            }
            _ => self.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(json: &str) -> StackSpec {
        serde_json::from_str(json).expect("a stack")
    }

    #[test]
    fn its_stack_is_the_one_that_could_have_been_written() {
        let legs = r#"{"a":[{"memory":{"size":"8MiB"}},"faults"],"b":[{"memory":{"size":"8MiB"}},"faults"]}"#;
        let written = stack(&format!(r#"[{{"volume":{{"of":{legs},"checksum":"xxh3"}}}}]"#));
        let subject: SubjectSpec =
            serde_saphyr::from_str("{ volume: { checksum: xxh3, under: ext4 } }").expect("a subject");
        let legs = stack(legs);
        assert_eq!(*subject.whole_stack(&legs), written);
        assert_eq!(subject.title(), "volume under ext4");
        assert_eq!(subject.on_top().name(), "ext4");
        // Faults act where the stack says, whoever puts its devices together.
        let sites = |stack: &StackSpec| stack.sites(&|_| None).0;
        assert_eq!(sites(&subject.whole_stack(&legs)), sites(&legs));
        assert_eq!(*SubjectSpec::Raw.whole_stack(&legs), legs);
    }

    #[test]
    fn members_that_do_not_fit_are_told_at_the_stack() {
        let (path, stack_path) = (Path::root().key("subject"), Path::root().key("stack"));
        for (yaml, place, part) in [
            ("volume", "stack", "1 devices do not make up mirrors of 2"),
            ("{ volume: { copies: 1 } }", "stack", "a member of 1048576 bytes"),
            ("{ volume: { copies: 4 } }", "subject.volume.copies", "4 copies"),
            ("{ volume: { copies: 1, chunk: 3000 } }", "subject.volume.chunk", "a chunk of 3000"),
        ] {
            let mut problems = Problems::default();
            let SubjectSpec::Volume(volume) = serde_saphyr::from_str(yaml).expect(yaml) else {
                panic!("{yaml} is a volume")
            };
            let one = stack(r#"[{"memory":{"size":"1MiB"}}]"#);
            volume.validate_over((&one, &[Some(1 << 20)]), (&path, &stack_path), &mut problems);
            let found = problems.into_iter().next().expect("a mistake");
            assert!(found.path.as_str() == place && found.message.contains(part), "{yaml}: {found:?}");
        }
    }
}
