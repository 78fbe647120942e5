//! The map as a picture: the device in rows, each cell a stretch of it, coloured by the rarest thing that lies there.

use std::ops::Range;

use rotproof_kinds::{Kind, Map, Plain, Tree};
use rotproof_plot::{Anchor, Color, Item, LINE_COLORS, Scene, width_of};

use crate::units;

const COLUMNS: u64 = 128;
const ROWS: u64 = 64;
const CELL: f64 = 7.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 60.0;
const LINE: f64 = 16.0;

/// Kinds that share a colour. What comes first is shown where several lie in one cell.
const GROUPS: [(&str, Color); 10] = [
    ("unknown", Color::GOAL),
    ("super block, group headers", LINE_COLORS[1]),
    ("free space, bitmaps", LINE_COLORS[5]),
    ("inodes, trees of files", LINE_COLORS[2]),
    ("where files lie", LINE_COLORS[3]),
    ("names, attributes, links", LINE_COLORS[4]),
    ("journal, log", LINE_COLORS[6]),
    ("other metadata", Color(0x99, 0x99, 0x99)),
    ("data", LINE_COLORS[0]),
    ("free, unused", Color(0xee, 0xee, 0xee)),
];

fn group_of(kind: Kind) -> usize {
    use Plain::{
        Agf, Agfl, AgflBlock, Agi, Bmbt, Bnobt, Cntbt, CopyOnWrite, Data, Directory, DirectoryFree,
        DirectoryLeaf, ExtentTree, Finobt, Free, GroupDescriptors, Htree, Indirect, Inobt, InodeBitmap,
        InodeChunk, InodeTable, Log, ReservedGdt, SpaceCache, SuperBlock, Symlink, Unknown, Unused, Xattr,
    };
    match kind {
        Kind::Plain(Unknown) => 0,
        Kind::Plain(SuperBlock | GroupDescriptors | ReservedGdt | Agf | Agi | Agfl) => 1,
        Kind::Tree { tree: Tree::Root | Tree::Chunk | Tree::Device, .. } => 1,
        Kind::Plain(Plain::BlockBitmap | InodeBitmap | Bnobt | Cntbt | AgflBlock | SpaceCache) => 2,
        Kind::Tree { tree: Tree::Extent | Tree::FreeSpace | Tree::BlockGroup, .. } => 2,
        Kind::Plain(InodeTable | InodeChunk | Inobt | Finobt) | Kind::Tree { tree: Tree::Fs, .. } => 3,
        Kind::Plain(ExtentTree | Indirect | Bmbt) => 4,
        Kind::Plain(Directory | DirectoryLeaf | DirectoryFree | Htree | Xattr | Symlink) => 5,
        Kind::Plain(Log) | Kind::Tree { tree: Tree::Log, .. } => 6,
        Kind::Plain(
            Plain::PgControl
            | Plain::PgRelationMap
            | Plain::BtreeMeta
            | Plain::HashMeta
            | Plain::GinMeta
            | Plain::SpgistMeta
            | Plain::BrinMeta,
        ) => 1,
        Kind::Plain(Plain::PgFreeSpaceMap | Plain::PgVisibilityMap | Plain::HashBitmap) => 2,
        Kind::Plain(Plain::PgWal) => 6,
        Kind::Plain(Plain::PgHeap | Plain::PgToast) => 8,
        Kind::Plain(Plain::PgWalDone) => 9,
        kind if kind.is_meant_by("journal") => 6,
        Kind::Plain(Data | CopyOnWrite) => 8,
        Kind::Plain(Free | Unused) => 9,
        _ => 7,
    }
}

/// Draws the whole device.
pub fn scene(map: &Map, name: &str) -> Scene {
    let least = map.block_bytes.min(map.size).max(1);
    let cell = map.size.div_ceil(COLUMNS * ROWS).next_multiple_of(least);
    let cells = map.size.div_ceil(cell);
    let rows = cells.div_ceil(COLUMNS);
    let mut items = vec![
        text((LEFT, 24.0), format!("{} on {name}, {}", map.file_system.name(), units::bytes(map.size)), true),
        text(
            (LEFT, 44.0),
            format!(
                "a cell is {}; of several kinds in one the upper of the legend is shown",
                units::bytes(cell)
            ),
            false,
        ),
    ];
    for row in 0..rows {
        let y = TOP + row as f64 * CELL;
        if row % 8 == 0 {
            let label = units::bytes(row * COLUMNS * cell);
            items.push(Item::Text {
                at: (LEFT - 8.0, y + CELL),
                text: label,
                size: 12.0,
                color: Color::INK,
                anchor: Anchor::End,
                is_upright: false,
                is_bold: false,
            });
        }
        // Cells beside each other with the same in them are one.
        let mut last: Option<(Content<'_>, u64, u64)> = None;
        for column in 0..COLUMNS.min(cells - row * COLUMNS) {
            let start = (row * COLUMNS + column) * cell;
            let here = Content::of(map, start..(start + cell).min(map.size));
            match &mut last {
                Some((content, _, count)) if *content == here => *count += 1,
                _ => {
                    items.extend(last.take().map(|last| drawn(&last, row * COLUMNS, cell, y)));
                    last = Some((here, column, 1));
                }
            }
        }
        items.extend(last.map(|last| drawn(&last, row * COLUMNS, cell, y)));
    }
    let right = LEFT + COLUMNS as f64 * CELL + 20.0;
    for (index, (name, color)) in GROUPS.iter().enumerate() {
        let y = TOP + index as f64 * LINE;
        items.push(Item::Area { place: [right, y, 11.0, 11.0], color: *color });
        items.push(text((right + 18.0, y + 10.0), (*name).to_owned(), false));
    }
    let words = GROUPS.iter().map(|(name, _)| width_of(name) * 13.0).fold(160.0, f64::max);
    let height = TOP + (rows as f64 * CELL).max(GROUPS.len() as f64 * LINE) + 20.0;
    Scene { width: right + 18.0 + words, height, items }
}

fn text(at: (f64, f64), text: String, is_bold: bool) -> Item {
    let size = if is_bold { 16.0 } else { 13.0 };
    Item::Text { at, text, size, color: Color::INK, anchor: Anchor::Start, is_upright: false, is_bold }
}

/// What lies in a cell.
#[derive(PartialEq)]
struct Content<'a> {
    group: usize,
    words: Vec<&'a str>,
}

impl Content<'_> {
    fn of(map: &Map, range: Range<u64>) -> Self {
        let here = map.within(range);
        let mut words: Vec<&str> = here.iter().map(|extent| extent.kind.word()).collect();
        words.sort_unstable();
        words.dedup();
        Content { group: here.iter().map(|extent| group_of(extent.kind)).min().unwrap_or(0), words }
    }
}

/// Cells of one row, from `column` on, which say what lies there where they are pointed at. `before` is the number of cells
/// in the rows above.
fn drawn((content, column, count): &(Content<'_>, u64, u64), before: u64, cell: u64, y: f64) -> Item {
    let (x, width) = (LEFT + *column as f64 * CELL, *count as f64 * CELL - 1.0);
    let area = Item::Area { place: [x, y, width, CELL - 1.0], color: GROUPS[content.group].1 };
    let title = format!("from {}: {}", (before + column) * cell, content.words.join(", "));
    Item::Group { kind: "cell", title, items: vec![area] }
}
