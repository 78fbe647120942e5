//! A flip in each period of a block's life, for four systems: what Zhang tells of in chapter 3 as a table.
//!
//! A block is made in the writer's memory, goes to the page cache, lies there dirty, reaches the disk, is read into the cache,
//! and arrives in the reader's memory. The four systems carry it with the same code of [`crate::chain`] that real files are
//! carried with; the places are vectors. One bit of the data or of a checksum is flipped in one period, at a place drawn
//! from the seed.

use std::fmt;

use serde::Serialize;

use crate::chain::{Case, Summed, Transfer};
use crate::sum::{Algorithm, BLOCK, Sum};

/// A system that carries blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// No checksum.
    Plain,
    /// One that the writer makes and the reader verifies. In between it is stored.
    EndToEnd,
    /// Light in memory, strong on the disk; chained where data cross.
    Z2Static,
    /// The same, and a block that was in the cache for long is verified by the strong sum.
    Z2Dynamic,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::EndToEnd, Self::Z2Static, Self::Z2Dynamic];
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plain => "plain",
            Self::EndToEnd => "E2E",
            Self::Z2Static => "Z2 static",
            Self::Z2Dynamic => "Z2 dynamic",
        })
    }
}

/// When the bit flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// In the writer's memory, before it made its checksum.
    BeforeSum,
    /// In the writer's memory, after it.
    WriterMemory,
    /// In the page cache, before the block is on the disk.
    DirtyCache,
    /// On the disk.
    Disk,
    /// In the page cache, after the block was read.
    CleanCache,
    /// In the reader's memory, before it looks at the data.
    ReaderMemory,
}

impl Period {
    /// All of them, as they come.
    pub const ALL: [Self; 6] = [
        Self::BeforeSum,
        Self::WriterMemory,
        Self::DirtyCache,
        Self::Disk,
        Self::CleanCache,
        Self::ReaderMemory,
    ];
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BeforeSum => "writer's memory, before its checksum",
            Self::WriterMemory => "writer's memory, after it",
            Self::DirtyCache => "page cache, dirty",
            Self::Disk => "disk",
            Self::CleanCache => "page cache, after reading",
            Self::ReaderMemory => "reader's memory",
        })
    }
}

/// What became of a flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The reader got other data than the writer meant, and nobody was told.
    Silent,
    /// The write failed before the data reached the file, and went well when it was done again.
    WrittenAgain,
    /// `fsync` said so, before the writer had forgotten the data, and it wrote them again.
    ToldByFsync,
    /// The reader was told, and there were no right data any more.
    Refused,
    /// The reader got the right data, read once more from where they were right.
    ReadAgain,
    /// Nobody was the worse for it.
    Harmless,
}

impl Fate {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Silent, Self::WrittenAgain, Self::ToldByFsync, Self::Refused, Self::ReadAgain, Self::Harmless];
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Silent => "**silent**",
            Self::WrittenAgain => "write fails, done again",
            Self::ToldByFsync => "fsync fails, done again",
            Self::Refused => "read fails",
            Self::ReadAgain => "read again, right",
            Self::Harmless => "harmless",
        })
    }
}

/// How often which fate was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The system.
    pub system: System,
    /// The period.
    pub period: Period,
    /// Each fate that was seen, and how often.
    pub fates: Vec<(Fate, u32)>,
}

impl Cell {
    /// How often a fate was seen.
    pub fn count(&self, fate: Fate) -> u32 {
        self.fates.iter().find(|(seen, _)| *seen == fate).map_or(0, |(_, count)| *count)
    }
}

/// Injects so many flips into each cell of the table. The same seed gives the same table.
pub fn period_table(injections: u32, seed: u64) -> Vec<Cell> {
    let cells = Period::ALL.into_iter().flat_map(|period| System::ALL.map(|system| (system, period)));
    cells
        .map(|(system, period)| {
            let mut counts = [0; Fate::ALL.len()];
            for number in 0..injections {
                let fate =
                    Life::new(system, period, mix(seed, u64::from(number) << 8 | period as u64)).live();
                counts[Fate::ALL.iter().position(|known| *known == fate).unwrap_or(0)] += 1;
            }
            let fates = Fate::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
            Cell { system, period, fates }
        })
        .collect()
}

