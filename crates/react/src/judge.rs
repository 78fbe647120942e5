//! From what was seen to the letters of a cell.
//!
//! A letter claims what was shown and no more. R needs evidence: the kernel or the checker said something, the block was
//! rewritten, read again, or its copy was read. A block that was met while everything stayed right, without such evidence,
//! is a dot.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::act::Acted;
use crate::effect::Effect;
use crate::medium::Touch;
use crate::operation::Operation;
use crate::tree::Look;

/// How a file system noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noticed {
    /// By a checksum.
    Checksum,
    /// Because it made no sense.
    Sanity,
    /// The device said so.
    ErrorCode,
    /// From what nobody can tell: it failed or was put right, without a word that says why.
    Somehow,
    /// Not at all.
    NotAtAll,
}

impl Noticed {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Noticed::Checksum => "checksum",
            Noticed::Sanity => "sanity check",
            Noticed::ErrorCode => "error code",
            Noticed::Somehow => "unknown",
            Noticed::NotAtAll => "not at all",
        }
    }
}

/// How a file system reacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaction {
    /// R, E, B, S; in lower case what came to light after the next mount only; a dot: met, and nothing came of it.
    pub letters: String,
    /// How it noticed.
    pub noticed: Noticed,
    /// What it did.
    pub did: String,
    /// What the operation answered, if not that all is well.
    pub answer: String,
    /// What the next mount and all files answered, if not that all is well.
    pub after: String,
    /// What the kernel or the checker said first that it does not say when nothing is wrong.
    pub said: String,
}

