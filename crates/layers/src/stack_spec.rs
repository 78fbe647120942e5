//! The description of a stack: a tree of named devices.
//!
//! A list is a chain of devices from bottom to top, the first a leaf or one that stands on several stacks. A map gives each of
//! several such devices a name. How that is read and written is in `stack_form`, what makes no sense in `stack_check`, and how
//! it is opened is the factory's.

use std::collections::HashSet;

use rotproof_fault::{SiteList, UNNAMED_SITE};
use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::Serialize;

use crate::device_spec::DeviceSpec;
use crate::faults::FaultsSpec;
use crate::stack_check::Check;
use crate::write_cache_spec::Ignores;

/// Devices bottom to top.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Chain(pub Vec<DeviceSpec>);

impl Chain {
    /// The device above which faults act where the stack names no place for any, by its position: the leaf, or the write cache
    /// that stands on it, without which a power cut would find nothing volatile. None for a chain that begins with several others.
    pub fn disk(&self) -> Option<usize> {
        self.0.first().filter(|device| device.is_leaf())?;
        let is_cache = |device: &&DeviceSpec| matches!(device, DeviceSpec::WriteCache(_));
        Some(self.0[1..].iter().take_while(is_cache).count())
    }
}

/// Several chains side by side, each with its name if they have names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Legs(pub Vec<(Option<String>, Chain)>);

/// What a trial file says of the stack: one chain, or several devices by their names.
#[derive(Clone, Debug, PartialEq)]
pub struct StackSpec(pub Legs);

impl Default for StackSpec {
    /// One device of nothing, which is what a file without a stack has.
    fn default() -> Self {
        Self::chain(Vec::new())
    }
}

impl StackSpec {
    /// One device.
    pub fn chain(devices: Vec<DeviceSpec>) -> Self {
        Self(Legs(vec![(None, Chain(devices))]))
    }

    /// The one device that the stack is; `None` if it has several.
    pub fn only(&self) -> Option<&Chain> {
        match self.0.0.as_slice() {
            [(_, only)] => Some(only),
            _ => None,
        }
    }

    /// The names of its devices, if they have names.
    pub fn names(&self) -> Vec<&str> {
        self.0.0.iter().filter_map(|(name, _)| name.as_deref()).collect()
    }

    /// How many devices it is to whoever uses it.
    pub fn count(&self) -> usize {
        self.0.0.len()
    }

