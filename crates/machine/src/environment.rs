//! The machine that a trial ran on, for its results: without this, figures of two runs cannot be compared.

use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::program::Program;

/// The machine and the versions of what took part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Version of Rotproof.
    pub rotproof: String,
    /// Name, release and build of the kernel.
    pub kernel: String,
    /// Architecture, as the kernel names it.
    pub architecture: String,
    /// The distribution, as it names itself.
    pub distribution: Option<String>,
    /// Model of the first processor.
    pub processor: Option<String>,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
    /// The tools that make file systems, those that are on this machine.
    pub tools: Vec<ToolVersion>,
}

/// One tool and what it says it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolVersion {
    /// Its name.
    pub name: String,
    /// The first line of what it says about its version.
    pub version: String,
}

/// Name, package and the argument that asks for the version.
const TOOLS: [(&str, &str, &str); 3] =
    [("mkfs.ext4", "e2fsprogs", "-V"), ("mkfs.xfs", "xfsprogs", "-V"), ("mkfs.btrfs", "btrfs-progs", "-V")];

/// Describes this machine. What cannot be found out stays empty.
pub fn environment() -> Environment {
    let (kernel, architecture) = kernel();
    Environment {
        rotproof: env!("CARGO_PKG_VERSION").to_owned(),
        kernel,
        architecture,
        distribution: value_of("/etc/os-release", '=', "PRETTY_NAME")
            .map(|name| name.trim_matches('"').to_owned()),
        processor: ["model name", "Model", "cpu model"]
            .iter()
            .find_map(|key| value_of("/proc/cpuinfo", ':', key)),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: value_of("/proc/meminfo", ':', "MemTotal")
            .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024),
        tools: TOOLS
            .iter()
            .filter_map(|&(name, package, argument)| tool_version(name, package, argument))
            .collect(),
    }
}

fn tool_version(name: &str, package: &str, argument: &str) -> Option<ToolVersion> {
    let version = Program::find(name, package).ok()?.version(argument)?;
    Some(ToolVersion { name: name.to_owned(), version })
}

fn kernel() -> (String, String) {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `names` is large enough, and all zeros are valid (empty) names too.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    let text = |name: &[libc::c_char]| {
        let bytes: Vec<u8> = name.iter().flat_map(|byte| byte.to_ne_bytes()).collect();
        CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    (
        format!("{} {} {}", text(&names.sysname), text(&names.release), text(&names.version)),
        text(&names.machine),
    )
}

/// The first value of `key` in a file of lines `key<separator>value`.
fn value_of(file: &str, separator: char, key: &str) -> Option<String> {
    fs::read_to_string(file)
        .ok()?
        .lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_and_the_description_reads_back() {
        let environment = environment();
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.processors >= 1 && environment.memory_bytes > 64 << 20, "{environment:?}");
        let text = serde_json::to_string(&environment).expect("serialises");
        assert_eq!(serde_json::from_str::<Environment>(&text).expect("reads back"), environment);
    }

    #[test]
    fn a_tool_that_is_not_there_is_left_out() {
        assert_eq!(tool_version("mkfs.nonexistent", "none", "-V"), None);
    }
}
