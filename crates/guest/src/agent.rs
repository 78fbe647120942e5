//! The program inside a guest, and the archive that its kernel unpacks to start it.

use rotproof_block::{Error, ErrorKind, Result};

/// Empty where it could not be built.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));
static WHY_NOT: &str = include_str!(concat!(env!("OUT_DIR"), "/why-not"));

/// An archive in the `newc` form of cpio (Documentation/driver-api/early-userspace/buffer-format.rst) with the agent as
/// `init`, and modules that it loads one after the other. Fails with [`ErrorKind::Missing`] where this Rotproof was built without it.
pub(crate) fn archive(modules: &[Vec<u8>]) -> Result<Vec<u8>> {
    if PROGRAM.is_empty() {
        let context =
            format!("this rotproof was built without the program that runs inside guests: {WHY_NOT}");
        return Err(Error::new(ErrorKind::Missing, context));
    }
    let names: Vec<String> = (0..modules.len()).map(|number| format!("modules/{number:03}")).collect();
    let mut entries = vec![
        Entry::folder("dev"),
        Entry::folder("proc"),
        Entry::folder("sys"),
        Entry::folder("mnt"),
        Entry { device: (5, 1), mode: 0o20_600, ..Entry::folder("dev/console") },
        Entry { mode: 0o100_755, data: PROGRAM, ..Entry::folder("init") },
        Entry::folder("modules"),
    ];
    entries.extend(names.iter().zip(modules).map(|(name, data)| Entry {
        mode: 0o100_644,
        data,
        ..Entry::folder(name)
    }));
    Ok(pack(&entries))
}

struct Entry<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    data: &'a [u8],
}

impl<'a> Entry<'a> {
    fn folder(name: &'a str) -> Self {
        Self { name, mode: 0o40_755, device: (0, 0), data: &[] }
    }
}

fn pack(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Vec::new();
    let end = Entry { mode: 0, ..Entry::folder("TRAILER!!!") };
    for (number, entry) in (1u32..).zip(entries.iter().chain([&end])) {
        let Entry { name, mode, device, data } = entry;
        archive.extend_from_slice(b"070701");
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let name_length = name.len() as u32 + 1;
        for field in [number, *mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_length, 0] {
            archive.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(data);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_entries_at_multiples_of_four() {
        let packed = pack(&[Entry { mode: 0o100_644, data: b"12345", ..Entry::folder("ab") }]);
        assert_eq!(&packed[..6], b"070701");
        assert_eq!(&packed[110..113], b"ab\0");
        // 110 bytes of header, three of the name, none to fill up; the data; three to fill up.
        assert_eq!(&packed[116..124], b"12345\0\0\0");
        assert_eq!(&packed[124..130], b"070701");
        assert!(packed.ends_with(b"TRAILER!!!\0\0\0\0"), "{:?}", &packed[200..]);
    }
}
