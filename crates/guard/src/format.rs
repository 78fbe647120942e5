//! What lies on the disk, as bytes: `docs/format-guard.md`, side by side with this file.
//!
//! Pure functions of bytes. Whatever the bytes are, reading them ends with a value or with [`Damage`], never with a panic.

use crate::sum::{Algorithm, Sum};

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
const HEADER_MAGIC: [u8; 8] = *b"RPGTABLE";
const PAGE_MAGIC: [u8; 4] = *b"RPGP";
/// Where the checksum of a page stands: in its last eight bytes, for settings and headers; at this offset in pages of entries.
const PAGE_SUM_AT: usize = 24;
const NAME_MAX: usize = 1024;
const NAME_AT: usize = 128;
const REGIONS_AT: usize = 2040;

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

/// The two checksums of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The light one, verified on every read.
    pub light: Algorithm,
    /// The strong one, verified when a block comes from the disk.
    pub strong: Algorithm,
}

impl Pair {
    /// Bytes of an entry.
    pub fn entry_bytes(self) -> usize {
        8 + 8 * self.strong.words()
    }

    /// Entries of a page.
    pub fn entries(self) -> u64 {
        ((PAGE - PAGE_HEAD) / self.entry_bytes()) as u64
    }

    /// Both sums of a block.
    pub fn of(self, data: &[u8]) -> Sums {
        Sums { light: self.light.of(data).word(), strong: self.strong.of(data) }
    }

    /// The sums that an entry stands for; `None` if it vouches for nothing.
    pub fn sums_of(self, entry: Entry) -> Option<Sums> {
        match entry {
            Entry::Unknown => None,
            Entry::Zeros => Some(self.of(&[])),
            Entry::Sums(sums) => Some(sums),
        }
    }

    /// The entry of these sums.
    pub fn entry_of(self, sums: Sums) -> Entry {
        if sums == self.of(&[]) { Entry::Zeros } else { Entry::Sums(sums) }
    }
}

/// Both sums of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The light one.
    pub light: u64,
    /// The strong one.
    pub strong: Sum,
}

/// What a table says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: it was never taken in.
    Unknown,
    /// It is all zeros: a hole, or as good as one. All bits of the entry are zero.
    Zeros,
    /// Its sums.
    Sums(Sums),
}

/// All bits one: vouches for nothing.
const UNKNOWN_WORD: u64 = u64::MAX;

impl Entry {
    /// Writes it. Sums of 128 zeros or ones would look like one of the other two: of a block that is not zeros, one in 2^127.
    pub(crate) fn write(self, into: &mut [u8]) {
        let (light, strong) = match self {
            Self::Unknown => (UNKNOWN_WORD, [UNKNOWN_WORD; 4]),
            Self::Zeros => (0, [0; 4]),
            Self::Sums(sums) => (sums.light, sums.strong.0),
        };
        into[..8].copy_from_slice(&light.to_le_bytes());
        for (bytes, word) in into[8..].as_chunks_mut::<8>().0.iter_mut().zip(strong) {
            *bytes = word.to_le_bytes();
        }
    }

    pub(crate) fn read(from: &[u8]) -> Self {
        let words = from.as_chunks::<8>().0;
        if words.iter().all(|word| *word == [0; 8]) {
            return Self::Zeros;
        }
        if words.iter().all(|word| *word == [0xff; 8]) {
            return Self::Unknown;
        }
        let mut strong = [0; 4];
        for (word, bytes) in strong.iter_mut().zip(&words[1..]) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::Sums(Sums { light: u64::from_le_bytes(words[0]), strong: Sum(strong) })
    }
}

