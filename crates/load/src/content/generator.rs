//! The stream that fills a block: 32 lanes of 64 bits, each a chain of invertible steps of shift, xor and add.
//!
//! Only operations that every vector unit has, so one source compiles to SSE2, AVX2 and AVX-512; which one runs is
//! chosen once, by what the CPU can. All give the same bytes, and the tests hold them to it. The stream is
//! incompressible, not random in any stronger sense.
//!
//! It knows bytes and headers, not what they mean.

use std::sync::LazyLock;

use crate::BLOCK_BYTES;

/// Bytes of a sector, the unit that identifies itself.
pub const SECTOR_BYTES: usize = 512;
/// Sectors of a block.
pub const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

const WORD: usize = size_of::<u64>();
const LANES: usize = 32;
/// Bytes that all lanes make in one step.
const ROW: usize = LANES * WORD;
const ROWS: usize = BLOCK_BYTES / ROW;
const ROWS_PER_SECTOR: usize = ROWS / SECTORS;

/// A block's worth of bytes.
pub type Block = [u8; BLOCK_BYTES];
/// The first word of each sector.
pub type Headers = [u64; SECTORS];

/// One way to make and to compare blocks.
#[derive(Clone, Copy)]
pub struct Generator {
    fill: unsafe fn(u64, &Headers, &mut Block),
    matches: unsafe fn(u64, &Headers, &Block) -> bool,
    /// Which instructions it uses.
    pub name: &'static str,
}

impl Generator {
    /// The fastest one on this CPU.
    pub fn best() -> Self {
        static BEST: LazyLock<Generator> =
            LazyLock::new(|| *Generator::available().last().expect("the portable generator is always there"));
        *BEST
    }

    /// All that this CPU can run, the fastest last.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Generator { fill: fill_portable, matches: matches_portable, name: "portable" }];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Generator { fill: fill_avx2, matches: matches_avx2, name: "AVX2" });
            }
            if is_x86_feature_detected!("avx512f") {
                all.push(Generator { fill: fill_avx512, matches: matches_avx512, name: "AVX-512" });
            }
        }
        all
    }

    /// Makes the block that grows from `root`.
    pub fn fill(&self, root: u64, headers: &Headers, block: &mut Block) {
        // SAFETY: `available` lists a function only where the CPU has the features it was compiled for.
        unsafe { (self.fill)(root, headers, block) }
    }

    /// Whether `block` is the one that grows from `root`, without making it in memory.
    pub fn matches(&self, root: u64, headers: &Headers, block: &Block) -> bool {
        // SAFETY: as in `fill`.
        unsafe { (self.matches)(root, headers, block) }
    }
}

/// Where each lane begins, relative to the root of the block: unrelated odd numbers, fixed for ever.
static LANE_OFFSETS: [u64; LANES] = {
    let mut offsets = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        // The finaliser of splitmix64 (Steele, Lea, Flood 2014) over multiples of the golden ratio.
        let mut z = (lane as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        offsets[lane] = (z ^ (z >> 31)) | 1;
        lane += 1;
    }
    offsets
};

/// Invertible, so no lane can run into a short cycle that all roots share.
#[inline(always)]
fn step(x: u64) -> u64 {
    let x = x ^ (x >> 27);
    x.wrapping_add(x << 5)
}

/// Makes the block `GROUP` lanes at a time; how many are best for a vector unit was measured.
#[inline(always)]
fn fill<const GROUP: usize>(root: u64, headers: &Headers, block: &mut Block) {
    for first in (0..LANES).step_by(GROUP) {
        let mut lanes = [0; GROUP];
        for (lane, offset) in lanes.iter_mut().zip(&LANE_OFFSETS[first..first + GROUP]) {
            *lane = root.wrapping_add(*offset);
        }
        for row in 0..ROWS {
            let start = row * ROW + first * WORD;
            let out = &mut block[start..start + GROUP * WORD];
            for (lane, word) in lanes.iter_mut().zip(out.chunks_exact_mut(WORD)) {
                *lane = step(*lane);
                word.copy_from_slice(&lane.to_le_bytes());
            }
        }
    }
    for (sector, header) in block.chunks_exact_mut(SECTOR_BYTES).zip(headers) {
        sector[..WORD].copy_from_slice(&header.to_le_bytes());
    }
}

#[inline(always)]
fn matches<const GROUP: usize>(root: u64, headers: &Headers, block: &Block) -> bool {
    let mut difference = 0;
    for (sector, header) in block.chunks_exact(SECTOR_BYTES).zip(headers) {
        difference |= word(&sector[..WORD]) ^ header;
    }
    for first in (0..LANES).step_by(GROUP) {
        let mut lanes = [0; GROUP];
        for (lane, offset) in lanes.iter_mut().zip(&LANE_OFFSETS[first..first + GROUP]) {
            *lane = root.wrapping_add(*offset);
        }
        // The headers are not of the stream: the first lane does not count in the first row of a sector.
        let mut stream = [u64::MAX; GROUP];
        if first == 0 {
            stream[0] = 0;
        }
        let mut differences = [0; GROUP];
        for row in 0..ROWS {
            let start = row * ROW + first * WORD;
            let data = &block[start..start + GROUP * WORD];
            let is_header_row = row % ROWS_PER_SECTOR == 0;
            for lane in 0..GROUP {
                lanes[lane] = step(lanes[lane]);
                let found = word(&data[lane * WORD..(lane + 1) * WORD]) ^ lanes[lane];
                differences[lane] |= if is_header_row { found & stream[lane] } else { found };
            }
        }
        difference |= differences.iter().fold(0, |all, lane| all | lane);
    }
    difference == 0
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"))
}

fn fill_portable(root: u64, headers: &Headers, block: &mut Block) {
    fill::<8>(root, headers, block);
}

fn matches_portable(root: u64, headers: &Headers, block: &Block) -> bool {
    matches::<16>(root, headers, block)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(root: u64, headers: &Headers, block: &mut Block) {
    fill::<LANES>(root, headers, block);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn matches_avx2(root: u64, headers: &Headers, block: &Block) -> bool {
    matches::<LANES>(root, headers, block)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fill_avx512(root: u64, headers: &Headers, block: &mut Block) {
    fill::<LANES>(root, headers, block);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn matches_avx512(root: u64, headers: &Headers, block: &Block) -> bool {
    matches::<LANES>(root, headers, block)
}
