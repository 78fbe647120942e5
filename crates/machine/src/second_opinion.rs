//! What `blkid` makes of a device or file, where it is installed: a second opinion to our own table of signatures.

use std::path::Path;

use crate::cancel::Cancel;
use crate::program::Program;

/// What it recognises, as words for a sentence; none where it recognises nothing or is not there.
pub(crate) fn of_blkid(path: &Path) -> Option<String> {
    let program = Program::find("blkid", "util-linux").ok()?;
    let arguments = ["--probe", "--output", "export", "--"].map(std::ffi::OsStr::new);
    let running = program.start(arguments.into_iter().chain([path.as_os_str()])).ok()?;
    let (exit, output) = running.finish(&Cancel::new()).ok()?;
    opinion(exit.code()?, &output)
}

fn opinion(exit: i32, output: &str) -> Option<String> {
    let value = |key: &str| {
        let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
        output.lines().find_map(of_key).filter(|value| !value.is_empty())
    };
    match exit {
        // It has found something, and says what.
        0 => match (value("TYPE"), value("PTTYPE")) {
            (Some(kind), _) => Some(format!("what blkid takes for {kind}")),
            (None, Some(table)) => Some(format!("what blkid takes for a partition table ({table})")),
            (None, None) => None,
        },
        // Several at once.
        8 => Some("more than one thing that blkid recognises".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_becomes_words_and_nothing_where_it_recognises_nothing() {
        for (exit, output, words) in [
            (0, "DEVNAME=x\nUUID=1\nTYPE=minix\nUSAGE=filesystem\n", Some("what blkid takes for minix")),
            (0, "DEVNAME=x\nPTTYPE=sun\n", Some("what blkid takes for a partition table (sun)")),
            (0, "DEVNAME=x\nMINIMUM_IO_SIZE=512\n", None),
            (2, "", None),
            (8, "blkid: x: ambivalent result", Some("more than one thing that blkid recognises")),
            (4, "usage", None),
        ] {
            assert_eq!(opinion(exit, output).as_deref(), words, "{exit} {output}");
        }
    }
}
