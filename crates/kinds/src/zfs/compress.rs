//! LZJB, by which ZFS stores its own structures: `uts/common/os/compress.c` of OpenSolaris.

const MATCH_BITS: u32 = 6;
const MATCH_MIN: usize = 3;
const OFFSET_MASK: usize = (1 << (16 - MATCH_BITS)) - 1;

/// The `length` bytes that `packed` stands for; `None` if it does not stand for so many.
pub(super) fn lzjb(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length);
    let mut bytes = packed.iter().copied();
    let (mut flags, mut left) = (0_u8, 0);
    while out.len() < length {
        if left == 0 {
            (flags, left) = (bytes.next()?, 8);
        }
        let is_match = flags & 1 == 1;
        (flags, left) = (flags >> 1, left - 1);
        if !is_match {
            out.push(bytes.next()?);
            continue;
        }
        let (first, second) = (usize::from(bytes.next()?), usize::from(bytes.next()?));
        let count = (first >> (8 - MATCH_BITS)) + MATCH_MIN;
        let back = (first << 8 | second) & OFFSET_MASK;
        let from = out.len().checked_sub(back).filter(|_| back > 0)?;
        for at in from..from + count.min(length - out.len()) {
            let byte = *out.get(at)?;
            out.push(byte);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_and_nonsense_is_none() {
        // Three bytes as they are, then seven from three back.
        let packed = [0b1000, b'a', b'b', b'c', 4 << 2, 3];
        assert_eq!(lzjb(&packed, 10).as_deref(), Some(&b"abcabcabca"[..]));
        assert_eq!(lzjb(&packed, 5).as_deref(), Some(&b"abcab"[..]), "no more than is asked for");
        assert_eq!(lzjb(&packed, 11), None, "it ends before");
        assert_eq!(lzjb(&[1, 0, 9], 4), None, "from before the beginning");
        assert_eq!(lzjb(&[1, 0, 0], 4), None);
        assert_eq!(lzjb(&[], 0).as_deref(), Some(&[][..]));
    }
}
