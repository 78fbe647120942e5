//! A trace as a stream: one access after the other, whatever its size, with a count of what makes no sense.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde::Serialize;

use crate::access::Access;
use crate::format::blktrace::{self, RECORD_BYTES};
use crate::format::{Format, Lines, Reading};

/// Longest line that is looked at.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How many malformed lines are kept to be shown.
const SHOWN_MAX: usize = 10;
/// How much of a malformed line is kept.
const SHOWN_CHARACTERS: usize = 60;

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many malformed lines or records a trace may have; one more ends it.
    pub malformed: u64,
}

impl Default for Limits {
    /// A hundred: traces end in the middle of a line, and are concatenated with their headers.
    fn default() -> Self {
        Self { malformed: 100 }
    }
}

/// A line or record that is none of its format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Malformed {
    /// Its number, from 1.
    pub number: u64,
    /// What is wrong with it.
    pub why: std::borrow::Cow<'static, str>,
    /// How it begins; empty for a binary record.
    pub text: String,
}

/// Why a trace ended before its end.
#[derive(Debug)]
pub enum Stop {
    /// It could not be read.
    Io(io::Error),
    /// Too much of it is malformed; the last is told.
    Malformed(Malformed),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "reading the trace: {error}"),
            Self::Malformed(Malformed { number, why, text }) if text.is_empty() => {
                write!(f, "too much of the trace is malformed; record {number}: {why}")
            }
            Self::Malformed(Malformed { number, why, text }) => {
                write!(f, "too much of the trace is malformed; line {number}: {why}: {text:?}")
            }
        }
    }
}

impl std::error::Error for Stop {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Malformed(_) => None,
        }
    }
}

