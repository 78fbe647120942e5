//! What the disk says of a file as a whole: the beginning of its table, or of its record in a slot.

use super::fields::{Writer, seal};
use super::{Damage, PAGE, PAGE_SEAL_AT, REGIONS, VERSION, fields_of};

const MAGIC: [u8; 8] = *b"RPGTABLE";
const NAME_MAX: usize = 1024;
const NAME_AT: usize = 128;
const REGIONS_AT: usize = 2040;

/// Bytes of a region that are written, as powers of two.
pub(crate) const REGION_SHIFTS: std::ops::RangeInclusive<u8> = 12..=48;

/// What one byte says, of a table as of a record.
pub(crate) mod bit {
    pub const UNSYNCED: u8 = 1;
    pub const COMPLETE: u8 = 2;
    pub const FOREIGN: u8 = 4;
    pub const HAS_REUSE: u8 = 8;
}

/// A moment as file systems have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanoseconds: u32,
}

/// See the head of the module.
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

    /// Of [`bit`].
    pub(crate) fn bits(&self) -> u8 {
        let of = |is_set: bool, bit| if is_set { bit } else { 0 };
        of(self.is_unsynced, bit::UNSYNCED)
            | of(self.is_complete, bit::COMPLETE)
            | of(self.is_foreign, bit::FOREIGN)
            | of(self.reuse.is_some(), bit::HAS_REUSE)
    }

    /// As a page.
    pub fn to_page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let mut fields = Writer::new(&mut page);
        fields.bytes(&MAGIC);
        fields.u32(VERSION);
        fields.u8(self.bits());
        fields.u8(self.region_shift);
        let name = &self.name[..self.name.len().min(NAME_MAX)];
        fields.u16(name.len() as u16);
        fields.u64(self.generation);
        fields.bytes(&self.guard);
        fields.u64(self.inode);
        fields.u64(self.birth.seconds.cast_unsigned());
        fields.u32(self.birth.nanoseconds);
        fields.u32(self.modified.nanoseconds);
        fields.u64(self.modified.seconds.cast_unsigned());
        fields.bytes(&self.session);
        fields.u64(self.size);
        fields.u32(self.reuse.unwrap_or(0));
        fields.skip_to(NAME_AT);
        fields.bytes(name);
        fields.skip_to(REGIONS_AT);
        self.regions.iter().for_each(|word| fields.u64(*word));
        seal(&mut page, PAGE_SEAL_AT);
        page
    }

    /// From a page.
    pub fn of_page(page: &[u8; PAGE]) -> Result<Self, Damage> {
        let (mut fields, _) = fields_of(page, MAGIC)?;
        let bits = fields.u8();
        let region_shift = fields.u8();
        if !REGION_SHIFTS.contains(&region_shift) {
            return Err(Damage::Value("the size of regions"));
        }
        let name_length = usize::from(fields.u16());
        if name_length > NAME_MAX {
            return Err(Damage::Value("the length of the name"));
        }
        let generation = fields.u64();
        let guard = fields.array();
        let inode = fields.u64();
        let birth_seconds = fields.u64().cast_signed();
        let birth = Moment { seconds: birth_seconds, nanoseconds: fields.u32() };
        let nanoseconds = fields.u32();
        let modified = Moment { seconds: fields.u64().cast_signed(), nanoseconds };
        let session = fields.array();
        let size = fields.u64();
        let reuse = fields.u32();
        fields.skip_to(NAME_AT);
        let name = fields.bytes(name_length).to_vec();
        fields.skip_to(REGIONS_AT);
        let regions = Box::new(std::array::from_fn(|_| fields.u64()));
        Ok(Self {
            generation,
            guard,
            inode,
            birth,
            reuse: (bits & bit::HAS_REUSE != 0).then_some(reuse),
            session,
            size,
            modified,
            is_unsynced: bits & bit::UNSYNCED != 0,
            is_complete: bits & bit::COMPLETE != 0,
            is_foreign: bits & bit::FOREIGN != 0,
            region_shift,
            regions,
            name,
        })
    }
}
