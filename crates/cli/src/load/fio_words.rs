//! A command line of fio's as one of `rotproof load`: what fio says and this command does not need, because it is so
//! anyway or goes by another name. A line that somebody has at hand can be pasted behind `rotproof load`.
//!
//! What is not known here is left for the parser to take or to refuse.

use std::ffi::OsString;

use super::fio_differences::{Options, differences, is_of_fio, says_access};

/// Options of which the value may be the next word.
const WITH_VALUE: [&str; 9] = [
    "filename",
    "name",
    "ioengine",
    "verify",
    "rwmixwrite",
    "rate_process",
    "thinktime",
    "output-format",
    "eta",
];

/// The same command line, the program's name first, in the words of this command if it is one of `rotproof load`; and what
/// people should know of it, a sentence each. Fails with what cannot be meant, and what to do.
pub fn translated(words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<String>), String> {
    let Some(verb) = place_of_load(&words) else { return Ok((words, Vec::new())) };
    let options = options(&words[verb + 1..]);
    let mut notes = Vec::new();
    let mut words = words.into_iter().peekable();
    let mut ours: Vec<OsString> = words.by_ref().take(verb + 1).collect();
    if is_of_fio(&options) {
        notes.extend(differences(&options));
        if !says_access(&options) {
            ours.push("--rw=read".into());
        }
    }
    while let Some(word) = words.next() {
        let Some((name, value)) = word.to_str().and_then(option) else {
            ours.push(word);
            continue;
        };
        let value = match value {
            Some(value) => Some(value.to_owned()),
            None if WITH_VALUE.contains(&name) => words.next().and_then(|next| next.into_string().ok()),
            None => None,
        };
        if let ("ioengine", Some(theirs)) = (name, value.as_deref()) {
            let ours = engine(theirs);
            if ours != theirs {
                notes.push(format!("--ioengine={theirs} goes by {ours} here"));
            }
        }
        match in_our_words(name, value.as_deref())? {
            Some(meaning) => ours.extend(meaning.into_iter().map(OsString::from)),
            // fio takes one hyphen for two.
            None if word.to_str().is_some_and(|word| !word.starts_with("--")) => {
                ours.push(format!("-{}", word.display()).into());
            }
            None => ours.push(word),
        }
    }
    Ok((ours, notes))
}

/// The options of a line with their values, which may be the next word: as far as nobody knows which options have one, a word
/// that is none itself.
fn options(words: &[OsString]) -> Options {
    let mut found = Options::new();
    let mut words = words.iter().filter_map(|word| word.to_str()).peekable();
    while let Some(word) = words.next() {
        let Some((name, value)) = option(word) else { continue };
        let next = words.peek().filter(|next| !next.starts_with('-'));
        let value = value.or_else(|| next.copied()).unwrap_or_default();
        // fio knows underscores alone, we both.
        found.push((name.replace('-', "_"), value.to_owned()));
    }
    found
}

/// The engine that does the same in its own way, if there is one.
fn engine(theirs: &str) -> &str {
    match theirs {
        "libaio" | "posixaio" => "io_uring",
        "sync" | "pvsync" | "pvsync2" => "psync",
        other => other,
    }
}

/// Where the verb stands, if it is `load`.
fn place_of_load(words: &[OsString]) -> Option<usize> {
    let mut place = 1;
    while words.get(place).is_some_and(|word| word == "--color") {
        place += 2;
    }
    words.get(place).is_some_and(|word| word == "load").then_some(place)
}

/// The name of a long option, with one hyphen or two, and the value that follows an equals sign.
fn option(word: &str) -> Option<(&str, Option<&str>)> {
    let body = match word.strip_prefix("--") {
        Some(body) => body,
        None => {
            word.strip_prefix('-').filter(|body| body.len() > 1 && body.starts_with(char::is_alphabetic))?
        }
    };
    let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
    (!name.is_empty()).then_some((name, value))
}