/// The table in Markdown, as it stands in `docs/guard.md`.
pub fn to_markdown(cells: &[Cell]) -> String {
    let mut text = String::from("| the bit flips in |");
    System::ALL.iter().for_each(|system| text += &format!(" {system} |"));
    text += "\n|---|---|---|---|---|\n";
    for period in Period::ALL {
        text += &format!("| {period} |");
        for cell in cells.iter().filter(|cell| cell.period == period) {
            let all: u32 = cell.fates.iter().map(|(_, count)| count).sum();
            let words: Vec<String> = cell
                .fates
                .iter()
                .map(|(fate, count)| match *count == all {
                    true => fate.to_string(),
                    false => format!("{fate} {:.0}%", f64::from(*count) * 100.0 / f64::from(all)),
                })
                .collect();
            text += &format!(" {} |", words.join(", "));
        }
        text += "\n";
    }
    text
}

/// Light and strong sum of the guard's default; E2E has the light one only.
const LIGHT: Algorithm = Algorithm::Xor64;
const STRONG: Algorithm = Algorithm::Xxh3;

/// A block with both sums, in the cache or on the disk.
#[derive(Clone)]
struct Stored {
    data: Vec<u8>,
    light: Sum,
    strong: Sum,
}

impl Stored {
    fn by(&self, algorithm: Algorithm) -> Summed<Vec<u8>> {
        let sum = if algorithm == LIGHT { self.light } else { self.strong };
        Summed { data: self.data.clone(), sum, algorithm }
    }
}

/// One block from its writer to its reader.
struct Life {
    system: System,
    period: Period,
    draw: u64,
    meant: Vec<u8>,
    /// The flip happens once, also if something is done again.
    is_flipped: bool,
}

impl Life {
    fn new(system: System, period: Period, draw: u64) -> Self {
        let meant = (0..BLOCK as u64).map(|at| (mix(draw, at) >> 11) as u8).collect();
        Self { system, period, draw, meant, is_flipped: false }
    }

    fn has_sums(&self) -> bool {
        self.system != System::Plain
    }

    fn is_chained(&self) -> bool {
        matches!(self.system, System::Z2Static | System::Z2Dynamic)
    }

