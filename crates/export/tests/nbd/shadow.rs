//! Several connections at once, each with bytes of its own at any alignment, compared with what each remembers.

use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;

use crate::client::Client;
use crate::scripted::{Action, Scripted};
use crate::server::Served;

const SIZE: usize = 1 << 20;
const CLIENTS: usize = 4;

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| mix(seed, 7, index) as u8).collect()
}

#[test]
fn connections_that_share_blocks_lose_no_byte() {
    // Blocks of 4096 bytes and pieces that are smaller, so that most blocks belong to several clients.
    let device = Scripted::new(SIZE as u64, 4096, |request| {
        let random = mix(request.context.id, 3, request.offset);
        if random.is_multiple_of(5) {
            Action::Late(Duration::from_micros(random >> 8 & 511))
        } else {
            Action::Pass
        }
    });
    let served = Served::one(Arc::new(device));
    let mut pieces = vec![];
    let mut start = 0;
    while start < SIZE {
        let end = (start + 1 + mix(11, 1, start as u64) as usize % 6000).min(SIZE);
        pieces.push(start..end);
        start = end;
    }
    let shadows: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (socket, pieces) = (served.socket(), &pieces);
                scope.spawn(move || {
                    let mut client = match number % 3 {
                        0 => Client::simple(&socket),
                        1 => Client::structured(&socket),
                        _ => Client::with_extended_headers(&socket),
                    };
                    let mine: Vec<_> = pieces.iter().skip(number).step_by(CLIENTS).collect();
                    let mut shadow = vec![0; SIZE];
                    for round in 0..500 {
                        let random = mix(number as u64, 2, round);
                        let piece = mine[random as usize % mine.len()].clone();
                        let offset = piece.start as u64;
                        if random >> 32 & 3 == 0 {
                            assert!(client.read(offset, piece.len()) == shadow[piece.clone()], "{piece:?}");
                        } else {
                            let data = pattern(random, piece.len());
                            client.write(offset, &data);
                            shadow[piece].copy_from_slice(&data);
                        }
                    }
                    shadow
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("every read was right")).collect()
    });
    let seen = Client::simple(&served.socket()).read(0, SIZE);
    for (index, piece) in pieces.into_iter().enumerate() {
        assert!(seen[piece.clone()] == shadows[index % CLIENTS][piece.clone()], "{piece:?} at the end");
    }
}
