//! What lies beside guarded files: settings, headers and pages of tables, records of slots, lines of the journal.

use rotproof_guard::format::{
    Entry, EntryPage, Header, Moment, PAGE, Pair, REGIONS, Settings, Stamp, entries_of, page_of, stamp_of,
};
use rotproof_guard::journal::{Event, What, line_of, parse};
use rotproof_guard::record::{Class, Copy, of_copy, to_copy};
use rotproof_guard::sum::{Algorithm, Sum};

const PAIR: Pair = Pair { light: Algorithm::Xor64, strong: Algorithm::Xxh3 };
const WIDE: Pair = Pair { light: Algorithm::Crc32c, strong: Algorithm::Blake3 };
const INODE: u64 = 12;
const INDEX: u64 = 1;

/// Each is refused, or says the same when it is written again; also with a sum that is right.
pub fn check(bytes: &[u8]) {
    if let Some(event) = parse(bytes) {
        let line = line_of(&event).expect("it was JSON");
        assert_eq!(parse(line.trim_end().as_bytes()), Some(event));
    }
    let mut page = [0; PAGE];
    let length = bytes.len().min(PAGE);
    page[..length].copy_from_slice(&bytes[..length]);
    let mut sealed = page;
    let sum = Algorithm::Xxh3.of(&sealed[..PAGE - 8]).word();
    sealed[PAGE - 8..].copy_from_slice(&sum.to_le_bytes());
    for page in [&page, &sealed] {
        if let Ok(settings) = Settings::of_page(page) {
            assert_eq!(Settings::of_page(&settings.to_page()), Ok(settings));
        }
        if let Ok(header) = Header::of_page(page) {
            assert!((0..REGIONS + 5).filter(|region| header.is_marked(*region)).count() <= REGIONS);
            assert_eq!(Header::of_page(&header.to_page()), Ok(header));
        }
        for pair in [PAIR, WIDE] {
            let (EntryPage::Whole(entries) | EntryPage::Damaged(entries)) =
                entries_of(pair, INODE, INDEX, page)
            else {
                continue;
            };
            assert_eq!(entries.len() as u64, pair.entries());
            let stamp = stamp_of(page);
            let again = page_of(pair, INODE, INDEX, &entries, stamp);
            assert_eq!(entries_of(pair, INODE, INDEX, &again), EntryPage::Whole(entries));
            assert_eq!(stamp_of(&again), stamp);
        }
    }
    for class in Class::ALL {
        check_record(class, &page[..class.copy_bytes()]);
    }
}

/// A record that is whole or torn, also with a check of its header that is right.
fn check_record(class: Class, bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    let sum = Algorithm::Xxh3.of(&sealed[..96]).word();
    sealed[96..104].copy_from_slice(&sum.to_le_bytes());
    for bytes in [bytes, &sealed] {
        for pair in [PAIR, WIDE] {
            let Copy::Record { header, entries, .. } = of_copy(class, pair, INODE, 0, bytes) else {
                continue;
            };
            let again = to_copy(class, pair, 0, &header, &entries);
            let read = of_copy(class, pair, INODE, 0, &again);
            assert_eq!(read, Copy::Record { header, entries, is_whole: true });
        }
    }
}

/// One of each, without the zeros in the middle.
pub fn seeds() -> Vec<Vec<u8>> {
    let settings =
        Settings { id: [3; 16], pair: PAIR, switch_seconds: Some(92), made: 1_700_000_000, version: 2 };
    let mut regions = Box::new([0; REGIONS / 64]);
    regions[0] = 5;
    let header = Header {
        generation: 7,
        guard: [3; 16],
        inode: INODE,
        birth: Moment { seconds: 1_700_000_000, nanoseconds: 1 },
        reuse: Some(77),
        session: [4; 16],
        size: 100_000,
        modified: Moment { seconds: 1_700_000_100, nanoseconds: 2 },
        is_unsynced: true,
        is_complete: true,
        is_foreign: false,
        region_shift: 20,
        regions,
        name: b"folder/file".to_vec(),
    };
    let sums = PAIR.of(b"some data");
    let torn = rotproof_guard::format::Sums { light: 1, strong: Sum([2, 0, 0, 0]) };
    let entries = [Entry::Sums(sums), Entry::Zeros, Entry::Unknown, Entry::Sums(torn)];
    let modified = Moment { seconds: 1_700_000_000, nanoseconds: 5 };
    let stamp = Stamp { follows: 3, number: 1, modified };
    let event = Event {
        time: 1_700_000_000,
        what: What::Torn,
        file: "a/b".to_owned(),
        inode: INODE,
        block: 3,
        blocks: 2,
    };
    let line = line_of(&event).expect("it is JSON");
    vec![
        settings.to_page().to_vec(),
        header.to_page().to_vec(),
        page_of(PAIR, INODE, INDEX, &entries, None).to_vec(),
        to_copy(Class::Small, PAIR, 0, &header, &entries),
        to_copy(Class::Medium, WIDE, 0, &header, &entries),
        page_of(WIDE, INODE, INDEX, &entries[1..3], Some(stamp)).to_vec(),
        line.trim_end().as_bytes().to_vec(),
    ]
}
