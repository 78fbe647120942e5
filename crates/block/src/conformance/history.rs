//! Random histories of requests, compared with the plainest device there is: an array of bytes.

use super::{Finding, Stand, context, pattern};
use crate::hash::mix;
use crate::{Buffer, Operation, Request};

const REQUESTS: u64 = 1500;
const AREA_BYTES: u64 = 512 << 10;
const BLOCKS_MAX: u64 = 40;

/// Replays a history from a fixed seed; every read must return what the array holds.
pub(super) fn replay(stand: &Stand) -> Finding {
    let info = stand.info();
    let block = u64::from(info.block_size);
    // Half at the beginning, half at the end, so that both borders are inside.
    let base = |draw: u64| if draw & 1 == 0 { 0 } else { info.size - AREA_BYTES };
    let mut shadows = [vec![0u8; AREA_BYTES as usize], vec![0u8; AREA_BYTES as usize]];
    for index in 0..REQUESTS {
        let draw = |stream| mix(0x6873_7472, stream, index);
        let blocks = 1 + draw(1) % BLOCKS_MAX;
        let place = draw(2) % (AREA_BYTES / block - blocks + 1) * block;
        let length = (blocks * block) as usize;
        let (area, offset) = (draw(3), base(draw(3)) + place);
        let shadow = &mut shadows[(area & 1) as usize][place as usize..place as usize + length];
        match draw(4) % 10 {
            0..4 => {
                let found = stand.read(offset, length)?;
                if let Some(at) = (0..length).find(|&at| found[at] != shadow[at]) {
                    return Err(format!(
                        "request {index} reads byte {} as {:#04x}; the array has {:#04x}",
                        offset + at as u64,
                        found[at],
                        shadow[at]
                    ));
                }
            }
            4..8 => {
                let data = pattern(index, length);
                let write = Request::write(offset, Buffer::copy_of(&data), context(index));
                stand.succeed(Request { operation: Operation::Write { fua: draw(5) % 8 == 0 }, ..write })?;
                shadow.copy_from_slice(&data);
            }
            8 if info.features.discard => {
                stand.succeed(Request::discard(offset, length as u64, context(index)))?;
                shadow.fill(0);
            }
            9 if info.features.write_zeroes => {
                stand.succeed(Request::write_zeroes(offset, length as u64, context(index)))?;
                shadow.fill(0);
            }
            _ => stand.succeed(Request::flush(context(index))).map(drop)?,
        }
    }
    stand.expect(0, &shadows[0])?;
    stand.expect(info.size - AREA_BYTES, &shadows[1])
}