/// What is written once, when a directory gets its guard.
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
        let mut page = Writer::new();
        page.bytes(&SETTINGS_MAGIC);
        page.u32(self.version);
        page.u8(self.pair.light.number());
        page.u8(self.pair.strong.number());
        page.u8(u8::from(self.switch_seconds.is_some()));
        page.u8(0);
        page.u32(self.switch_seconds.unwrap_or(0));
        page.u32(crate::sum::BLOCK as u32);
        page.u64(self.made);
        page.bytes(&self.id);
        page.sealed()
    }

    /// From a page.
    pub fn of_page(page: &[u8; PAGE]) -> Result<Self, Damage> {
        let (mut page, version) = Reader::of_sealed(page, SETTINGS_MAGIC)?;
        let light = Algorithm::from_number(page.u8()).ok_or(Damage::Value("the light checksum"))?;
        let strong = Algorithm::from_number(page.u8()).ok_or(Damage::Value("the strong checksum"))?;
        if light.words() != 1 {
            return Err(Damage::Value("the light checksum"));
        }
        let is_dynamic = page.u8() != 0;
        page.u8();
        let seconds = page.u32();
        if page.u32() as usize != crate::sum::BLOCK {
            return Err(Damage::Value("the block size"));
        }
        let made = page.u64();
        Ok(Self {
            id: page.array(),
            pair: Pair { light, strong },
            switch_seconds: is_dynamic.then_some(seconds),
            made,
            version,
        })
    }
}

/// A moment as file systems have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanoseconds: u32,
}

/// The beginning of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Counts up with every write of a header.
    pub generation: u64,
    /// The guard.
    pub guard: [u8; 16],
    /// Number of the inode.
    pub inode: u64,
    /// When the inode was born; an inode that was born at another time is another file. Zeros where nobody knows.
    pub birth: Moment,
    /// What the file system counts the uses of the inode by, where it says that: another number is another file, also if both
    /// were born in one tick of the clock.
    pub reuse: Option<u32>,
    /// The session that wrote this last.
    pub session: [u8; 16],
    /// Bytes of the file when it was last made durable.
    pub size: u64,
    /// Its time of modification then.
    pub modified: Moment,
    /// Sums were written without the data having been made durable.
    pub is_unsynced: bool,
    /// All blocks of the file were taken in, or written through the guard from its beginning.
    pub is_complete: bool,
    /// Somebody changed the file behind the guard's back, and nobody has accepted that.
    pub is_foreign: bool,
    /// Bytes of a region, as a power of two.
    pub region_shift: u8,
    /// A bit for each region that may have been changed in place since it was last made durable.
    pub regions: Box<[u64; REGIONS / 64]>,
    /// Where the file was last seen, below the guarded directory; for people.
    pub name: Vec<u8>,
}

impl Header {
    /// Whether a region is marked as being changed.
    pub fn is_marked(&self, region: usize) -> bool {
        self.regions.get(region / 64).is_some_and(|word| word >> (region % 64) & 1 == 1)
    }

    /// As a page.
    pub fn to_page(&self) -> [u8; PAGE] {
        let mut page = Writer::new();
        page.bytes(&HEADER_MAGIC);
        page.u32(VERSION);
        page.u8(u8::from(self.is_unsynced)
            | u8::from(self.is_complete) << 1
            | u8::from(self.is_foreign) << 2
            | u8::from(self.reuse.is_some()) << 3);
        page.u8(self.region_shift);
        let name = &self.name[..self.name.len().min(NAME_MAX)];
        page.bytes(&(name.len() as u16).to_le_bytes());
        page.u64(self.generation);
        page.bytes(&self.guard);
        page.u64(self.inode);
        page.u64(self.birth.seconds.cast_unsigned());
        page.u32(self.birth.nanoseconds);
        page.u32(self.modified.nanoseconds);
        page.u64(self.modified.seconds.cast_unsigned());
        page.bytes(&self.session);
        page.u64(self.size);
        page.u32(self.reuse.unwrap_or(0));
        debug_assert!(page.at <= NAME_AT);
        page.at = NAME_AT;
        page.bytes(name);
        page.at = REGIONS_AT;
        self.regions.iter().for_each(|word| page.u64(*word));
        page.sealed()
    }

