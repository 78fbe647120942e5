//! Values as fio writes them: sizes in units of 1024, times whose unit depends on the option.

use rotproof_load::{BlockSizes, Pattern, SizeMix, Zone};
use rotproof_spec::{Bytes, Percent, Span};

/// A size. Unless `kb_base` says otherwise, fio takes `k` and `kB` for 1024 bytes, and `KiB` for 1000 (fio(1), "Parameter
/// types"; measured with 3.33): the other way round than everybody else.
pub(super) fn size(text: &str) -> Result<Bytes, String> {
    let wrong = || format!("`{text}` is no size in bytes");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (amount, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kb" => 1 << 10,
        "m" | "mi" | "mb" => 1 << 20,
        "g" | "gi" | "gb" => 1 << 30,
        "t" | "ti" | "tb" => 1 << 40,
        "kib" => 1_000,
        "mib" => 1_000_000,
        "gib" => 1_000_000_000,
        "tib" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    amount.parse::<u64>().ok().and_then(|amount| amount.checked_mul(unit)).map(Bytes).ok_or_else(wrong)
}

/// One limit for all, or one for reads and one for writes; none is for as many as there are.
pub(super) fn rates(text: &str) -> Result<(f64, f64), String> {
    let limits: Vec<f64> = text.split(',').map(|part| number(part.trim())).collect::<Result<_, _>>()?;
    match limits[..] {
        [both] => Ok((both, both)),
        [reads, writes] => Ok((reads, writes)),
        _ => Err("rates for reads, writes and trims are one too many".to_owned()),
    }
}

pub(super) fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

pub(super) fn small(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

pub(super) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("`{text}` is no number"))
}

pub(super) fn percent(text: &str) -> Result<Percent, String> {
    format!("{}%", text.trim_end_matches('%')).parse()
}

/// A switch: given alone it is on.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("`{text}` is neither 0 nor 1")),
    }
}

/// A time; without a unit in that of `unit_ns` nanoseconds.
pub(super) fn time(text: &str, unit_ns: f64) -> Result<Span, String> {
    let wrong = || format!("`{text}` is no time");
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (amount, unit) = text.split_at(digits);
    let unit_ns = match unit.trim() {
        "" => unit_ns,
        "us" | "usec" => 1e3,
        "ms" | "msec" => 1e6,
        "s" | "sec" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        _ => return Err(wrong()),
    };
    super::span(amount.parse::<f64>().map_err(|_| wrong())? * unit_ns).ok_or_else(wrong)
}

/// `4k`, or `4k,64k` for reads and writes.
pub(super) fn block_sizes(text: &str) -> Result<BlockSizes, String> {
    let sizes: Vec<Bytes> = text.split(',').map(|part| size(part.trim())).collect::<Result<_, _>>()?;
    match sizes[..] {
        [one] => Ok(one.into()),
        // The third is of trims, of which a load has none.
        [reads, writes] | [reads, writes, _] => {
            Ok(BlockSizes::Split { reads: SizeMix::one(reads), writes: SizeMix::one(writes) })
        }
        _ => Err("more than sizes for reads, writes and trims".to_owned()),
    }
}

/// `4k-4k`, which is one size. To fio a range is any multiple of its beginning, each as likely, which no mix of ours is.
pub(super) fn range(text: &str) -> Result<BlockSizes, String> {
    let one = |part: &str| {
        let (first, last) =
            part.split_once(['-', ':']).ok_or_else(|| format!("`{part}` is no range of sizes"))?;
        let (first, last) = (size(first.trim())?, size(last.trim())?);
        if first == last { Ok(first) } else { Err("sizes drawn from a range have no counterpart".to_owned()) }
    };
    let sizes: Vec<Bytes> = text.split(',').map(one).collect::<Result<_, _>>()?;
    match sizes[..] {
        [one] => Ok(one.into()),
        [reads, writes, ..] => {
            Ok(BlockSizes::Split { reads: SizeMix::one(reads), writes: SizeMix::one(writes) })
        }
        [] => Err("no range of sizes".to_owned()),
    }
}

/// Bytes a second, for reads and for writes; `1m` is for both.
pub(super) fn byte_rates(text: &str) -> Result<(f64, f64), String> {
    let limits: Vec<f64> = text
        .split(',')
        .map(|part| match part.trim() {
            "" => Ok(0.0),
            part => size(part).map(|bytes| bytes.0 as f64),
        })
        .collect::<Result<_, _>>()?;
    match limits[..] {
        [both] => Ok((both, both)),
        [reads, writes] | [reads, writes, _] => Ok((reads, writes)),
        _ => Err("more than rates for reads, writes and trims".to_owned()),
    }
}

/// `4k/60:64k/40`, or that for reads and for writes.
pub(super) fn split(text: &str) -> Result<BlockSizes, String> {
    let mix = |text: &str| -> Result<SizeMix, String> {
        let parts = text.split(':').map(|part| {
            let (bytes, share) =
                part.split_once('/').ok_or_else(|| format!("`{part}` is no size with a percentage"))?;
            Ok((size(bytes)?, percent(share)?))
        });
        parts.collect::<Result<_, String>>().map(SizeMix)
    };
    match text.split_once(',') {
        None => mix(text).map(BlockSizes::All),
        Some((reads, writes)) => Ok(BlockSizes::Split { reads: mix(reads)?, writes: mix(writes)? }),
    }
}

/// `60/10:30/20:8/30:2/40`: requests and space in percent. A space that is left out is an equal part of what remains, so
/// `50/5:30/15:20/` is meant as `50/5:30/15:20/80` (fio(1), `random_distribution`).
fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let mut zones = Vec::new();
    for zone in text.split(':') {
        let (requests, space) =
            zone.split_once('/').ok_or_else(|| format!("`{zone}` is no zone such as 60/10"))?;
        let space = match space.trim() {
            "" => None,
            space => Some(percent(space)?),
        };
        zones.push((percent(requests)?, space));
    }
    let given: f64 = zones.iter().filter_map(|(_, space)| *space).map(|space| space.0).sum();
    let open = zones.iter().filter(|(_, space)| space.is_none()).count();
    let left = Percent(((1.0 - given) / open.max(1) as f64).max(0.0));
    let zone =
        |(requests, space): (Percent, Option<Percent>)| Zone { requests, space: space.unwrap_or(left) };
    Ok(zones.into_iter().map(zone).collect())
}

/// fio's `random_distribution`.
pub(super) fn distribution(text: &str) -> Result<Pattern, String> {
    let (word, value) = text.split_once(':').unwrap_or((text, ""));
    match word {
        "random" => Ok(Pattern::Random),
        "zipf" => number(value).map(|theta| Pattern::Zipf { theta }),
        // A power of the share, as fio has it: 0.2 for 20% that get 80%.
        "pareto" => number(value).map(|hot| Pattern::Pareto { hot: Percent(hot) }),
        "normal" => percent(value).map(|deviation| Pattern::Normal { deviation }),
        "zoned" => zones(value).map(Pattern::Zoned),
        _ => Err(format!("`{word}` has no counterpart among the patterns")),
    }
}