    /// All devices of the tree, each after those that it stands on.
    pub fn devices(&self) -> Vec<&DeviceSpec> {
        fn gather<'a>(legs: &'a Legs, all: &mut Vec<&'a DeviceSpec>) {
            for device in legs.0.iter().flat_map(|(_, chain)| &chain.0) {
                device.legs().into_iter().for_each(|legs| gather(legs, all));
                all.push(device);
            }
        }
        let mut all = Vec::new();
        gather(&self.0, &mut all);
        all
    }

    /// All devices of the tree, each with the place where it stands in a document in which the stack stands at `path`.
    pub fn places(&self, path: &Path) -> Vec<(Path, &DeviceSpec)> {
        fn gather<'a>(chain: &'a Chain, path: &Path, all: &mut Vec<(Path, &'a DeviceSpec)>) {
            for (index, device) in chain.0.iter().enumerate() {
                let path = path.index(index);
                for (leg, (name, chain)) in device.legs().map_or(&[][..], |legs| &legs.0).iter().enumerate() {
                    let of = path.key(device.word()).key("of");
                    gather(chain, &name.as_ref().map_or_else(|| of.index(leg), |name| of.key(name)), all);
                }
                all.push((path, device));
            }
        }
        let mut all = Vec::new();
        for (name, chain) in &self.0.0 {
            gather(chain, &name.as_ref().map_or_else(|| path.clone(), |name| path.key(name)), &mut all);
        }
        all
    }

    /// All leaves of the tree.
    pub fn leaves(&self) -> impl Iterator<Item = &DeviceSpec> {
        self.devices().into_iter().filter(|device| device.is_leaf())
    }

    /// The only leaf; `None` if there are several.
    pub fn leaf(&self) -> Option<&DeviceSpec> {
        let mut leaves = self.leaves();
        leaves.next().filter(|_| leaves.next().is_none())
    }

    /// Whether anything in it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.devices().iter().any(|device| matches!(device, DeviceSpec::Record(_)))
    }

    /// Whether the device that it is is recorded as it is laid out on top: above the recorder there is nothing that would
    /// keep data elsewhere or in another form.
    pub fn ends_recorded(&self) -> bool {
        let Some(chain) = self.only() else { return false };
        let recorded = chain.0.iter().rposition(|device| matches!(device, DeviceSpec::Record(_)));
        recorded.is_some_and(|at| {
            chain.0[at + 1..].iter().all(|device| {
                matches!(device, DeviceSpec::WriteCache(_) | DeviceSpec::Stats(_) | DeviceSpec::Faults(_))
            })
        })
    }

    /// Whether a cache that ignores what it is told stands anywhere but above the topmost recording, which then does not show that.
    pub fn lies_below_recording(&self) -> bool {
        let lies = |device: &&DeviceSpec| matches!(device, DeviceSpec::WriteCache(cache) if cache.ignores != Ignores::Nothing);
        let above = self.only().map_or(0, |chain| {
            let recorded = chain.0.iter().rposition(|device| matches!(device, DeviceSpec::Record(_)));
            chain.0[recorded.map_or(0, |at| at + 1)..].iter().filter(lies).count()
        });
        self.devices().iter().filter(|device| lies(device)).count() > above
    }

    /// Whether it names a place where faults act.
    pub fn has_site(&self) -> bool {
        self.devices().iter().any(|device| matches!(device, DeviceSpec::Faults(_)))
    }

    /// Whether several blocks of a device may lie in one block of a leaf.
    pub fn shares_blocks(&self) -> bool {
        self.devices().iter().any(|device| device.shares_blocks())
    }

    /// The sizes in bytes of the devices, as far as they are known: `measure` is asked for leaves that do not tell, such as
    /// files that are there.
    pub fn sizes(&self, measure: &dyn Fn(&DeviceSpec) -> Option<u64>) -> Vec<Option<u64>> {
        self.measured(measure).0
    }

    /// The places where faults act, with the sizes of their devices as far as they are known. Where the description names
    /// none, that is above each [disk](Chain::disk).
    pub fn sites(&self, measure: &dyn Fn(&DeviceSpec) -> Option<u64>) -> SiteList {
        self.measured(measure).1
    }

    fn measured(&self, measure: &dyn Fn(&DeviceSpec) -> Option<u64>) -> (Vec<Option<u64>>, SiteList) {
        let mut survey =
            Survey { is_implicit: !self.has_site(), measure, names: SiteNames::of(self), sites: Vec::new() };
        let sizes = self.0.0.iter().map(|(name, chain)| survey.chain(name.as_deref(), chain)).collect();
        (sizes, SiteList(survey.sites))
    }

    /// Whether what lies at an offset of a device of the stack lies at one place only of those where faults act, which can be
    /// worked out.
    pub fn keeps_offsets(&self) -> bool {
        /// Whether it does, and whether there is such a place.
        fn keeps(chain: &Chain, is_implicit: bool) -> (bool, bool) {
            let (mut keeps_all, mut has_site) = (true, false);
            for (number, device) in chain.0.iter().enumerate() {
                for (_, leg) in device.legs().map_or(&[][..], |legs| &legs.0) {
                    let (keeps, has) = keeps(leg, is_implicit);
                    keeps_all &= keeps;
                    has_site |= has;
                }
                keeps_all &= !has_site || device.keeps_places();
                has_site |=
                    matches!(device, DeviceSpec::Faults(_)) || is_implicit && chain.disk() == Some(number);
            }
            (keeps_all, has_site)
        }
        let is_implicit = !self.has_site();
        self.0.0.iter().all(|(_, chain)| keeps(chain, is_implicit).0)
    }

    /// Whether some device keeps everything more than once, so that nobody may see what becomes of one copy.
    pub fn keeps_copies(&self) -> bool {
        self.devices().iter().any(|device| device.keeps_copies())
    }

    /// Whether it is one device on one leaf.
    pub fn is_one_chain(&self) -> bool {
        self.count() == 1 && self.devices().iter().all(|device| device.legs().is_none())
    }

    /// Reports everything that makes no sense. `path` is where the stack stands in the document.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        Check::new(problems).stack(self, path);
    }
}

