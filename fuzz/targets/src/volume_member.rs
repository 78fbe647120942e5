//! What a device says of the volume that it is a member of.

use rotproof_volume::member::{
    Bits, Known, Layout, MemberEntry, MemberRecord, Segment, VersionsPolicy, seal,
};

/// It is refused, or it says the same when it is written again; also with a sum that is right.
pub fn check(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= 48 {
        let length = sealed.len() as u32;
        sealed[12..16].copy_from_slice(&length.to_le_bytes());
        sealed[40..48].fill(0);
        seal(&mut sealed);
    }
    for bytes in [bytes, &sealed] {
        if let Ok(Some(record)) = MemberRecord::decode(bytes, 0) {
            assert_eq!(MemberRecord::decode(&record.encode(0), 0).expect("makes sense"), Some(record));
        }
    }
}

/// Records of several layouts, without the zeros behind them.
pub fn seeds() -> Vec<Vec<u8>> {
    [(1u8, 1u16), (2, 4), (3, 3)]
        .into_iter()
        .map(|(ways, count)| {
            let mirrors = count / u16::from(ways);
            let mut layout = Layout::plain(ways, 65_536, mirrors, 64 << 20);
            layout.checksum = ways - 1;
            // Of both formats.
            if ways > 1 {
                layout.segments.push(Segment { mirrors: 0..mirrors, start: 64 << 20, bytes: 4 << 20 });
                layout.versions = Some(VersionsPolicy::default());
            }
            let mut missed = Bits::new(layout.regions());
            missed.set(3);
            let entry = |id| MemberEntry {
                id,
                missed: missed.clone(),
                written: Bits::new(layout.regions()),
                known: Known { session: 5, generation: 2 },
            };
            let members = (0..u128::from(count)).map(entry).collect();
            let spares = (1..u128::from(ways)).collect();
            let layout = layout.clone();
            let record = MemberRecord {
                volume: 7,
                generation: 3,
                index: 0,
                layout,
                members,
                spares,
                is_open: true,
                session: 6,
            };
            let mut bytes = record.encode(0);
            bytes.truncate(u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize);
            bytes
        })
        .collect()
}
