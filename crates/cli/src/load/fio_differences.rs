//! What a line of fio's means to fio and does not mean here, so that nobody takes figures for those of the same load.
//!
//! Checked against fio 3.33. A line is taken for one of fio's if it has `--name`, without which fio runs no job and which
//! says nothing here.

/// The options of a line, without hyphens and with their values, in its order.
pub(super) type Options = Vec<(String, String)>;

/// Whether the line was made for fio.
pub(super) fn is_of_fio(options: &Options) -> bool {
    has(options, &["name"])
}

/// Whether it says what the requests are; fio reads front to back where none does.
pub(super) fn says_access(options: &Options) -> bool {
    has(options, &["rw", "readwrite", "mix", "trace", "read_iolog", "personality"])
}

/// What is not the same here, a sentence each.
pub(super) fn differences(options: &Options) -> Vec<String> {
    let mut told = Vec::new();
    let mut tell = |is_so: bool, text: String| {
        if is_so {
            told.push(text);
        }
    };
    let value = |names: &[&str]| last(options, names);
    let number = |names: &[&str]| value(names).and_then(|text| text.parse::<u64>().ok());
    let workers = number(&["numjobs"]).unwrap_or(1);
    let shared: Vec<String> = options
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "size" | "io_size" | "number_ios" | "rate_iops"))
        .map(|(name, _)| format!("--{name}"))
        .collect();
    if workers > 1 {
        let of_all = match shared.is_empty() {
            true => String::new(),
            false => format!(", and {} is of all together, where fio's is of each", shared.join(", ")),
        };
        tell(true, format!("each of the {workers} workers has its own part of the target{of_all}"));
    }
    let access = value(&["rw", "readwrite"]).unwrap_or("read");
    let is_mixed = matches!(access, "rw" | "readwrite" | "randrw");
    let rate = value(&["rate_iops"]);
    let limit = rate.unwrap_or_default();
    tell(
        rate.is_some() && is_mixed,
        format!("--rate_iops={limit} is of reads and writes together; fio would make {limit} of each"),
    );
    tell(
        rate.is_some() && has(options, &["bssplit"]),
        "--rate_iops counts requests; fio makes it bytes a second by the smallest size".to_owned(),
    );
    let is_sync = value(&["ioengine"]).is_none();
    let depth = number(&["iodepth"]).unwrap_or(1);
    tell(
        is_sync && depth > 1,
        format!(
            "{depth} requests are in flight; fio's engine, psync unless --ioengine says otherwise, would have one: give \
             --ioengine=psync for that"
        ),
    );
    tell(
        !has(options, &["direct", "buffered"]),
        "requests go past the page cache, where fio without --direct=1 goes through it: give --buffered for that"
            .to_owned(),
    );
    let is_by_time = has(options, &["time_based"]);
    let runs = has(options, &["runtime"]);
    tell(
        runs && !is_by_time && !has(options, &["io_size"]),
        "it goes on for all of --runtime; fio without --time_based ends earlier, once all of its file is moved: give \
         --io-size for that"
            .to_owned(),
    );
    tell(
        runs && is_by_time && has(options, &["io_size", "number_ios"]),
        "of several ends the first one counts; fio with --time_based goes by --runtime alone".to_owned(),
    );
    let is_random = access.starts_with("rand");
    tell(
        is_random && !has(options, &["norandommap", "random_distribution"]),
        "random places are drawn independently; fio without --norandommap comes to each once before any comes again"
            .to_owned(),
    );
    tell(
        matches!(access, "rw" | "readwrite"),
        "reads and writes share one way through the target; fio's go through it side by side, each from the beginning"
            .to_owned(),
    );
    tell(
        has(options, &["steadystate", "ss"]) && !has(options, &["ss_dur", "steadystate_duration"]),
        "the load ends once it is steady; fio without --ss_dur does not look".to_owned(),
    );
    tell(
        value(&["do_verify"]) == Some("0"),
        "what is written is read back all the same; give --no-verify to leave that out".to_owned(),
    );
    for name in ["bs", "blocksize", "bssplit", "size", "io_size", "ba", "blockalign"] {
        let unit = value(&[name]).and_then(surprising_unit);
        let unit = unit.unwrap_or_default();
        tell(
            !unit.is_empty(),
            format!(
                "in --{name} {unit} is what the standards say; fio takes KiB for 1000 bytes, and kB for 1024"
            ),
        );
    }
    told
}

/// A unit of a size that fio takes otherwise.
fn surprising_unit(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.map(str::to_owned).find(|word| word.len() > 1 && word.to_ascii_lowercase().ends_with('b'))
}

fn has(options: &Options, names: &[&str]) -> bool {
    last(options, names).is_some()
}

fn last<'a>(options: &'a Options, names: &[&str]) -> Option<&'a str> {
    let found = options.iter().rev().find(|(name, _)| names.contains(&name.as_str()));
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> String {
        let options = line.split_whitespace().map(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        });
        differences(&options.collect()).join("\n")
    }

    #[test]
    fn what_fio_means_otherwise_is_said_and_nothing_else() {
        for (line, wanted) in [
            ("rw=randrw rate_iops=500 direct=1 norandommap", "fio would make 500 of each"),
            (
                "rw=write numjobs=4 size=1g direct=1",
                "4 workers has its own part of the target, and --size is of all",
            ),
            ("rw=read iodepth=32 direct=1", "would have one"),
            ("rw=read", "past the page cache"),
            ("rw=read direct=1 runtime=5 size=1g", "ends earlier"),
            ("rw=read direct=1 runtime=5 time_based number_ios=9", "goes by --runtime alone"),
            ("rw=randread direct=1", "drawn independently"),
            ("rw=rw direct=1", "side by side"),
            ("rw=read direct=1 steadystate=iops:5%", "does not look"),
            ("rw=read direct=1 bs=4KiB", "in --bs KiB is what the standards say"),
            ("rw=write direct=1 bssplit=4k/50:8k/50 rate_iops=9", "by the smallest size"),
            ("rw=write direct=1 verify=crc32c do_verify=0", "read back all the same"),
        ] {
            let told = told(line);
            assert!(told.contains(wanted) && told.lines().count() == 1, "{line}: {told}");
        }
        for same in [
            "rw=randread norandommap direct=1 ioengine=libaio iodepth=32 bs=4k runtime=5 time_based",
            "rw=write buffered=1 size=1g rate_iops=9",
        ] {
            assert_eq!(told(same), "", "{same}");
        }
    }
}
