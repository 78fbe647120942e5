//! Many threads at once, each with bytes of its own, compared with what each remembers.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Request};
use rotproof_export::FuseOptions;

use crate::places::{Served, noise};
use crate::scripted::{Action, Scripted};

const SIZE: usize = 2 << 20;
const THREADS: u64 = 8;

/// Every thread writes and reads pieces that lie between those of others, at any alignment, so that most blocks
/// belong to several threads.
fn compare_with_shadow(
    block_size: u32,
    rounds: u64,
    script: impl Fn(&Request) -> Action + Send + Sync + 'static,
) {
    let device = Arc::new(Scripted::new(SIZE as u64, block_size, script));
    let served = Served::with(device, FuseOptions { threads: 3, ..FuseOptions::default() });
    let file = served.open();
    // Lengths from 1 to about 3000 bytes, some of them whole blocks.
    let mut pieces = vec![];
    let mut start = 0;
    while start < SIZE {
        let random = mix(11, 1, start as u64) as usize;
        let to_block = start.next_multiple_of(4096) - start;
        let length = match random % 4 {
            0 if to_block > 0 => to_block,
            0 => 4096,
            1 => 1 + random / 8 % 100,
            _ => 1 + random / 8 % 3000,
        };
        let end = (start + length).min(SIZE);
        pieces.push(start..end);
        start = end;
    }
    let shadows: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (file, pieces) = (&file, &pieces);
                scope.spawn(move || {
                    let mine: Vec<_> =
                        pieces.iter().skip(thread as usize).step_by(THREADS as usize).collect();
                    let mut shadow = vec![0; SIZE];
                    for round in 0..rounds {
                        let random = mix(thread, 2, round);
                        let piece = mine[random as usize % mine.len()].clone();
                        let offset = piece.start as u64;
                        if random >> 32 & 3 == 0 {
                            let mut seen = Buffer::stale(piece.len());
                            file.read_exact_at(&mut seen, offset).expect("read");
                            assert!(
                                seen[..] == shadow[piece.clone()],
                                "thread {thread}, round {round}, {piece:?}"
                            );
                        } else {
                            let data = noise(random, piece.len());
                            file.write_all_at(&data, offset).expect("written");
                            shadow[piece].copy_from_slice(&data);
                        }
                    }
                    shadow
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("every read was right")).collect()
    });
    let mut seen = vec![0; SIZE];
    file.read_exact_at(&mut seen, 0).expect("read");
    for (index, piece) in pieces.into_iter().enumerate() {
        let shadow = &shadows[index % THREADS as usize];
        assert!(seen[piece.clone()] == shadow[piece.clone()], "{piece:?} at the end");
    }
    drop(file);
    served.unmount();
}

#[test]
fn eight_threads_lose_no_byte_on_a_device_that_answers_at_once() {
    compare_with_shadow(4096, 3000, |_| Action::Pass);
}

#[test]
fn eight_threads_lose_no_byte_on_a_device_with_small_blocks() {
    compare_with_shadow(512, 3000, |_| Action::Pass);
}

#[test]
fn eight_threads_lose_no_byte_on_a_device_that_is_late_at_random() {
    compare_with_shadow(4096, 600, |request| {
        let random = mix(request.context.id, 3, request.offset);
        if random.is_multiple_of(3) {
            Action::Late(Duration::from_micros(random >> 8 & 2047))
        } else {
            Action::Pass
        }
    });
}