    /// From a page.
    pub fn of_page(page: &[u8; PAGE]) -> Result<Self, Damage> {
        let (mut page, _) = Reader::of_sealed(page, HEADER_MAGIC)?;
        let flags = page.u8();
        let region_shift = page.u8();
        if !(12..=48).contains(&region_shift) {
            return Err(Damage::Value("the size of regions"));
        }
        let name_length = usize::from(u16::from_le_bytes(page.array()));
        if name_length > NAME_MAX {
            return Err(Damage::Value("the length of the name"));
        }
        let generation = page.u64();
        let guard = page.array();
        let inode = page.u64();
        let birth_seconds = page.u64().cast_signed();
        let birth = Moment { seconds: birth_seconds, nanoseconds: page.u32() };
        let nanoseconds = page.u32();
        let modified = Moment { seconds: page.u64().cast_signed(), nanoseconds };
        let session = page.array();
        let size = page.u64();
        let reuse = page.u32();
        let name = page.bytes[NAME_AT..NAME_AT + name_length].to_vec();
        page.at = REGIONS_AT;
        let regions = Box::new(std::array::from_fn(|_| page.u64()));
        Ok(Self {
            generation,
            guard,
            inode,
            birth,
            reuse: (flags & 8 != 0).then_some(reuse),
            session,
            size,
            modified,
            is_unsynced: flags & 1 != 0,
            is_complete: flags & 2 != 0,
            is_foreign: flags & 4 != 0,
            region_shift,
            regions,
            name,
        })
    }
}

/// A page of entries as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryPage {
    /// It was never written: the file has a hole there, or was never taken in.
    Absent,
    /// As it was written.
    Whole(Vec<Entry>),
    /// Its checksum does not hold: torn by a crash, or rotten. An entry whose two sums both fit the data is still right.
    Damaged(Vec<Entry>),
}

