//! One operation on one database with one thing wrong: what was answered, at once and when the program was started anew.

use rotproof_block::Result;

use super::desk::Harm;
use super::engine::{Bench, DatabaseActed, Sets};
use super::program::{Halt, Ran};
use super::rows::changes;
use crate::operation::Operation;
use crate::tree::Look;

/// How an operation ended.
pub(crate) enum Ended {
    Acted(Box<DatabaseActed>),
    Hung(String),
}

/// Does it.
pub(crate) fn act(bench: &Bench, sets: &Sets, operation: Operation, harm: Option<Harm>) -> Result<Ended> {
    let engine = bench.engine;
    let old = sets.rows(operation);
    let mut new = old.clone();
    new.apply(&changes(operation));
    let expected = engine.expected(sets, operation, old);
    bench.desk.show(sets.before(operation));
    bench.desk.arm(harm);
    let ran = engine.perform(bench, operation, old)?;
    let touches = bench.desk.rest();
    let mut files = bench.files();
    files.extend(bench.desk.ended());
    if let Some(halt) = ran.halt {
        return Ok(Ended::Hung(format!("it {}", told(halt))));
    }
    let during = match answered(&ran, &[expected]) {
        // A checker that finds something has reported it.
        Look::Wrong(_) if operation == Operation::IntegrityCheck => {
            Look::Failed(format!("integrity_check: {}", ran.answer.lines().next().unwrap_or("nothing")))
        }
        look => look,
    };
    // What failed is not done, or all of it is.
    let mut allowed = vec![engine.all(&new)];
    if during != Look::Right {
        allowed.push(engine.all(old));
    }
    let looked = engine.look(bench)?;
    if let Some(halt) = looked.halt {
        return Ok(Ended::Hung(format!("reading it all afterwards {}", told(halt))));
    }
    Ok(Ended::Acted(Box::new(DatabaseActed {
        is_stopped: ran.is_stopped,
        is_crashed: ran.code.is_none(),
        during,
        words: ran.words,
        touches,
        files,
        after: answered(&looked, &allowed),
        is_stopped_after: looked.is_stopped,
        is_crashed_after: looked.code.is_none(),
        words_after: looked.words,
    })))
}

fn told(halt: Halt) -> String {
    match halt {
        Halt::Time => format!("did not end within {} s", super::program::SCRIPT_MAX.as_secs()),
        Halt::Answer => format!("answered more than {} MiB", super::program::ANSWER_BYTES_MAX >> 20),
    }
}

/// How an answer compares with those that are right.
fn answered(ran: &Ran, allowed: &[String]) -> Look {
    match ran.code {
        Some(0) if allowed.contains(&ran.answer) => Look::Right,
        Some(0) => {
            let expected = allowed.first().map_or("", String::as_str);
            let (found, should) = differing(&ran.answer, expected);
            Look::Wrong(format!("`{found}` where it should be `{should}`"))
        }
        Some(code) => {
            let error = ran.words.iter().rev().find(|line| line.to_lowercase().contains("error"));
            Look::Failed(error.cloned().unwrap_or_else(|| format!("exit code {code}")))
        }
        None => Look::Failed(format!("signal {} ended it", ran.signal.unwrap_or(0))),
    }
}

/// How two texts go on from where they differ, a few characters of each. Both are ASCII, but for what rotted.
fn differing(one: &str, other: &str) -> (String, String) {
    let from = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let of = |text: &str| text.chars().skip(from).take_while(|&c| c != '\n').take(30).collect();
    (of(one), of(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: Option<i32>, answer: &str, words: &[&str]) -> Ran {
        Ran {
            code,
            signal: code.is_none().then_some(7),
            is_stopped: false,
            halt: None,
            answer: answer.into(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    #[test]
    fn an_answer_is_right_wrong_or_none() {
        let allowed = ["1|new\n".to_owned(), "1|old\n".to_owned()];
        assert_eq!(answered(&ran(Some(0), "1|old\n", &[]), &allowed), Look::Right);
        let wrong = answered(&ran(Some(0), "1|nex\n", &[]), &allowed);
        assert_eq!(wrong, Look::Wrong("`x` where it should be `w`".into()));
        let words = ["(11) database corruption", "Runtime error: malformed", "more"];
        assert_eq!(
            answered(&ran(Some(1), "1|new\n", &words), &allowed),
            Look::Failed("Runtime error: malformed".into())
        );
        assert_eq!(answered(&ran(None, "1|new\n", &[]), &allowed), Look::Failed("signal 7 ended it".into()));
    }
}