/// Gives places for faults their names, in the order of the description.
pub(crate) struct SiteNames {
    taken: HashSet<String>,
}

impl SiteNames {
    /// Knows the names that places are given.
    pub(crate) fn of(stack: &StackSpec) -> Self {
        let given = stack.devices().into_iter().filter_map(|device| match device {
            DeviceSpec::Faults(FaultsSpec { name }) => name.clone(),
            _ => None,
        });
        Self { taken: given.collect() }
    }

    /// The name of the next place: the one it is given, or that of its chain, or the first that is free.
    pub(crate) fn next(&mut self, given: Option<&str>, chain: Option<&str>) -> String {
        if let Some(given) = given {
            return given.to_owned();
        }
        let numbered = (2..).map(|number| format!("{UNNAMED_SITE}-{number}"));
        let of_chain = chain.map(ToOwned::to_owned);
        let mut names = of_chain.into_iter().chain([UNNAMED_SITE.to_owned()]).chain(numbered);
        names.find(|name| self.taken.insert(name.clone())).unwrap_or_default()
    }
}

/// Sizes and places of a tree.
struct Survey<'a> {
    is_implicit: bool,
    measure: &'a dyn Fn(&DeviceSpec) -> Option<u64>,
    names: SiteNames,
    sites: Vec<(String, Option<u64>)>,
}

impl Survey<'_> {
    fn chain(&mut self, name: Option<&str>, chain: &Chain) -> Option<u64> {
        let mut size = None;
        for (number, device) in chain.0.iter().enumerate() {
            let below = match device.legs() {
                Some(legs) => legs.0.iter().map(|(name, leg)| self.chain(name.as_deref(), leg)).collect(),
                None => vec![size],
            };
            size = device.size(&below);
            if device.is_leaf() {
                size = size.or_else(|| (self.measure)(device));
            }
            let given = match device {
                DeviceSpec::Faults(FaultsSpec { name }) => name.as_deref(),
                _ if self.is_implicit && chain.disk() == Some(number) => None,
                _ => continue,
            };
            let name = self.names.next(given, name);
            self.sites.push((name, size));
        }
        size
    }
}

/// The kernel counts file offsets in signed 64-bit numbers; this is far below, so that no sum of an offset and a
/// length can overflow.
pub(crate) const SIZE_MAX: u64 = 1 << 60;