/// What an option of fio's is here; `None` if it is none that is known.
fn in_our_words(name: &str, value: Option<&str>) -> Result<Option<Vec<String>>, String> {
    let is_on = !matches!(value, Some("0" | "false"));
    let said = |word: &str| Ok(Some(vec![word.to_owned()]));
    let nothing = Ok(Some(Vec::new()));
    match (name, value) {
        ("filename", Some(target)) => said(target),
        ("ioengine", Some(theirs)) => said(&format!("--ioengine={}", engine(theirs))),
        // The report is of all workers, which are threads; what is written is flushed in the end, and is new each time;
        // caches are gone around.
        ("name" | "group_reporting" | "thread" | "norandommap" | "invalidate" | "refill_buffers", _) => {
            nothing
        }
        ("end_fsync" | "fsync_on_close" | "do_verify" | "exitall_on_error", _) => nothing,
        ("direct", _) if is_on => nothing,
        ("direct", _) => said("--buffered"),
        ("buffered", Some(_)) if is_on => said("--buffered"),
        ("buffered", Some(_)) => nothing,
        // A load with a time and nothing else goes by time.
        ("time_based", _) => nothing,
        ("randrepeat", _) if is_on => nothing,
        ("randrepeat", _) => {
            Err("--randrepeat=0: places and contents come from --seed; give another one".into())
        }
        ("verify", Some("0" | "null")) => said("--no-verify"),
        ("verify", Some(_)) => nothing,
        ("rwmixwrite", Some(writes)) => {
            let reads = writes.trim_end_matches('%').parse::<f64>().map(|writes| 100.0 - writes);
            match reads {
                Ok(reads) => Ok(Some(vec![format!("--rwmixread={reads}")])),
                Err(_) => Err(format!("--rwmixwrite={writes}: a percentage belongs here, such as 30")),
            }
        }
        // A number alone is of microseconds to fio, and of nothing here.
        ("thinktime", Some(span)) if span.bytes().all(|byte| byte.is_ascii_digit()) => {
            said(&format!("--thinktime={span}us"))
        }
        ("thinktime", Some(span)) => said(&format!("--thinktime={span}")),
        ("rate_process", Some("linear")) | ("output-format", Some("normal")) => nothing,
        ("rate_process", Some("poisson")) => said("--poisson"),
        ("output-format", Some("json" | "json+")) => said("--json"),
        ("eta", Some("never")) => said("--quiet"),
        ("eta", Some("auto" | "always")) => nothing,
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(line: &str) -> Result<String, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let words = translated(words)?.0.into_iter().map(|word| word.into_string().expect("UTF-8"));
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_line_of_fios_is_one_of_ours() {
        for (fio, meant) in [
            (
                "rotproof load --name=x --filename=/dev/sdb --rw=randrw --direct=1 --time_based --runtime=5 --group_reporting",
                "rotproof load /dev/sdb --rw=randrw --runtime=5",
            ),
            (
                "rotproof load -filename disk.img -direct=0 -iodepth 1 -thread -rw=randread -bs=16k -name test -q",
                "rotproof load disk.img --buffered --iodepth 1 --rw=randread --bs=16k -q",
            ),
            // What fio does unless told.
            ("rotproof load f --name=x --thinktime=500", "rotproof load --rw=read f --thinktime=500us"),
            ("rotproof load f --name=x --read_iolog=t", "rotproof load f --read_iolog=t"),
            ("rotproof load f --thinktime 5ms", "rotproof load f --thinktime=5ms"),
            ("rotproof load f --rwmixwrite=30 --verify=crc32c", "rotproof load f --rwmixread=70"),
            (
                "rotproof load f --verify 0 --buffered=1 --output-format=json",
                "rotproof load f --no-verify --buffered --json",
            ),
            ("rotproof load f --buffered --rate_process=poisson", "rotproof load f --buffered --poisson"),
            ("rotproof --color never load f --name=x --rw write", "rotproof --color never load f --rw write"),
            ("rotproof load f --ioengine libaio", "rotproof load f --ioengine=io_uring"),
            ("rotproof load f --ioengine=rbd", "rotproof load f --ioengine=rbd"),
            // Not ours to change.
            ("rotproof run --name=x load", "rotproof run --name=x load"),
            ("rotproof load f --verify_pattern=0xdeadbeef", "rotproof load f --verify_pattern=0xdeadbeef"),
            ("rotproof load - -h -1 --", "rotproof load - -h -1 --"),
            ("rotproof load f --output-format=terse", "rotproof load f --output-format=terse"),
        ] {
            assert_eq!(ours(fio).as_deref(), Ok(meant), "{fio}");
        }
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let notes = |line| translated(words(line)).expect("can be meant").1;
        assert_eq!(notes("rotproof load f --ioengine=sync"), ["--ioengine=sync goes by psync here"]);
        assert!(notes("rotproof load f --ioengine=psync").is_empty());
        let of_fio = notes("rotproof load f --name=x --rw randrw --norandommap --direct 1 --rate_iops 500");
        assert!(matches!(&of_fio[..], [note] if note.contains("500 of each")), "{of_fio:?}");
        assert!(notes("rotproof load f --rw randrw --rate_iops 500").is_empty(), "a line of ours");
        for (wrong, why) in
            [("rotproof load f --randrepeat=0", "--seed"), ("rotproof load f --rwmixwrite=x", "a percentage")]
        {
            assert!(ours(wrong).is_err_and(|error| error.contains(why)), "{wrong}");
        }
    }
}