/// A page of entries. `index` counts pages from the beginning of the file.
pub fn page_of(pair: Pair, inode: u64, index: u64, entries: &[Entry]) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page[..4].copy_from_slice(&PAGE_MAGIC);
    page[4..8].copy_from_slice(&VERSION.to_le_bytes());
    page[8..16].copy_from_slice(&inode.to_le_bytes());
    page[16..24].copy_from_slice(&index.to_le_bytes());
    let size = pair.entry_bytes();
    for (bytes, entry) in page[PAGE_HEAD..].chunks_exact_mut(size).zip(entries) {
        entry.write(bytes);
    }
    let sum = Algorithm::Xxh3.of(&page).word();
    page[PAGE_SUM_AT..PAGE_SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Reads a page of entries, and whether it is the one that belongs there.
pub fn entries_of(pair: Pair, inode: u64, index: u64, page: &[u8; PAGE]) -> EntryPage {
    if page.iter().all(|byte| *byte == 0) {
        return EntryPage::Absent;
    }
    let entries: Vec<Entry> = page[PAGE_HEAD..]
        .chunks_exact(pair.entry_bytes())
        .take(pair.entries() as usize)
        .map(Entry::read)
        .collect();
    let mut unsealed = *page;
    unsealed[PAGE_SUM_AT..PAGE_SUM_AT + 8].fill(0);
    let is_sealed = Algorithm::Xxh3.of(&unsealed).word().to_le_bytes() == page[PAGE_SUM_AT..PAGE_SUM_AT + 8];
    let is_this = page[..4] == PAGE_MAGIC
        && (VERSION_MIN..=VERSION).any(|version| page[4..8] == version.to_le_bytes())
        && page[8..16] == inode.to_le_bytes()
        && page[16..24] == index.to_le_bytes();
    if is_sealed && is_this { EntryPage::Whole(entries) } else { EntryPage::Damaged(entries) }
}

struct Writer {
    page: [u8; PAGE],
    at: usize,
}

impl Writer {
    fn new() -> Self {
        Self { page: [0; PAGE], at: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.page[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn sealed(mut self) -> [u8; PAGE] {
        let sum = Algorithm::Xxh3.of(&self.page[..PAGE - 8]).word();
        self.page[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
        self.page
    }
}

struct Reader<'a> {
    bytes: &'a [u8; PAGE],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Past magic and version.
    fn of_sealed(bytes: &'a [u8; PAGE], magic: [u8; 8]) -> Result<(Self, u32), Damage> {
        let mut reader = Self { bytes, at: 0 };
        if reader.array::<8>() != magic {
            return Err(Damage::Magic);
        }
        let sum = Algorithm::Xxh3.of(&bytes[..PAGE - 8]).word();
        if sum.to_le_bytes() != bytes[PAGE - 8..] {
            return Err(Damage::Sum);
        }
        match reader.u32() {
            version @ VERSION_MIN..=VERSION => Ok((reader, version)),
            other => Err(Damage::Version(other)),
        }
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let array = *self.bytes[self.at..].first_chunk().expect("fields lie inside the page");
        self.at += N;
        array
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
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
    fn two_sums_of_64_bits_take_less_than_four_thousandths_of_the_data() {
        assert_eq!(PAIR.entries(), 252);
        assert!(PAGE as f64 / (252.0 * 4096.0) < 0.004);
        assert_eq!(Pair { strong: Algorithm::Blake3, ..PAIR }.entries(), 100);
    }

    #[test]
    fn a_flip_anywhere_is_damage() {
        let page = header().to_page();
        for bit in (0..PAGE * 8).step_by(11) {
            let mut flipped = page;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::of_page(&flipped).is_err(), "bit {bit}");
        }
        let entries: Vec<Entry> =
            (0..252).map(|light| Entry::Sums(Sums { light, strong: Sum::of_word(light ^ 77) })).collect();
        let page = page_of(PAIR, 5, 6, &entries);
        assert_eq!(entries_of(PAIR, 5, 6, &page), EntryPage::Whole(entries));
        assert!(matches!(entries_of(PAIR, 5, 7, &page), EntryPage::Damaged(_)), "another page's place");
        assert!(matches!(entries_of(PAIR, 4, 6, &page), EntryPage::Damaged(_)), "another file's");
        for bit in (0..PAGE * 8).step_by(11) {
            let mut flipped = page;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(entries_of(PAIR, 5, 6, &flipped), EntryPage::Damaged(_)), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn entries_come_back(words in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3u8), 0..252)) {
            let entries: Vec<Entry> = words.iter().map(|(light, strong, kind)| match kind {
                0 => Entry::Unknown,
                1 => Entry::Zeros,
                _ => Entry::Sums(Sums { light: *light, strong: Sum::of_word(*strong) }),
            }).collect();
            let EntryPage::Whole(read) = entries_of(PAIR, 1, 2, &page_of(PAIR, 1, 2, &entries)) else {
                return Err(TestCaseError::fail("damaged"));
            };
            prop_assert_eq!(&read[..entries.len()], &entries[..]);
            prop_assert!(read[entries.len()..].iter().all(|entry| *entry == Entry::Zeros));
        }

        #[test]
        fn any_bytes_are_read_without_panic(seed in any::<u64>(), is_magic in any::<bool>()) {
            let mut page: [u8; PAGE] =
                std::array::from_fn(|index| (seed.wrapping_mul(index as u64 + 3) >> 17) as u8);
            if is_magic {
                page[..8].copy_from_slice(&HEADER_MAGIC);
                let sum = Algorithm::Xxh3.of(&page[..PAGE - 8]).word();
                page[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
            }
            let _ = Header::of_page(&page);
            let _ = Settings::of_page(&page);
            let _ = entries_of(PAIR, 0, 0, &page);
        }
    }
}