/// A line without its numbers, which differ from run to run.
fn plain(line: &str) -> String {
    let words = line.split_whitespace().filter(|word| !word.chars().any(|c| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// Lines that were not said when nothing was wrong.
fn new_lines<'a>(lines: impl IntoIterator<Item = &'a str>, usual: &[String]) -> Vec<&'a str> {
    let usual: HashSet<String> = usual.iter().map(|line| plain(line)).collect();
    lines.into_iter().filter(|line| !line.trim().is_empty() && !usual.contains(&plain(line))).collect()
}

fn problem(look: &Look) -> String {
    match look {
        Look::Right => String::new(),
        Look::Wrong(why) => format!("wrong: {why}"),
        Look::Failed(why) => why.clone(),
    }
}

/// What the device was asked of some blocks.
fn count(touches: &[Touch], blocks: &HashSet<u64>, is_write: bool) -> usize {
    touches.iter().filter(|touch| touch.is_write == is_write && blocks.contains(&touch.block)).count()
}

/// Whether the damage was met: the first that came to one of the blocks was of the kind that meets it. A block that was
/// rewritten before anybody read it was not.
pub(crate) fn is_met(effect: Effect, touches: &[Touch], targets: &HashSet<u64>) -> bool {
    let first = touches.iter().find(|touch| targets.contains(&touch.block));
    match effect.is_on_reads() {
        true => first.is_some_and(|touch| !touch.is_write),
        false => touches.iter().any(|touch| touch.is_write && targets.contains(&touch.block)),
    }
}

/// What a cell shows. `usual` is the same operation with nothing wrong; `targets` are the bad blocks, `copies` the others
/// that hold the same.
pub(crate) fn judge(
    (effect, operation): (Effect, Operation),
    acted: &Acted,
    usual: &Acted,
    targets: &HashSet<u64>,
    copies: &HashSet<u64>,
) -> Reaction {
    let told: Vec<&str> = acted.during.said.lines().collect();
    let usual_told: Vec<String> = usual.during.said.lines().map(str::to_owned).collect();
    // How much is free is one line, which is compared with its numbers.
    let is_statfs = operation == Operation::Statfs && acted.during.look == Look::Right;
    let mut said = complaints(new_lines(acted.words.iter().map(String::as_str), &usual.words));
    if !is_statfs {
        said.extend(new_lines(told.iter().copied(), &usual_told));
    }
    let said_after = complaints(new_lines(acted.words_after.iter().map(String::as_str), &usual.words_after));
    let is_wrong_number = is_statfs && told != usual_told;
    let during = match &acted.during.look {
        Look::Right if is_wrong_number => {
            Look::Wrong(format!("{}; it is {}", acted.during.said, usual.during.said))
        }
        other => other.clone(),
    };
    let was_shut_down = said.iter().any(|line| is_stop(line));
    let is_stopped = acted.is_stopped || was_shut_down;
    let is_stopped_after = acted.is_stopped_after || said_after.iter().any(|line| is_stop(line));
    let rewritten =
        effect.is_on_reads() && count(&acted.touches, targets, true) > count(&usual.touches, targets, true);
    let asked_again = {
        let is_write = !effect.is_on_reads();
        count(&acted.touches, targets, is_write) > count(&usual.touches, targets, is_write)
    };
    let read_copy = count(&acted.touches, copies, false) > count(&usual.touches, copies, false);
    let mut letters = String::new();
    letters.push_str(match &during {
        // Whatever it answers then.
        _ if acted.is_crashed => "C",
        Look::Right => "",
        Look::Wrong(_) => "B",
        Look::Failed(_) => "E",
    });
    if is_stopped {
        letters.push('S');
    }
    if letters.is_empty() {
        match &acted.after {
            _ if acted.is_crashed_after => letters.push('c'),
            Look::Wrong(_) => letters.push('b'),
            Look::Failed(_) => letters.push('e'),
            Look::Right => {}
        }
        if is_stopped_after {
            letters.push('s');
        }
    } else if matches!(acted.after, Look::Wrong(_)) && !letters.contains('B') {
        letters.push('b');
    }
    let is_evident = !said.is_empty() || rewritten || asked_again || read_copy;
    if letters.is_empty() {
        letters.push(match (is_evident, said_after.is_empty()) {
            (true, _) => 'R',
            (false, false) => 'r',
            (false, true) => '.',
        });
    }
    let lines: Vec<&str> = said.iter().chain(&said_after).copied().collect();
    // What is wrong was noticed by nobody but us.
    let failure = |look: &Look| if matches!(look, Look::Failed(_)) { problem(look) } else { String::new() };
    let words = format!("{} {} {}", failure(&during), failure(&acted.after), lines.join(" "));
    let noticed = how(effect, is_evident, &words);
    let mut did = Vec::new();
    for (is_so, word) in [
        (asked_again, "retried"),
        (read_copy || has(&words, &["read error corrected", "fixed up"]), "used a copy"),
        (rewritten, "rewrote it"),
        (was_shut_down || acted.is_stopped, "stopped writing"),
        (matches!(during, Look::Failed(_)), "gave up"),
    ] {
        if is_so {
            did.push(word);
        }
    }
    Reaction {
        letters,
        noticed,
        did: if did.is_empty() { "nothing seen".into() } else { did.join(", ") },
        answer: problem(&during),
        after: problem(&acted.after),
        said: lines.first().map_or_else(String::new, |line| (*line).to_owned()),
    }
}

fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Lines by which a file system says that it takes no more writes.
fn is_stop(line: &str) -> bool {
    has(
        line,
        &[
            "remounting filesystem read-only",
            "shutting down filesystem",
            "forced readonly",
            "filesystem has been shut down",
        ],
    )
}

/// Lines that a file system which is whole does not say.
fn complaints(lines: Vec<&str>) -> Vec<&str> {
    let signs = [
        "error",
        "corrupt",
        "bad ",
        "fail",
        "invalid",
        "inconsisten",
        "unmount and run",
        "shut",
        "warning",
        "abort",
        "unable",
        "mismatch",
        "fixed up",
        "read-only",
        "readonly",
        "not match",
        "bug",
        "malformed",
        "not a database",
        "not found",
        "not an lmdb",
        "could not",
        "fatal",
        "panic",
    ];
    // The first says what it does in case of errors; the second that a device was found.
    let is_usual = |line: &str| has(line, &["errors=", "scanned by"]);
    lines.into_iter().filter(|line| has(line, &signs) && !is_usual(line)).collect()
}

/// How it was noticed, by the words that were used. The device's own error comes first, as the rest follows from it.
fn how(effect: Effect, is_evident: bool, words: &str) -> Noticed {
    const OF_DEVICE: [&str; 9] = [
        // What a system call is told of a mapping that cannot be read.
        "bad address",
        "i/o error",
        "input/output error",
        "read error",
        "write error",
        "read failed",
        "errno=-5",
        "error 5",
        "lost async",
    ];
    const OF_CHECKSUM: [&str; 5] = ["checksum", "csum", "crc", "bad message", "bad tree block"];
    if words.trim().is_empty() && !is_evident {
        Noticed::NotAtAll
    } else if effect.is_reported() && has(words, &OF_DEVICE) {
        Noticed::ErrorCode
    } else if has(words, &OF_CHECKSUM) {
        Noticed::Checksum
    } else if has(
        words,
        &[
            "corrupt",
            "bad ",
            "invalid",
            "magic",
            "structure needs cleaning",
            "wrong",
            "mismatch",
            "inconsisten",
            "transid",
            "not match",
            "illegal",
            "unmount and run",
            "malformed",
            "not a database",
            "page not found",
            "not an lmdb",
            "integrity_check",
        ],
    ) {
        Noticed::Sanity
    } else {
        Noticed::Somehow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::stage::Answer;

    fn acted(during: Look, after: Look, words: &[&str], touches: &[(u64, bool)]) -> Acted {
        Acted {
            during: Answer::from(during),
            touches: touches.iter().map(|&(block, is_write)| Touch { block, is_write }).collect(),
            is_stopped: false,
            is_crashed: false,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            image: Image::zeros(0),
            after,
            is_stopped_after: false,
            is_crashed_after: false,
            words_after: Vec::new(),
        }
    }

    fn failed(why: &str) -> Look {
        Look::Failed(why.to_owned())
    }

    fn judged(effect: Effect, acted: &Acted) -> Reaction {
        let usual = self::acted(Look::Right, Look::Right, &["EXT4-fs (loop1): mounted"], &[(5, false)]);
        judge((effect, Operation::Read), acted, &usual, &HashSet::from([5]), &HashSet::from([6]))
    }

    #[test]
    fn letters_claim_what_was_seen() {
        let wrong = || Look::Wrong("plain holds something else".into());
        let read = &[(5, false)][..];
        for (during, after, words, touches, letters, noticed) in [
            (Look::Right, Look::Right, &[][..], read, ".", Noticed::NotAtAll),
            (Look::Right, Look::Right, &["EXT4-fs (loop3): mounted"], read, ".", Noticed::NotAtAll),
            (Look::Right, Look::Right, &["BTRFS warning: csum failed"], read, "R", Noticed::Checksum),
            (Look::Right, Look::Right, &[], &[(5, false), (6, false)], "R", Noticed::Somehow),
            (Look::Right, Look::Right, &[], &[(5, false), (5, true)], "R", Noticed::Somehow),
            (wrong(), Look::Right, &[], read, "B", Noticed::NotAtAll),
            (Look::Right, wrong(), &[], read, "b", Noticed::NotAtAll),
            (failed("plain: Bad message (os error 74)"), Look::Right, &[], read, "E", Noticed::Checksum),
            (
                failed("plain: Structure needs cleaning (os error 117)"),
                wrong(),
                &[],
                read,
                "Eb",
                Noticed::Sanity,
            ),
            (Look::Right, failed("it cannot be mounted"), &[], read, "e", Noticed::Somehow),
            (Look::Right, Look::Right, &["Remounting filesystem read-only"], read, "S", Noticed::Somehow),
        ] {
            let reaction = judged(Effect::Flip, &acted(during.clone(), after.clone(), words, touches));
            assert_eq!(
                (&*reaction.letters, reaction.noticed),
                (letters, noticed),
                "{during:?} {after:?} {words:?}"
            );
        }
    }

    #[test]
    fn who_crashes_has_not_answered() {
        let gone = || Look::Wrong("plain: Transport endpoint is not connected".into());
        let during = Acted { is_crashed: true, ..acted(gone(), Look::Right, &[], &[(5, false)]) };
        assert_eq!(judged(Effect::Flip, &during).letters, "C");
        let after = Acted { is_crashed_after: true, ..acted(Look::Right, gone(), &[], &[(5, false)]) };
        assert_eq!(judged(Effect::Flip, &after).letters, "c");
    }

    #[test]
    fn the_devices_own_error_is_what_was_noticed_and_a_copy_that_was_read_is_told() {
        let told = acted(
            failed("plain: Input/output error (os error 5)"),
            Look::Right,
            &[],
            &[(5, false), (5, false)],
        );
        let reaction = judged(Effect::ReadError, &told);
        assert_eq!((&*reaction.letters, reaction.noticed), ("E", Noticed::ErrorCode));
        assert_eq!(reaction.did, "retried, gave up");
        let copied = acted(
            Look::Right,
            Look::Right,
            &["BTRFS info: read error corrected"],
            &[(5, false), (6, false), (5, true)],
        );
        let reaction = judged(Effect::ReadError, &copied);
        assert_eq!((&*reaction.letters, &*reaction.did), ("R", "used a copy, rewrote it"));
    }

    #[test]
    fn a_block_that_was_rewritten_before_it_was_read_was_not_met() {
        let touch = |is_write| Touch { block: 5, is_write };
        let targets = HashSet::from([5]);
        assert!(is_met(Effect::Flip, &[touch(false), touch(true)], &targets));
        assert!(!is_met(Effect::Flip, &[touch(true), touch(false)], &targets));
        assert!(is_met(Effect::LostWrite, &[touch(false), touch(true)], &targets));
        assert!(!is_met(Effect::LostWrite, &[touch(false)], &targets));
        assert!(!is_met(Effect::Flip, &[], &targets));
    }
}
