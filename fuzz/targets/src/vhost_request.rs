//! What reaches a vhost-user-blk server: messages of its socket, and requests in the memory of a guest. The input is the
//! memory; a message and a chain of segments are read from its beginning.

use rotproof_export::vhost::message::{HEADER_BYTES, Header, VhostMessage, code};
use rotproof_export::vhost::{Segment, VhostRequest};

/// Bytes that describe a segment in the input: address, length, whether it is writable.
const SEGMENT_BYTES: usize = 7;
/// Segments described from here on, as many as this byte says.
const CHAIN_AT: usize = 64;

/// Neither parser panics, and the data of a request is within the segments that it came in.
pub fn check(bytes: &[u8]) {
    if let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let code = Header::parse(header).map_or(u32::from(header[0]), |header| header.code);
        let _ = VhostMessage::parse(code, body);
    }
    let chain = bytes.get(CHAIN_AT..).and_then(|chain| chain.split_first());
    let given: Vec<Segment> = chain.map_or(vec![], |(count, chain)| {
        chain.as_chunks::<SEGMENT_BYTES>().0.iter().take((*count).into()).map(segment).collect()
    });
    let mut left = given.clone();
    let parsed = VhostRequest::parse(&mut left, |address, part| {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let there = bytes.get(start..start.saturating_add(part.len()));
        there.inspect(|there| part.copy_from_slice(there)).is_some()
    });
    let Some(parsed) = parsed else { return };
    if let Ok(VhostRequest::Read(_, length) | VhostRequest::Write(_, length)) = parsed.request {
        assert_eq!(left.iter().map(|segment| u64::from(segment.length)).sum::<u64>(), length);
    }
    for segment in &left {
        let end = segment.address + u64::from(segment.length);
        let holds = |whole: &Segment| {
            whole.writable == segment.writable
                && whole.address <= segment.address
                && end <= whole.address + u64::from(whole.length)
        };
        assert!(given.iter().any(holds), "{segment:?} was not given");
    }
}

fn segment(bytes: &[u8; SEGMENT_BYTES]) -> Segment {
    let [a, b, l, m, n, o, writable] = *bytes;
    Segment {
        address: u16::from_le_bytes([a, b]).into(),
        length: u32::from_le_bytes([l, m, n, o]),
        writable: writable % 2 == 1,
    }
}

/// A message of each shape, and requests of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let message = |code: u32, longs: &[u64]| {
        let mut bytes: Vec<u8> =
            [code, 1, 8 * longs.len() as u32].iter().flat_map(|number| number.to_ne_bytes()).collect();
        bytes.extend(longs.iter().flat_map(|long| long.to_ne_bytes()));
        bytes
    };
    let request = |kind: u32, segments: &[(u16, u32, u8)]| {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.resize(CHAIN_AT, 0);
        bytes.push(segments.len() as u8);
        for (address, length, writable) in segments {
            bytes.extend(address.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.push(*writable);
        }
        bytes
    };
    vec![
        message(code::GET_FEATURES, &[]),
        message(code::SET_MEM_TABLE, &[1, 0, 4096, 4096, 0]),
        message(code::SET_VRING_ADDR, &[0, 16, 32, 48, 0]),
        message(code::ADD_MEM_REG, &[0, 0, 4096, 4096, 0]),
        request(0, &[(0, 16, 0), (512, 4096, 1), (40, 1, 1)]),
        request(1, &[(0, 16, 0), (512, 512, 0), (1024, 512, 0), (40, 1, 1)]),
        request(4, &[(0, 16, 0), (40, 1, 1)]),
        request(8, &[(0, 16, 0), (512, 21, 1)]),
        request(11, &[(0, 16, 0), (16, 16, 0), (40, 1, 1)]),
    ]
}
