//! What lies on the disk, as bytes: `docs/format-guard.md`, side by side with these files.
//!
//! Pure functions of bytes. Whatever the bytes are, reading them ends with a value or with [`Damage`], never with a panic.

mod entries;
pub(crate) mod fields;
pub(crate) mod header;

pub use entries::{Entry, EntryPage, Pair, Stamp, Sums, entries_of, page_of, stamp_of};
pub use header::{Header, Moment};

use self::fields::{Reader, SEAL_BYTES, Writer, is_sealed, seal};
use crate::sum::Algorithm;

/// Version of the format that is written.
pub const VERSION: u32 = 2;

/// The oldest version that is read. It has tables only: [`crate::record`] is new in 2.
pub const VERSION_MIN: u32 = 1;

/// Bytes of every page: of the settings, of a header, of entries.
pub const PAGE: usize = 4096;

/// Bytes in front of the entries of a page.
pub const PAGE_HEAD: usize = 64;

/// Headers at the beginning of a table. The one with the higher generation holds; they are written in turns, so that one that
/// a crash tears leaves the other.
pub const HEADERS: u64 = 2;

/// Regions of which a table knows whether they were being changed.
pub const REGIONS: usize = 16_384;

const SETTINGS_MAGIC: [u8; 8] = *b"RPGUARD\0";
/// Where the seal of settings and headers stands.
const PAGE_SEAL_AT: usize = PAGE - SEAL_BYTES;

/// Bytes that are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// They do not begin as they should.
    Magic,
    /// A newer Rotproof wrote them.
    Version(u32),
    /// They do not have their checksum.
    Sum,
    /// A value that nobody writes.
    Value(&'static str),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => f.write_str("it does not begin as it should"),
            Self::Version(version) => write!(
                f,
                "it has version {version} of the format, and this Rotproof knows {VERSION}; use a newer one"
            ),
            Self::Sum => f.write_str("its checksum does not hold"),
            Self::Value(what) => write!(f, "{what} has a value that is never written"),
        }
    }
}

/// What is settled when a directory gets its guard: a page, which is written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of this guard and no other.
    pub id: [u8; 16],
    /// Its checksums.
    pub pair: Pair,
    /// Seconds since a strong verification after which the next one is strong again; `None`: light for ever (static).
    pub switch_seconds: Option<u32>,
    /// When it was made, seconds since 1970.
    pub made: u64,
    /// Version of the format that the guard has.
    pub version: u32,
}

impl Settings {
    /// As a page.
    pub fn to_page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let mut fields = Writer::new(&mut page);
        fields.bytes(&SETTINGS_MAGIC);
        fields.u32(self.version);
        fields.u8(self.pair.light.number());
        fields.u8(self.pair.strong.number());
        fields.u8(u8::from(self.switch_seconds.is_some()));
        fields.u8(0);
        fields.u32(self.switch_seconds.unwrap_or(0));
        fields.u32(crate::sum::BLOCK as u32);
        fields.u64(self.made);
        fields.bytes(&self.id);
        seal(&mut page, PAGE_SEAL_AT);
        page
    }

    /// From a page.
    pub fn of_page(page: &[u8; PAGE]) -> Result<Self, Damage> {
        let (mut fields, version) = fields_of(page, SETTINGS_MAGIC)?;
        let light = Algorithm::from_number(fields.u8()).ok_or(Damage::Value("the light checksum"))?;
        let strong = Algorithm::from_number(fields.u8()).ok_or(Damage::Value("the strong checksum"))?;
        if light.words() != 1 {
            return Err(Damage::Value("the light checksum"));
        }
        let is_dynamic = fields.u8() != 0;
        fields.u8();
        let seconds = fields.u32();
        if fields.u32() as usize != crate::sum::BLOCK {
            return Err(Damage::Value("the block size"));
        }
        let made = fields.u64();
        Ok(Self {
            id: fields.array(),
            pair: Pair { light, strong },
            switch_seconds: is_dynamic.then_some(seconds),
            made,
            version,
        })
    }
}

/// The fields of a page with this magic behind its version, and the version.
fn fields_of(page: &[u8; PAGE], magic: [u8; 8]) -> Result<(Reader<'_>, u32), Damage> {
    let mut fields = Reader::new(page);
    if fields.array::<8>() != magic {
        return Err(Damage::Magic);
    }
    if !is_sealed(page, PAGE_SEAL_AT) {
        return Err(Damage::Sum);
    }
    match fields.u32() {
        version @ VERSION_MIN..=VERSION => Ok((fields, version)),
        other => Err(Damage::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAIR: Pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };

    fn header() -> Header {
        let mut regions = Box::new([0; REGIONS / 64]);
        regions[3] = 0x80;
        Header {
            generation: 7,
            guard: [1; 16],
            inode: 12,
            birth: Moment { seconds: 5, nanoseconds: 6 },
            reuse: Some(8),
            session: [2; 16],
            size: 1 << 40,
            modified: Moment { seconds: -1, nanoseconds: 9 },
            is_unsynced: true,
            is_complete: false,
            is_foreign: true,
            region_shift: 20,
            regions,
            name: b"a/b".to_vec(),
        }
    }

    #[test]
    fn headers_and_settings_come_back() {
        let header = header();
        assert_eq!(Header::of_page(&header.to_page()), Ok(header.clone()));
        assert!(header.is_marked(3 * 64 + 7) && !header.is_marked(0) && !header.is_marked(usize::MAX));
        for switch_seconds in [None, Some(0), Some(92)] {
            let settings = Settings { id: [3; 16], pair: PAIR, switch_seconds, made: 99, version: VERSION };
            assert_eq!(Settings::of_page(&settings.to_page()), Ok(settings));
        }
    }

    #[test]
    fn a_flip_anywhere_in_a_header_is_damage() {
        let page = header().to_page();
        for bit in (0..PAGE * 8).step_by(11) {
            let mut flipped = page;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::of_page(&flipped).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(seed in any::<u64>(), is_magic in any::<bool>()) {
            let mut page: [u8; PAGE] =
                std::array::from_fn(|index| (seed.wrapping_mul(index as u64 + 3) >> 17) as u8);
            if is_magic {
                page[..8].copy_from_slice(b"RPGTABLE");
                seal(&mut page, PAGE_SEAL_AT);
            }
            let _ = Header::of_page(&page);
            let _ = Settings::of_page(&page);
            let _ = entries_of(PAIR, 0, 0, &page);
        }
    }
}
