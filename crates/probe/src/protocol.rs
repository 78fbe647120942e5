//! What `rotproof probe --json` says, a line for each sample, and how it is asked for; written here and read here.
//!
//! Whoever reads takes nothing on trust: another machine, or whatever answers in its place, may send anything. So a line
//! has a largest length, and a number is one that there can be. Nothing here knows how lines get from one to the other.

use std::fmt::Write;
use std::io::{BufRead, Read};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rates::Metric;
use crate::spec::ProbesSpec;

/// The form of the lines.
const FORM: u32 = 1;
/// A line with everything of a machine with thousands of disks is not longer.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// A device, an interface or a process with a longer name there is not.
const INSTANCE_BYTES_MAX: usize = 256;
/// What a machine says of itself, and a note.
const TEXT_BYTES_MAX: usize = 512;
/// The longest time between two samples, and then some.
const SPAN_MAX: Duration = Duration::from_secs(2 * 3600);

/// The first line: who speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The form of the lines; 1.
    pub rotproof_probe: u32,
    /// Of Rotproof.
    pub version: String,
    /// The name of the machine, as it calls itself.
    pub host: String,
    /// Which boot of it.
    pub boot: String,
    /// How many it has.
    pub processors: usize,
    /// From one sample to the next.
    pub interval_ns: u64,
}

/// Any other line: what the machine did since the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// How many lines the one who asked had sent when the time began that this stands for: each ends a phase of the run.
    pub phase: u64,
    /// How long that time was.
    pub span: Duration,
    /// Samples that the machine had no time for.
    pub missed: u64,
    /// What, of which device, interface, resource or process, and how much, in the unit of the metric.
    pub values: Vec<(Metric, String, f64)>,
    /// What the machine does not tell, and why; once each.
    pub notes: Vec<String>,
}

/// A sample as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    phase: u64,
    span_ns: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    missed: u64,
    values: Vec<(String, String, f64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Hello {
    /// Of this machine.
    pub fn of_this_machine(interval: Duration) -> Self {
        Self {
            rotproof_probe: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            boot: rotproof_machine::process::boot_id().unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The line, without its end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads it. Fails with what it is instead, and what to do.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let hello: Self = serde_json::from_slice(line).map_err(|_| {
            format!("it does not begin as `rotproof probe --json` does, but with {}", quoted(line))
        })?;
        let ours = env!("CARGO_PKG_VERSION");
        if (hello.rotproof_probe, hello.version.as_str()) != (FORM, ours) {
            let theirs = quoted(hello.version.as_bytes());
            return Err(format!("it has Rotproof {theirs}, and here is {ours}; install the same on both"));
        }
        if [&hello.host, &hello.boot].iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err("it says more of itself than there can be to say".to_owned());
        }
        Ok(hello)
    }
}

impl Sample {
    /// The line, without its end. A value that is no number is left out.
    pub fn to_line(&self) -> String {
        let values = self.values.iter().filter(|(_, _, value)| value.is_finite());
        let written = Written {
            phase: self.phase,
            span_ns: u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX),
            missed: self.missed,
            values: values
                .map(|(metric, instance, value)| (metric.name.to_owned(), instance.clone(), *value))
                .collect(),
            notes: self.notes.clone(),
        };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Reads it. Fails with what is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(line)
            .map_err(|error| format!("{} is no sample: {error}", quoted(line)))?;
        let span = Duration::from_nanos(written.span_ns);
        if span.is_zero() || span > SPAN_MAX {
            return Err(format!("a sample of {span:?} there cannot be"));
        }
        if let Some(note) = written.notes.iter().find(|note| note.len() > TEXT_BYTES_MAX) {
            return Err(format!("a note of {} bytes there cannot be", note.len()));
        }
        let values = written.values.into_iter().map(|(name, instance, value)| {
            let metric = Metric::named(&name)
                .ok_or_else(|| format!("there is nothing called {}", quoted(name.as_bytes())))?;
            if instance.len() > INSTANCE_BYTES_MAX || instance.chars().any(char::is_control) {
                return Err(format!("{name} is of {}, which is no name", quoted(instance.as_bytes())));
            }
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("{name} cannot be {value}"));
            }
            Ok((metric, instance, value))
        });
        Ok(Self {
            phase: written.phase,
            span,
            missed: written.missed,
            values: values.collect::<Result<_, _>>()?,
            notes: written.notes,
        })
    }
}

/// Reads the next line into `line`, without its end. `false` at the end of the input; what stands there without an end of
/// its own was not sent whole, and is left. Fails if the line is too long or cannot be read.
pub fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
    line.clear();
    let most = LINE_BYTES_MAX as u64 + 1;
    input.by_ref().take(most).read_until(b'\n', line).map_err(|error| error.to_string())?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(true);
    }
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("it sends a line of more than {LINE_BYTES_MAX} bytes"));
    }
    Ok(false)
}

/// The arguments that ask for these probes, the program aside. A shell or two may come in between (that of ssh is one), so
/// they hold nothing that one would touch.
pub fn arguments(spec: &ProbesSpec) -> Vec<String> {
    let mut words = ["probe", "--json", "--interval"].map(str::to_owned).to_vec();
    words.push(spec.interval.to_string());
    let without: Vec<&str> =
        spec.groups().into_iter().filter(|(_, is_on)| !is_on).map(|(name, _)| name).collect();
    if !without.is_empty() {
        words.push(format!("--without={}", without.join(",")));
    }
    if !spec.processes.is_empty() {
        let names: Vec<String> = spec.processes.iter().map(|name| escaped(name)).collect();
        words.push(format!("--processes={}", names.join(",")));
    }
    words
}