pub(crate) fn validate_size(size: Bytes, block_size: u64, path: &Path, problems: &mut Problems) {
    let Bytes(bytes) = size;
    if bytes == 0 {
        problems.add(&path.key("size"), "a device without any block");
    } else if bytes > SIZE_MAX {
        problems
            .add(&path.key("size"), format!("{size} is more than a device can have ({})", Bytes(SIZE_MAX)));
    } else if bytes < block_size {
        problems.add_with_help(
            &path.key("size"),
            format!(
                "{} less than one block of {block_size} bytes",
                if bytes == 1 { "1 byte is".into() } else { format!("{bytes} bytes are") }
            ),
            format!("a number alone is bytes; did you mean {bytes}MiB or {bytes}GiB?"),
        );
    } else if !bytes.is_multiple_of(block_size) {
        problems.add_with_help(
            &path.key("size"),
            format!("{bytes} bytes are no multiple of the block of {block_size} bytes"),
            format!("write {} or {}", bytes - bytes % block_size, bytes.next_multiple_of(block_size)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> StackSpec {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    fn problems(json: &str) -> Vec<String> {
        let mut problems = Problems::default();
        spec(json).validate(&Path::root().key("stack"), &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn a_stack_survives_its_text_with_every_default_filled_in() {
        for (short, long) in [
            (
                r#"[{"memory":{"size":"256MiB"}},"faults",{"stats":{"name":"below_fs"}}]"#,
                r#"[{"memory":{"size":"256MiB","block_size":"512"}},"faults",{"stats":{"name":"below_fs"}}]"#,
            ),
            (
                r#"[{"file":{"path":"disk.img"}},"stats"]"#,
                r#"[{"file":{"path":"disk.img","direct":true}},{"stats":{}}]"#,
            ),
            (
                r#"[{"memory":{"size":"1GiB"}},"dedup"]"#,
                r#"[{"memory":{"size":"1GiB","block_size":"512"}},{"dedup":{"verify":false}}]"#,
            ),
            (
                r#"[{"disk":{"profile":"hdd","size":"1GiB","seek_max":"8ms"}}]"#,
                r#"[{"disk":{"profile":"hdd","size":"1GiB","seek_max":"8ms"}}]"#,
            ),
        ] {
            let stack = spec(short);
            assert_eq!(serde_json::to_string(&stack).expect("plain data"), long);
            assert_eq!(spec(long), stack);
            assert_eq!(problems(short), [] as [String; 0]);
        }
    }

    fn sizes(spec: &StackSpec, leaf: Option<u64>) -> (Option<u64>, Option<u64>) {
        let measure = |_: &DeviceSpec| leaf;
        (spec.sizes(&measure)[0], spec.sites(&measure).0[0].1)
    }

    #[test]
    fn sizes_are_known_where_leaves_tell_them_or_can_be_measured() {
        const MIB: u64 = 1 << 20;
        for (layers, top, faulty, keeps_offsets) in [
            (r#""stats""#, Some(MIB), Some(MIB), true),
            (r#""dedup""#, Some(MIB), Some(MIB), false),
            (r#""faults",{"dedup":{"size":"4MiB"}},"stats""#, Some(4 * MIB), Some(MIB), false),
            (r#"{"dedup":{"size":"4MiB"}},"stats","faults""#, Some(4 * MIB), Some(4 * MIB), true),
        ] {
            for leaf in [r#"{"memory":{"size":"1MiB"}}"#, r#"{"disk":{"profile":"ssd","size":"1MiB"}}"#] {
                let spec = spec(&format!("[{leaf},{layers}]"));
                assert_eq!(sizes(&spec, None), (top, faulty), "{layers}");
                assert_eq!(spec.keeps_offsets(), keeps_offsets, "{layers}");
            }
        }
        let file = spec(r#"[{"file":{"path":"x"}},"dedup"]"#);
        assert_eq!(sizes(&file, None), (None, None));
        assert_eq!(sizes(&file, Some(4096 * 3 + 512)), (Some(4096 * 3), Some(4096 * 3 + 512)));
        assert_eq!(sizes(&spec(r#"[{"file":{"path":"x","size":"1MiB"}}]"#), Some(7)).0, Some(MIB));
    }

    #[test]
    fn a_tree_is_written_as_lists_or_by_names() {
        for (json, places, keeps_offsets) in [
            (
                r#"{"left":[{"memory":{"size":"1048576","block_size":"512"}},"faults"],"right":[{"memory":{"size":"1048576","block_size":"512"}},"faults"]}"#,
                &["left", "right"][..],
                true,
            ),
            (
                r#"[{"concat":{"of":[[{"memory":{"size":"1048576","block_size":"512"}},"faults"],[{"memory":{"size":"1048576","block_size":"512"}},"faults"]]}},"faults"]"#,
                &["faults", "faults-2", "faults-3"],
                true,
            ),
            (
                r#"[{"concat":{"of":{"a":[{"memory":{"size":"1048576","block_size":"512"}},"faults",{"dedup":{"verify":false}}],"b":[{"memory":{"size":"1048576","block_size":"512"}}]}}}]"#,
                &["a"],
                false,
            ),
        ] {
            let stack = spec(json);
            assert_eq!(problems(json), [""; 0], "{json}");
            let written = serde_json::to_string(&stack).expect("plain data");
            assert_eq!(spec(&written), stack);
            assert_eq!(written.replace("1MiB", "1048576"), json);
            let names: Vec<String> = stack.sites(&|_| None).0.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, places);
            assert_eq!(stack.keeps_offsets(), keeps_offsets);
        }
    }

    #[test]
    fn what_makes_no_sense_is_reported_at_its_place() {
        for (json, place, part) in [
            ("[]", "stack", "empty"),
            (r#"["faults"]"#, "stack[0]", "begins with a leaf"),
            (r#"[{"memory":{"size":"1MiB"}},{"file":{"path":"x"}}]"#, "stack[1]", "only be at the bottom"),
            (
                r#"[{"memory":{"size":"1MiB"}},{"faults":{"name":"a"}},{"faults":{"name":"a"}}]"#,
                "stack[2].faults.name",
                "called `a`",
            ),
            (r#"[{"memory":{"size":"1MiB"}},{"faults":{"name":" "}}]"#, "stack[1].faults.name", "empty"),
            (r#"[{"mirror":{"of":[[{"memory":{"size":"1MiB"}}]]}}]"#, "stack[0].mirror.of", "a mirror of 1"),
            (
                r#"[{"mirror":{"of":[[{"memory":{"size":512}}],[{"memory":{"size":512}}]],"patience":"0s"}}]"#,
                "stack[0].mirror.patience",
                "no time at all",
            ),
            (r#"[{"stripe":{"of":[]}}]"#, "stack[0].stripe.of", "no device"),
            (
                r#"[{"stripe":{"of":[[{"memory":{"size":"1MiB"}}]],"chunk":"96KiB"}}]"#,
                "stack[0].stripe.chunk",
                "a chunk of 98304",
            ),
            (
                r#"[{"stripe":{"of":[[{"memory":{"size":"32KiB"}}]]}}]"#,
                "stack[0].stripe.of",
                "no whole chunk",
            ),
            (r#"[{"concat":{"of":[]}}]"#, "stack[0].concat.of", "no device"),
            (r#"[{"concat":{"of":[["faults"]]}}]"#, "stack[0].concat.of[0][0]", "begins with a leaf"),
            (r#"{"a b":[{"memory":{"size":"1MiB"}}]}"#, "stack.a b", "no name for a device"),
            (r#"{"a":[]}"#, "stack.a", "empty"),
            ("{}", "stack", "no device"),
            (r#"[{"memory":{"size":0}}]"#, "stack[0].memory.size", "without any block"),
            (r#"[{"memory":{"size":1000}}]"#, "stack[0].memory.size", "no multiple"),
            (r#"[{"memory":{"size":64}}]"#, "stack[0].memory.size", "less than one block"),
            (r#"[{"memory":{"size":18446744073709551615}}]"#, "stack[0].memory.size", "more than a device"),
            (
                r#"[{"memory":{"size":"1MiB","block_size":1000}}]"#,
                "stack[0].memory.block_size",
                "must be 512",
            ),
            (
                r#"[{"memory":{"size":"1MiB","block_size":8192}}]"#,
                "stack[0].memory.block_size",
                "must be 512",
            ),
            (r#"[{"memory":{"size":512,"block_size":4096}}]"#, "stack[0].memory.size", "less than one"),
            (r#"[{"file":{"path":""}}]"#, "stack[0].file.path", "empty"),
            (
                r#"[{"memory":{"size":512}},{"stats":{"name":"a"}},{"stats":{"name":"a"}}]"#,
                "stack[2].stats.name",
                "called `a`",
            ),
            (r#"["dedup"]"#, "stack[0]", "begins with a leaf"),
            (r#"[{"memory":{"size":"1MiB"}},"dedup","stats","dedup"]"#, "stack[3]", "entry 2"),
            (r#"[{"memory":{"size":512}},"dedup"]"#, "stack[1].dedup", "needs 4096"),
            (r#"[{"file":{"path":"x","size":"9TiB"}},"dedup"]"#, "stack[1].dedup", "can map"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":0}}]"#, "stack[1].dedup.size", "without any"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":5000}}]"#, "stack[1].dedup.size", "no multiple"),
            (r#"[{"memory":{"size":"1MiB"}},{"dedup":{"size":"9TiB"}}]"#, "stack[1].dedup.size", "can map"),
        ] {
            let found = problems(json);
            assert_eq!(found.len(), 1, "{json}: {found:?}");
            assert!(
                found[0].starts_with(&format!("{place}: ")) && found[0].contains(part),
                "{json}: {found:?}"
            );
        }
    }

    #[test]
    fn a_word_that_needs_more_or_does_not_exist_is_explained() {
        let complaint = |json| serde_json::from_str::<StackSpec>(json).expect_err(json).to_string();
        assert!(complaint(r#"["memory"]"#).contains("{ memory: { size: 256MiB } }"));
        assert!(complaint(r#"[{"faults": 3}]"#).contains("invalid type"));
        assert!(complaint(r#"{"a":[{"memory":{"size":"1MiB"}}],"a":[]}"#).contains("there twice"));
        assert!(complaint(r#"["fautls"]"#).contains("unknown variant"));
        assert!(complaint(r#"[{"memory": {"sise": 3}}]"#).contains("unknown field"));
    }
}
