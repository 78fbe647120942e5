//! Traces that are compressed, as archives of them are: read as a stream of what is in them. By what, their first bytes
//! tell.

use std::fmt;
use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

/// What is in a file: itself, or what was compressed into it by gzip or zstd.
pub struct Plain<R: BufRead>(Kind<R>);

enum Kind<R: BufRead> {
    AsIs(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<Decoder<'static, R>>),
}

/// RFC 1952, section 2.3.1: ID1 and ID2.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// RFC 8878, section 3.1.1: the magic number, little-endian.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl<R: BufRead> Plain<R> {
    /// Looks at the beginning, of which `input` must give four bytes at once if it has so many, as one with a buffer
    /// does. None of the formats of traces begins as a compressed file does.
    pub fn of(mut input: R) -> io::Result<Self> {
        let beginning = input.fill_buf()?;
        let (is_gzip, is_zstd) = (beginning.starts_with(&GZIP), beginning.starts_with(&ZSTD));
        Ok(Self(match () {
            () if is_gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(input))),
            () if is_zstd => Kind::Zstd(Box::new(Decoder::with_buffer(input)?)),
            () => Kind::AsIs(input),
        }))
    }
}

impl<R: BufRead> Read for Plain<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::AsIs(input) => input.read(into),
            Kind::Gzip(input) => input.read(into),
            Kind::Zstd(input) => input.read(into),
        }
    }
}

impl<R: BufRead> fmt::Debug for Plain<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::AsIs(_) => "Plain(as it is)",
            Kind::Gzip(_) => "Plain(of gzip)",
            Kind::Zstd(_) => "Plain(of zstd)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Write};

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).expect("into memory");
        encoder.finish().expect("into memory")
    }

    fn zstd_of(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 3).expect("into memory")
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        Plain::of(BufReader::with_capacity(64, bytes))?.read_to_end(&mut found)?;
        Ok(found)
    }

    #[test]
    fn what_is_compressed_reads_as_what_is_in_it_also_in_several_pieces() {
        let text: Vec<u8> =
            (0..50_000u32).flat_map(|n| format!("{n},write,{}\n", n * 7).into_bytes()).collect();
        let (one, two) = text.split_at(1234);
        for (bytes, wanted) in [
            (text.clone(), &text[..]),
            (gzip(&text), &text),
            (zstd_of(&text), &text),
            ([gzip(one), gzip(two)].concat(), &text),
            ([zstd_of(one), zstd_of(two)].concat(), &text),
            (Vec::new(), b""),
            (gzip(b""), b""),
            (b"\x1f".to_vec(), b"\x1f"),
        ] {
            assert_eq!(read(&bytes).expect("reads"), wanted, "{:?}", &bytes[..bytes.len().min(8)]);
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_not_a_shorter_trace() {
        let text = b"0,write,0\n".repeat(5000);
        for whole in [gzip(&text), zstd_of(&text)] {
            for cut in [5, whole.len() / 2, whole.len() - 1] {
                assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
}