    /// The flip of this life, if this is its period: mostly in the data, now and then in a checksum that lies beside them.
    fn strike(&mut self, period: Period, data: &mut [u8], sums: &mut [&mut Sum]) {
        if self.period != period || self.is_flipped {
            return;
        }
        self.is_flipped = true;
        let at = mix(self.draw, 1);
        match sums {
            [.., sum] if self.has_sums() && at.is_multiple_of(8) => sum.0[0] ^= 1 << (at >> 8 & 63),
            _ => {
                let bit = (at >> 8) as usize % (data.len() * 8);
                data[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    fn live(mut self) -> Fate {
        let mut is_written_again = false;
        let mut is_told = false;
        // The writer. It has the data still until fsync returned.
        let mut disk = loop {
            let Some(mut cached) = self.write() else {
                is_written_again = true;
                continue;
            };
            let Stored { data, light, .. } = &mut cached;
            self.strike(Period::DirtyCache, data, &mut [light]);
            match self.sync(&cached) {
                Some(stored) => break stored,
                None => is_told = true,
            }
        };
        let Stored { data, light, strong } = &mut disk;
        self.strike(Period::Disk, data, &mut [light, strong]);
        // The reader, who reads once more if it is told to.
        let mut is_read_again = false;
        for _ in 0..2 {
            match self.read(&disk) {
                Some(data) if data != self.meant => return Fate::Silent,
                Some(_) if is_written_again => return Fate::WrittenAgain,
                Some(_) if is_told => return Fate::ToldByFsync,
                Some(_) if is_read_again => return Fate::ReadAgain,
                Some(_) => return Fate::Harmless,
                None => is_read_again = true,
            }
        }
        Fate::Refused
    }

    /// From the writer's memory into the cache. `None` if the write failed.
    fn write(&mut self) -> Option<Stored> {
        let mut buffer = self.meant.clone();
        self.strike(Period::BeforeSum, &mut buffer, &mut []);
        let mut sum = LIGHT.of(&buffer);
        self.strike(Period::WriterMemory, &mut buffer, &mut [&mut sum]);
        let mut transfer = Transfer {
            origin: Summed { data: buffer, sum, algorithm: LIGHT },
            destination: Summed { data: vec![0; BLOCK], sum: Sum::default(), algorithm: LIGHT },
            from: 0,
            to: 0,
            length: BLOCK,
            made: Sum::default(),
        };
        if self.is_chained() {
            // The boundary: verified before anything reaches the file, as `write_with_sums` does.
            transfer.origin.verifies().then_some(())?;
        }
        transfer.carry(Case::Forward, &mut |_, _| ()).ok()?;
        let Summed { data, sum, .. } = transfer.destination;
        Some(Stored { data, light: sum, strong: Sum::default() })
    }

    /// From the cache to the disk. `None` if fsync failed.
    fn sync(&self, cached: &Stored) -> Option<Stored> {
        let mut stored = cached.clone();
        if self.is_chained() {
            let mut transfer = Transfer {
                origin: cached.by(LIGHT),
                destination: Summed { data: vec![0; BLOCK], sum: Sum::default(), algorithm: STRONG },
                from: 0,
                to: 0,
                length: BLOCK,
                made: Sum::default(),
            };
            transfer.carry(Case::Convert, &mut |_, _| ()).ok()?;
            stored = Stored {
                data: transfer.destination.data,
                light: cached.light,
                strong: transfer.destination.sum,
            };
        }
        Some(stored)
    }

    /// From the disk into the cache and from there into the reader's memory, who verifies what arrived. `None` if it was told
    /// that something is wrong.
    fn read(&mut self, disk: &Stored) -> Option<Vec<u8>> {
        let mut cached = disk.clone();
        if self.is_chained() {
            // The first look at a block that comes from the disk is by the strong sum, and at the light one too.
            (cached.by(STRONG).verifies() && cached.by(LIGHT).verifies()).then_some(())?;
        }
        let Stored { data, light, strong } = &mut cached;
        let mut sums = [light, strong];
        let last = if self.system == System::Z2Dynamic { 2 } else { 1 };
        self.strike(Period::CleanCache, data, &mut sums[..last]);
        // Long in memory: the strong one in dynamic mode.
        let by = if self.system == System::Z2Dynamic { STRONG } else { LIGHT };
        let mut arrived = cached.by(by);
        let Summed { data, sum, .. } = &mut arrived;
        self.strike(Period::ReaderMemory, data, &mut [sum]);
        (!self.has_sums() || arrived.verifies()).then_some(arrived.data)
    }
}

/// SplitMix64 of two numbers.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as are asked for; `UPDATE_GUARD_TABLE=1 cargo test -p rotproof-guard period` writes the table into the page.
    const INJECTIONS: u32 = 1000;
    const BEGIN: &str = "<!-- period table -->\n";
    const END: &str = "<!-- end of the period table -->";

    #[test]
    fn the_period_table_is_the_one_in_the_documentation() {
        let cells = period_table(INJECTIONS, 1);
        let table = to_markdown(&cells);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guard.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (before, rest) = page.split_once(BEGIN).expect("a place for the table");
        let (shown, after) = rest.split_once(END).expect("its end");
        if std::env::var_os("UPDATE_GUARD_TABLE").is_some() {
            std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
        } else {
            assert_eq!(shown, table, "UPDATE_GUARD_TABLE=1 cargo test -p rotproof-guard period");
        }
    }

    #[test]
    fn z2_has_no_silent_cell_but_before_there_is_a_checksum_and_plain_has_only_such() {
        for cell in period_table(300, 7) {
            let silent = cell.count(Fate::Silent);
            match (cell.system, cell.period) {
                (System::Plain, _) | (_, Period::BeforeSum) => assert_eq!(silent, 300, "{cell:?}"),
                _ => assert_eq!(silent, 0, "{cell:?}"),
            }
            // In time: Z2 stops the writer's before the disk, where E2E can only tell the reader.
            if matches!(cell.period, Period::WriterMemory | Period::DirtyCache) {
                match cell.system {
                    System::Plain => {}
                    System::EndToEnd => assert_eq!(cell.count(Fate::Refused), 300, "{cell:?}"),
                    _ => assert_eq!(cell.count(Fate::Refused), 0, "{cell:?}"),
                }
            }
        }
        assert_eq!(period_table(50, 3), period_table(50, 3));
    }
}
