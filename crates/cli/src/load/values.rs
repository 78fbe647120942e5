//! The values of the options of `rotproof load`, as fio writes them and as we do.

use rotproof_load::{BlockSizes, Burst, Duplicates, Pace, Pattern, RampUp, SizeMix, Zone};
use rotproof_spec::{Bytes, Percent, Span};
use rotproof_trace::Operation;

/// `4k`, or `4k,64k` for reads and for writes.
pub(super) fn block_sizes(text: &str) -> Result<BlockSizes, String> {
    match text.split_once(',') {
        None => Ok(text.parse::<Bytes>()?.into()),
        Some((reads, writes)) => {
            let one = |text: &str| text.parse().map(SizeMix::one);
            Ok(BlockSizes::Split { reads: one(reads)?, writes: one(writes)? })
        }
    }
}

/// fio's `bssplit`: `4k/60:64k/40`, or `4k/60:64k/40,128k/100` for reads and for writes.
pub(super) fn size_mix(text: &str) -> Result<BlockSizes, String> {
    let mix = |text: &str| -> Result<SizeMix, String> {
        let sizes = text.split(':').map(|entry| {
            let (size, share) = entry
                .split_once('/')
                .ok_or_else(|| format!("`{entry}` has no percentage; write for example 4k/60:64k/40"))?;
            Ok((size.parse()?, percentage(share)?))
        });
        sizes.collect::<Result<_, String>>().map(SizeMix)
    };
    match text.split_once(',') {
        None => mix(text).map(BlockSizes::All),
        Some((reads, writes)) => Ok(BlockSizes::Split { reads: mix(reads)?, writes: mix(writes)? }),
    }
}

/// A percentage without its sign, as fio has them, or with it.
pub(super) fn percentage(text: &str) -> Result<Percent, String> {
    let number = text.trim().trim_end_matches('%');
    format!("{number}%").parse()
}

/// A span of time; without a unit, as fio has it, seconds.
pub(super) fn span(text: &str) -> Result<Span, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Span(std::time::Duration::from_secs(seconds.into()))),
        Err(_) => text.parse(),
    }
}

pub(super) fn ramp_up(text: &str) -> Result<RampUp, String> {
    match text.trim().strip_suffix("requests") {
        Some(number) => {
            number.trim().parse().map(RampUp::Requests).map_err(|_| {
                format!("`{text}` is no number of requests; write for example \"1000 requests\"")
            })
        }
        // Without a unit, as fio has it, seconds.
        None => span(text).map(RampUp::Time).or_else(|_| text.parse()),
    }
}

pub(super) fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "timed" => Ok(Pace::Timed),
        "asap" => Ok(Pace::Asap),
        _ => Err(format!("there is no pace `{text}`; timed and asap are known")),
    }
}

/// Operations as fio calls them in `replay_skip`, or as traces do here.
pub(super) fn skipped(text: &str) -> Result<Operation, String> {
    match text.trim() {
        "read" => Ok(Operation::Read),
        "write" => Ok(Operation::Write),
        "trim" | "discard" => Ok(Operation::Discard),
        "sync" | "flush" => Ok(Operation::Flush),
        other => Err(format!("there is no operation `{other}`; read, write, trim and sync are known")),
    }
}

/// A percentage, a profile, or a file of a distribution, which is read.
pub(super) fn duplicates(text: &str) -> Result<Duplicates, String> {
    if let Some(file) = text.strip_prefix("file:") {
        let mut duplicates = Duplicates::File(file.into());
        duplicates.read_file(std::path::Path::new("")).map_err(|error| error.to_string())?;
        return Ok(duplicates);
    }
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return serde_json::from_value(text.into()).map_err(|error| error.to_string());
    }
    percentage(text).map(Duplicates::Share)
}

/// `32/10ms`.
pub(super) fn burst(text: &str) -> Result<Burst, String> {
    let wrong = || format!("`{text}` is no burst; write for example 32/10ms");
    let (requests, every) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Burst { requests: requests.parse().map_err(|_| wrong())?, every: every.parse()? })
}

/// A percentage, or, below 1 and without its sign, fio's power, which is the share itself: `20`, `20%` and `0.2`.
fn share_of_places(text: &str) -> Result<Percent, String> {
    match text.trim().parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(Percent(share)),
        _ => percentage(text),
    }
}

/// `60/10:40/90`: of the requests, of the space.
fn zones(text: &str) -> Result<Pattern, String> {
    let zones = text.split(':').map(|zone| {
        let (requests, space) = zone
            .split_once('/')
            .ok_or_else(|| format!("`{zone}` is no zone; write for example 60/10:40/90"))?;
        Ok(Zone { requests: percentage(requests)?, space: percentage(space)? })
    });
    zones.collect::<Result<_, String>>().map(Pattern::Zoned)
}

/// fio's `random_distribution`, as far as it is a pattern here.
pub(super) fn distribution(text: &str) -> Result<Pattern, String> {
    let (word, value) = text.split_once(':').map_or((text, None), |(word, value)| (word, Some(value)));
    let number = |value: &str| value.parse::<f64>().map_err(|_| format!("`{value}` is no number"));
    match (word, value) {
        ("random", None) => Ok(Pattern::Random),
        ("nurand", None) => Ok(Pattern::Nurand { a: None }),
        ("zoned", Some(list)) => zones(list),
        ("zipf", Some(theta)) => Ok(Pattern::Zipf { theta: number(theta)? }),
        ("pareto", Some(hot)) => Ok(Pattern::Pareto { hot: share_of_places(hot)? }),
        ("normal", Some(deviation)) => Ok(Pattern::Normal { deviation: percentage(deviation)? }),
        ("zoned", None) => Err("`zoned` needs its zones, such as zoned:60/10:40/90".into()),
        ("zipf" | "pareto" | "normal", None) => Err(format!("`{word}` needs a number, such as {word}:0.9")),
        _ => Err(format!(
            "there is no distribution `{word}`; random, zipf, pareto, normal, zoned and nurand are known"
        )),
    }
}