/// A name of a process with everything in it that a shell or a list could take for something else as `%XX`.
fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' | b'/' => {
                text.push(byte.into());
            }
            _ => {
                // Writing to a text cannot fail.
                let _ = write!(text, "%{byte:02x}");
            }
        }
        text
    })
}

/// The name that was meant by one with `%XX` in it. Fails if that is no name.
pub fn unescaped(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` has a % without two digits behind it; a percent sign itself is %25");
    let mut bytes = text.bytes();
    let mut name = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(wrong);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        name.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(name).map_err(|_| wrong())
}

/// The beginning of what somebody else sent, so that it can be shown.
fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    let shown: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let more = if shown.chars().count() < text.chars().count() { "..." } else { "" };
    if shown.is_empty() { "nothing".to_owned() } else { format!("`{shown}`{more}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates;

    fn sample() -> Sample {
        Sample {
            phase: 2,
            span: Duration::from_millis(1001),
            missed: 3,
            values: vec![
                (rates::CPU_USER, String::new(), 0.25),
                (rates::DISK_READ, "nvme0n1".into(), 1.5e9),
                (rates::DISK_READS, "sda".into(), f64::NAN),
            ],
            notes: vec!["/proc/pressure/io: this kernel has no such file".into()],
        }
    }

    #[test]
    fn what_is_written_reads_back_but_for_what_is_no_number() {
        let hello = Hello::of_this_machine(Duration::from_secs(1));
        assert_eq!(Hello::parse(hello.to_line().as_bytes()), Ok(hello.clone()));
        assert!(hello.processors > 0 && !hello.boot.is_empty() && hello.interval_ns == 1_000_000_000);
        let mut wanted = sample();
        wanted.values.pop();
        assert_eq!(Sample::parse(sample().to_line().as_bytes()), Ok(wanted));
    }

    #[test]
    fn whoever_is_not_the_same_rotproof_is_refused() {
        let hello = Hello::of_this_machine(Duration::from_secs(1));
        let other = Hello { version: "99.1.0".into(), ..hello.clone() }.to_line();
        let why = Hello::parse(other.as_bytes()).expect_err("another version");
        assert!(
            why.starts_with("it has Rotproof `99.1.0`") && why.ends_with("install the same on both"),
            "{why}"
        );
        Hello::parse(Hello { rotproof_probe: 2, ..hello.clone() }.to_line().as_bytes())
            .expect_err("another form");
        let endless = Hello { host: "x".repeat(TEXT_BYTES_MAX + 1), ..hello };
        Hello::parse(endless.to_line().as_bytes()).expect_err("too long a name");
        let why = Hello::parse(b"Welcome to \x1b[31mtarget!").expect_err("a greeting of somebody else");
        assert!(why.ends_with("but with `Welcome to \u{fffd}[31mtarget!`"), "{why}");
        assert!(Hello::parse(b"").is_err_and(|why| why.ends_with("but with nothing")));
    }

    #[test]
    fn what_no_machine_could_say_is_no_sample() {
        let line = sample().to_line();
        for (from, to) in [
            ("cpu.user", "cpu.mood"),
            ("0.25", "-0.25"),
            ("0.25", "1e999"),
            ("0.25", "null"),
            ("nvme0n1", "nvme\\u0000"),
            ("1001000000", "0"),
            ("1001000000", "9000000000000"),
            ("\"phase\":2", "\"phase\":-2"),
            ("{", "[{"),
            ("\"missed\"", "\"mist\""),
        ] {
            assert!(line.contains(from), "{from} in {line}");
            let wrong = line.replacen(from, to, 1);
            assert!(Sample::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let long = "x".repeat(INSTANCE_BYTES_MAX + 1);
        Sample::parse(line.replace("nvme0n1", &long).as_bytes()).expect_err("a long name");
    }

    #[test]
    fn lines_are_whole_and_of_a_bounded_length() {
        let mut line = Vec::new();
        let mut input = &b"one\n\ntwo"[..];
        assert_eq!((read_line(&mut input, &mut line), line.as_slice()), (Ok(true), &b"one"[..]));
        assert_eq!((read_line(&mut input, &mut line), line.len()), (Ok(true), 0));
        assert_eq!(read_line(&mut input, &mut line), Ok(false), "it may go on, but not here");
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        assert!(read_line(&mut endless, &mut line).is_err_and(|why| why.contains("more than 1048576 bytes")));
        let most = [vec![b'x'; LINE_BYTES_MAX], b"\n".to_vec()].concat();
        assert_eq!(read_line(&mut most.as_slice(), &mut line), Ok(true));
    }

    #[test]
    fn arguments_hold_nothing_that_a_shell_would_touch() {
        let spec = ProbesSpec {
            network: false,
            pressure: false,
            processes: vec!["jbd2*".into(), "a b,'$(x)%".into(), "kworker/u8:1".into()],
            ..ProbesSpec::default()
        };
        let words = arguments(&spec);
        assert_eq!(words[..4], ["probe", "--json", "--interval", "1s"]);
        assert_eq!(
            words[4..],
            ["--without=network,pressure", "--processes=jbd2%2a,a%20b%2c%27%24%28x%29%25,kworker/u8:1"]
        );
        assert_eq!(arguments(&ProbesSpec::default()).len(), 4);
        let names: Vec<_> = words[5]["--processes=".len()..].split(',').map(unescaped).collect();
        assert_eq!(names, spec.processes.into_iter().map(Ok).collect::<Vec<_>>());
        for wrong in ["%", "%4", "%zz", "%ff", "a%+1"] {
            assert!(unescaped(wrong).is_err(), "{wrong}");
        }
    }
}