/// The accesses of a trace, in its order. Times count from the first of them; one that is earlier is at 0.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    limits: Limits,
    lines: Lines,
    is_binary: bool,
    buffer: Vec<u8>,
    /// Lines or records so far.
    number: u64,
    began_ns: Option<u64>,
    malformed: u64,
    shown: Vec<Malformed>,
    is_over: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads `input` as `format`.
    pub fn new(input: R, format: Format, limits: Limits) -> Self {
        Self::of(input, &Reading::of(format), limits)
    }

    /// Reads `input` as `reading` says.
    pub fn of(input: R, reading: &Reading, limits: Limits) -> Self {
        Self {
            input,
            limits,
            lines: Lines::new(reading),
            is_binary: reading.format == Format::Blktrace,
            buffer: Vec::new(),
            number: 0,
            began_ns: None,
            malformed: 0,
            shown: Vec::new(),
            is_over: false,
        }
    }

    /// How many lines or records were malformed so far.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The first ten of them.
    pub fn shown(&self) -> &[Malformed] {
        &self.shown
    }

    fn advance(&mut self) -> Result<Option<Access>, Stop> {
        loop {
            let parsed = if self.is_binary { self.next_record() } else { self.next_line() };
            match parsed.map_err(Stop::Io)? {
                None => return Ok(None),
                Some(Ok(None)) => {}
                Some(Ok(Some(access))) => {
                    let began = *self.began_ns.get_or_insert(access.at_ns);
                    return Ok(Some(Access { at_ns: access.at_ns.saturating_sub(began), ..access }));
                }
                Some(Err(why)) => self.note(why)?,
            }
        }
    }

    fn note(&mut self, why: &'static str) -> Result<(), Stop> {
        self.malformed += 1;
        let text = if self.is_binary { &[][..] } else { &self.buffer };
        let text: String = String::from_utf8_lossy(text).trim_end().chars().take(SHOWN_CHARACTERS).collect();
        let malformed = Malformed { number: self.number, why: why.into(), text };
        if self.malformed > self.limits.malformed {
            return Err(Stop::Malformed(malformed));
        }
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(malformed);
        }
        Ok(())
    }

    /// What the next line says; nothing at the end.
    fn next_line(&mut self) -> io::Result<Option<crate::format::Parsed>> {
        self.buffer.clear();
        let limit = LINE_BYTES_MAX as u64;
        if self.input.by_ref().take(limit).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.buffer.len() == LINE_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
            skip_line(&mut self.input)?;
            return Ok(Some(Err("a line of more than 64 KiB")));
        }
        let Ok(text) = std::str::from_utf8(&self.buffer) else { return Ok(Some(Err("not text"))) };
        let line = text.trim();
        Ok(Some(if line.is_empty() { Ok(None) } else { self.lines.parse(line) }))
    }

    /// What the next record says; nothing at the end. What is no record ends the trace, as nothing tells where the next
    /// one would begin.
    fn next_record(&mut self) -> io::Result<Option<crate::format::Parsed>> {
        self.buffer.clear();
        if self.input.by_ref().take(RECORD_BYTES as u64).read_to_end(&mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let Some(bytes) = self.buffer.first_chunk::<RECORD_BYTES>() else {
            return Ok(Some(Err("the trace ends within a record")));
        };
        let record = match blktrace::parse(bytes) {
            Ok(record) => record,
            Err(why) => {
                io::copy(&mut self.input, &mut io::sink())?;
                return Ok(Some(Err(why)));
            }
        };
        let extra = record.extra_bytes as u64;
        if io::copy(&mut self.input.by_ref().take(extra), &mut io::sink())? < extra {
            return Ok(Some(Err("the trace ends within a record")));
        }
        Ok(Some(Ok(record.access)))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Access, Stop>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.advance().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads on to the end of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        let end = available.iter().position(|&byte| byte == b'\n');
        let count = end.map_or(available.len(), |end| end + 1);
        input.consume(count);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access::Operation;
    use crate::format::blktrace::tests::record;

    fn read(format: Format, bytes: &[u8], limit: u64) -> (Vec<Access>, Option<Stop>, u64, Vec<Malformed>) {
        let mut reader = Reader::new(bytes, format, Limits { malformed: limit });
        let (mut accesses, mut stop) = (Vec::new(), None);
        for next in reader.by_ref() {
            match next {
                Ok(access) => accesses.push(access),
                Err(why) => stop = Some(why),
            }
        }
        (accesses, stop, reader.malformed(), reader.shown().to_vec())
    }

    #[test]
    fn times_count_from_the_first_access() {
        let text = "0,0,512,r,100.5\n0,1,512,w,100.75\n\n0,2,512,r,100.4\n";
        let (accesses, stop, malformed, _) = read(Format::Spc, text.as_bytes(), 0);
        let times: Vec<u64> = accesses.iter().map(|access| access.at_ns).collect();
        assert_eq!(times, [0, 250_000_000, 0]);
        assert!(stop.is_none() && malformed == 0);
    }

    #[test]
    fn malformed_lines_are_counted_shown_and_limited() {
        let text = b"0,0,512,r,0\nrubbish\n0,1,512,w,1\n\xff\xfe\n0,2,512,r";
        let (accesses, stop, malformed, shown) = read(Format::Spc, text, 3);
        assert_eq!((accesses.len(), malformed, stop.is_none()), (2, 3, true));
        assert_eq!(
            shown[0],
            Malformed { number: 2, why: "the unit (ASU) is no number".into(), text: "rubbish".into() }
        );
        assert_eq!((shown[1].number, &*shown[1].why), (4, "not text"));
        let (accesses, stop, ..) = read(Format::Spc, text, 1);
        assert_eq!(accesses.len(), 2, "what came before the limit stands");
        let told = stop.expect("the limit is reached").to_string();
        assert!(told.contains("line 4") && told.contains("not text"), "{told}");
    }

    #[test]
    fn a_line_without_end_is_one_malformed_line() {
        let mut text = vec![b'x'; 3 * LINE_BYTES_MAX];
        text.extend(b"\n0,0,512,r,0\n");
        let (accesses, _, malformed, shown) = read(Format::Spc, &text, 5);
        assert_eq!((accesses.len(), malformed, shown[0].number), (1, 1, 1));
    }

    #[test]
    fn binary_records_are_read_to_where_they_break() {
        let mut bytes = record(true, 1_000, 8, 4096, 1 | 1 << 16, 3);
        bytes.extend([1, 2, 3]);
        bytes.extend(record(true, 3_000, 16, 512, 1 | 2 << 16, 0));
        let (accesses, _, malformed, _) = read(Format::Blktrace, &bytes, 0);
        let short: Vec<_> = accesses.iter().map(|a| (a.at_ns, a.operation, a.offset, a.length)).collect();
        assert_eq!(short, [(0, Operation::Read, 4096, 4096), (2_000, Operation::Write, 8192, 512)]);
        assert_eq!(malformed, 0);
        bytes.extend([9; 50]);
        assert_eq!(read(Format::Blktrace, &bytes, 5).2, 1);
        bytes.truncate(bytes.len() - 50 - 7);
        assert_eq!(read(Format::Blktrace, &bytes, 5).0.len(), 1);
    }

    #[test]
    fn every_format_is_recognised_by_its_beginning() {
        for (format, text) in [
            (Format::Spc, "0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041\n1,3"),
            (Format::Msr, "128166372003061629,usr,0,Read,7014609920,24576,41286\n"),
            (
                Format::Blkparse,
                "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [k]\n  8,0    3        2     0.000107204   697  Q   W 223490 + 8 [k]\n",
            ),
            (Format::Fio, "fio version 2 iolog\n/a add\n"),
            (Format::Disksim, "0.0 0 100 8 1\n1.5 0 108 8 1\n"),
            (Format::Csv, "time_us,op,offset,length\n1,read,0,512\n"),
            (
                Format::Msr,
                "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1,usr,0,Read,0,512,3\n",
            ),
            (Format::Systor, "Timestamp,Response,IOType,LUN,Offset,Size\n1455592215.5,,R,4,0,512\n"),
            (Format::Systor, "1455592215.5,0.0002,R,4,0,512\n1455592216.5,,W,4,0,512\n"),
            (Format::Tencent, "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n"),
            (Format::Alibaba, "64,W,38654705664,4096,1577808000000046\n64,R,0,512,1577808000000047\n"),
            (Format::Cloudphysics, "ts,lbn,op,len\n250,8,28,4096\n"),
        ] {
            assert_eq!(Format::detect(text.as_bytes()), Some(format), "{}", format.name());
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        assert_eq!(Format::detect(&record(false, 0, 0, 0, 0, 0)), Some(Format::Blktrace));
        for text in ["", "\n\n", "hello world\nhow are you\n", "\u{0}\u{1}"] {
            assert_eq!(Format::detect(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_arrives_nothing_panics_and_lengths_make_sense(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            words in prop::collection::vec("[0-9a-zA-Z,. +#/\n]{0,12}", 0..60),
        ) {
            Format::detect(&bytes);
            for format in Format::ALL {
                for input in [&bytes[..], words.concat().as_bytes()] {
                    for access in read(format, input, u64::MAX).0 {
                        prop_assert_eq!(access.length == 0, access.operation == Operation::Flush);
                    }
                }
            }
        }
    }
}
