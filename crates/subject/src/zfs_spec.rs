//! What a trial file says of the subject `zfs`: properties of the pool and of its file system.

use rotproof_spec::{Bytes, Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The smallest device that makes sense: `zpool create` (0.7.0) refuses less.
pub(crate) const DEVICE_SIZE_MIN: Bytes = Bytes(64 << 20);

/// A pool of ZFS by `zfs-fuse`, on one device, or on several as a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ZfsSpec {
    /// Properties of the file system, one each: `["recordsize=4K", "copies=2", "compression=on", "checksum=sha256"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
    /// Properties of the pool, one each: `["failmode=wait"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<String>,
}

/// What is said of the pool that may be said otherwise: a block of the load is one of the device, and what cannot be reached is an error
/// instead of a wait without end.
pub(crate) const POOL_DEFAULTS: [&str; 2] = ["ashift=12", "failmode=continue"];
/// The same of the file system: what is only read is not written to.
pub(crate) const FILE_SYSTEM_DEFAULTS: [&str; 1] = ["atime=off"];
/// What is Rotproof's to say.
const RESERVED: [&str; 4] = ["mountpoint", "canmount", "cachefile", "altroot"];

impl ZfsSpec {
    /// Whether what is stored may have another form than what was written.
    pub(crate) fn compresses(&self) -> bool {
        self.properties.iter().any(|property| {
            property.split_once('=').is_some_and(|(name, value)| name == "compression" && value != "off")
        })
    }

    /// Reports options that cannot be what was meant.
    pub(crate) fn validate(&self, path: &Path, problems: &mut Problems) {
        for (key, list) in [("properties", &self.properties), ("pool", &self.pool)] {
            for (index, property) in list.iter().enumerate() {
                let place = path.key(key).index(index);
                match property.split_once('=') {
                    Some((name, value))
                        if !name.is_empty() && !value.is_empty() && !property.contains('\0') =>
                    {
                        if RESERVED.contains(&name) {
                            problems.add(&place, format!("where a pool of a trial is mounted and known is not yours to say: `{name}`"));
                        }
                    }
                    _ => problems.add_with_help(
                        &place,
                        format!("`{property}` is no property"),
                        "write a name and a value, such as recordsize=4K",
                    ),
                }
            }
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> Vec<String> {
        self.pool
            .iter()
            .map(|property| format!("pool {property}"))
            .chain(self.properties.iter().cloned())
            .collect()
    }
}

/// Defaults that `given` does not say otherwise, and then what is given.
pub(crate) fn with_defaults(defaults: &[&str], given: &[String]) -> Vec<String> {
    let name = |property: &str| property.split('=').next().unwrap_or_default().to_owned();
    let is_given = |default: &&&str| given.iter().any(|property| name(property) == name(default));
    let kept = defaults.iter().filter(|default| !is_given(default)).map(|&default| default.to_owned());
    kept.chain(given.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn what_is_given_replaces_the_default() {
        assert_eq!(with_defaults(&POOL_DEFAULTS, &[]), POOL_DEFAULTS);
        assert_eq!(with_defaults(&POOL_DEFAULTS, &words(&["failmode=wait"])), ["ashift=12", "failmode=wait"]);
    }

    #[test]
    fn properties_have_a_name_and_a_value_and_some_are_not_free() {
        let found = |properties: &[&str]| {
            let mut problems = Problems::default();
            let spec = ZfsSpec { properties: words(properties), pool: Vec::new() };
            spec.validate(&Path::root().key("zfs"), &mut problems);
            problems
                .iter()
                .map(|problem| (problem.path.to_string(), problem.message.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&["recordsize=4K", "copies=2"]), []);
        for (property, part) in
            [("copies", "is no property"), ("=2", "is no property"), ("mountpoint=/mnt", "not yours to say")]
        {
            let found = found(&["atime=on", property]);
            assert!(
                found.len() == 1 && found[0].0 == "zfs.properties[1]" && found[0].1.contains(part),
                "{found:?}"
            );
        }
        let compresses =
            |properties: &[&str]| ZfsSpec { properties: words(properties), pool: Vec::new() }.compresses();
        assert!(compresses(&["compression=on"]) && !compresses(&["compression=off"]) && !compresses(&[]));
    }
}
