//! The text format of Prometheus, version 0.0.4: families of samples, each with its help and its type.
//!
//! Source: *Exposition formats*, documentation of Prometheus. Base units are seconds and bytes, counters end in `_total`.

use std::fmt::Write;

use rotproof_load::engine::Latencies;

/// What the page is, for its header.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The bounds of the buckets of a histogram of latencies: powers of two, from 2^10 ns, a microsecond, to 2^36 ns, a minute.
const POWERS: std::ops::RangeInclusive<u32> = 10..=36;

/// A page as it is written.
#[derive(Debug, Default)]
pub struct Page(String);

/// Labels of a sample.
pub type Labels<'a> = [(&'a str, &'a str)];

impl Page {
    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    /// Begins a family: all its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the family.
    pub fn sample(&mut self, name: &str, labels: &Labels<'_>, value: impl std::fmt::Display) {
        self.0.push_str(name);
        if !labels.is_empty() {
            self.0.push('{');
            for (index, (label, value)) in labels.iter().enumerate() {
                if index > 0 {
                    self.0.push(',');
                }
                let _ = write!(self.0, "{label}=\"{}\"", escaped(value));
            }
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// All samples of a histogram of latencies, in seconds.
    pub fn histogram(&mut self, name: &str, labels: &Labels<'_>, latencies: &Latencies) {
        let bucket = format!("{name}_bucket");
        for power in POWERS {
            // Of whole nanoseconds; what is exactly at the bound counts with the next, which no reader can tell.
            let bound = format!("{}", (1u64 << power) as f64 / 1e9);
            let labels = [labels, &[("le", &bound)]].concat();
            self.sample(&bucket, &labels, latencies.count_below_power(power));
        }
        let count = latencies.count();
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, latencies.sum_ns() as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, count);
    }
}

/// The value of a label: a name that somebody chose.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Reads a page as Prometheus does, and panics at what that would refuse: for tests.
#[cfg(test)]
pub(super) mod reader {
    use std::collections::BTreeMap;

    /// Samples by name and labels, as written.
    pub(crate) fn read(page: &str) -> BTreeMap<String, f64> {
        assert!(page.is_empty() || page.ends_with('\n'), "the last line must end");
        let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut family = String::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(kinds.insert(name.to_owned(), kind).is_none(), "{name} twice");
                family = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
            } else {
                let (name, value) = sample(line);
                let base = name.split('{').next().expect("a name");
                let suffixes: &[&str] =
                    if kinds[&family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                let belongs = suffixes.iter().any(|suffix| base == format!("{family}{suffix}"));
                assert!(belongs, "{line} stands in the family {family}");
                assert!(kinds[&family] != "counter" || family.ends_with("_total"), "{line}");
                assert!(samples.insert(name, value).is_none(), "{line} twice");
            }
        }
        samples
    }

    /// `name{label="value",...} number`.
    fn sample(line: &str) -> (String, f64) {
        let name_end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
        let is_name = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        assert!(is_name(&line[..name_end]), "{line}");
        let mut at = name_end;
        if line[at..].starts_with('{') {
            at += 1;
            loop {
                let equals = at + line[at..].find("=\"").unwrap_or_else(|| panic!("no label: {line}"));
                assert!(is_name(&line[at..equals]), "{line}");
                at = equals + 2;
                while !line[at..].starts_with('"') {
                    at += if line[at..].starts_with('\\') {
                        assert!(["\\\\", "\\\"", "\\n"].contains(&&line[at..at + 2]), "{line}");
                        2
                    } else {
                        line[at..].chars().next().unwrap_or_else(|| panic!("no end: {line}")).len_utf8()
                    };
                }
                at += 1;
                match &line[at..=at] {
                    "," => at += 1,
                    "}" => break,
                    other => panic!("{other} in {line}"),
                }
            }
            at += 1;
        }
        let value = line[at..].strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
        (line[..at].to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    }
}

#[cfg(test)]
mod tests {
    use rotproof_load::engine::Progress;

    use super::*;

    #[test]
    fn names_that_somebody_chose_cannot_break_the_page() {
        let mut page = Page::default();
        page.family("x_total", "counter", "Help.");
        page.sample("x_total", &[("rule", "a\"b\\c\nd}e"), ("other", "ü,=")], 3);
        let text = page.into_text();
        let found = reader::read(&text);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [3.0], "{text}");
    }

    #[test]
    fn a_histogram_without_anything_is_whole() {
        let mut page = Page::default();
        page.family("took_seconds", "histogram", "Help.");
        let nothing = Progress::with_latencies()
            .latencies_of(rotproof_load::engine::ProgressKind::Read)
            .expect("latencies are kept");
        page.histogram("took_seconds", &[("operation", "read")], &nothing);
        let found = reader::read(&page.into_text());
        assert_eq!(found.len(), POWERS.count() + 3);
        assert!(found.values().all(|value| *value == 0.0));
    }
}
