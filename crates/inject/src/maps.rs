//! What a process has mapped, and what for: `/proc/PID/maps` (proc(5)).

use std::ops::Range;

/// What a process uses a mapping for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// The heap that grows by `brk`.
    Heap,
    /// The stack of its first thread.
    Stack,
    /// Other memory of its own; large pieces of a heap and stacks of threads are there too.
    Anonymous,
    /// The bytes of a file.
    FileBacked,
}

impl MappingKind {
    /// The word for it in rules and ledgers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Stack => "stack",
            Self::Anonymous => "anonymous",
            Self::FileBacked => "file_backed",
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<u64>,
    /// Whether the process may write there.
    pub is_writable: bool,
    /// What for.
    pub kind: MappingKind,
}

/// The mappings that can be read and hold what the process uses. What the kernel shares with it (`[vdso]`, `[vvar]`) and
/// devices are left out, and lines that make no sense.
pub fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let rights = words.next()?;
    let (_offset, _device, _inode) = (words.next()?, words.next()?, words.next()?);
    let name = words.next().unwrap_or("");
    let kind = match name {
        "[heap]" => MappingKind::Heap,
        "[stack]" => MappingKind::Stack,
        "" => MappingKind::Anonymous,
        name if name.starts_with("[anon") => MappingKind::Anonymous,
        // What was made to be shared between processes, and has no name in any folder.
        "/dev/zero" => MappingKind::Anonymous,
        name if name.starts_with("/dev/shm/") || name.starts_with("/memfd:") || name.starts_with("/SYSV") => {
            MappingKind::Anonymous
        }
        name if name.starts_with("/dev/") => return None,
        name if name.starts_with('/') => MappingKind::FileBacked,
        _ => return None,
    };
    let is_sensible = range.start < range.end && range.start % 4096 == 0 && range.end % 4096 == 0;
    (is_sensible && rights.starts_with('r')).then(|| Mapping {
        range,
        is_writable: rights.contains('w'),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_mapping_is_told() {
        let text = b"5581c2a00000-5581c2a02000 r-xp 00002000 fe:00 1052 /usr/bin/cat\n\
            5581c3000000-5581c3021000 rw-p 00000000 00:00 0                          [heap]\n\
            7f1e00000000-7f1e00021000 rw-p 00000000 00:00 0 \n\
            7f1e10000000-7f1e10001000 ---p 00000000 00:00 0 \n\
            7f1e20000000-7f1e20001000 rw-s 00000000 00:01 5 /dev/zero (deleted)\n\
            7f1e20001000-7f1e20002000 rw-s 00000000 00:01 5 /dev/dri/card0\n\
            7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n\
            7ffd00100000-7ffd00104000 r--p 00000000 00:00 0                          [vvar]\n\
            nonsense\n";
        let found: Vec<_> =
            parse_maps(text).into_iter().map(|mapping| (mapping.kind, mapping.is_writable)).collect();
        assert_eq!(
            found,
            [
                (MappingKind::FileBacked, false),
                (MappingKind::Heap, true),
                (MappingKind::Anonymous, true),
                (MappingKind::Anonymous, true),
                (MappingKind::Stack, true),
            ]
        );
    }

    #[test]
    fn the_mappings_of_this_process_hold_its_own_data() {
        let here = Box::new([7u8; 64]);
        let address = here.as_ptr() as u64;
        let maps = parse_maps(&std::fs::read("/proc/self/maps").expect("there"));
        assert!(maps.iter().any(|mapping| mapping.range.contains(&address) && mapping.is_writable));
        let stack = 1u8;
        let address = &raw const stack as u64;
        assert!(maps.iter().any(|mapping| mapping.range.contains(&address)));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>, line in "[0-9a-f-]{0,20} [rwxps-]{0,5} [0-9a-f: ]{0,20} [ -~]{0,20}") {
            parse_maps(&text);
            parse_maps(line.as_bytes());
        }
    }
}
