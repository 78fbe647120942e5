//! How a guest has ended, as its console tells it.

use std::fmt;

/// How a guest that was to go on has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its kernel gave up and said why.
    Panic(String),
    /// It is gone without a word of its own; how its process ended.
    Crash(String),
    /// It is there and does not answer.
    Hang,
}

impl End {
    /// The word for it in results.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Panic(_) => "panic",
            Self::Crash(_) => "crash",
            Self::Hang => "hang",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(why) => write!(f, "the kernel of the guest panicked: {why}"),
            Self::Crash(how) => write!(f, "the guest crashed: {how}"),
            Self::Hang => f.write_str("the guest hangs: it is there and answers nothing"),
        }
    }
}

/// What a kernel says before it stops for good.
const PANIC: &str = "Kernel panic - not syncing:";

/// The end that a console tells of, if it does.
pub fn end_in_console(console: &str) -> Option<End> {
    let line = console.lines().find(|line| line.contains(PANIC))?;
    let why = line.split_once(PANIC).map_or("", |(_, why)| why).trim();
    Some(End::Panic(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_reason() {
        let console =
            "EXT4-fs (ubda): mounted\n[    3.1] Kernel panic - not syncing: Kernel mode fault at addr 0x8\n";
        assert_eq!(end_in_console(console), Some(End::Panic("Kernel mode fault at addr 0x8".into())));
        assert_eq!(end_in_console("reboot: System halted\n"), None);
    }
}
