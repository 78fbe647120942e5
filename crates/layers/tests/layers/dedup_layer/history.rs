//! Random histories of requests, one after the other and several at a time, against a plain array.

use proptest::prelude::*;

use super::*;

/// A request of a random history.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    sector: u64,
    sectors: u64,
    fill: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..8, 0u64..SECTORS, 1u64..40, 0u8..4).prop_map(|(kind, sector, sectors, fill)| Step {
        kind,
        sector,
        sectors: sectors.min(SECTORS - sector),
        fill,
    });
    prop::collection::vec(step, 1..60)
}

const SECTORS: u64 = 128;
const SECTOR: u64 = 512;

/// What a step writes: few contents, so that blocks are shared, and not the same in every sector of a block.
fn payload(step: &Step) -> Vec<u8> {
    (step.sector..step.sector + step.sectors)
        .flat_map(|sector| [step.fill ^ (sector % 8) as u8; SECTOR as usize])
        .collect()
}

fn request_of(step: &Step) -> Request {
    let (offset, length) = (step.sector * SECTOR, step.sectors * SECTOR);
    match step.kind {
        0..4 => write(offset, &payload(step)),
        4 => Request::discard(offset, length, context()),
        5 => Request::write_zeroes(offset, length, context()),
        _ => read(offset, length as usize),
    }
}

fn distinct_blocks(array: &[u8]) -> usize {
    array.chunks(BLOCK).collect::<HashSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_history_of_unaligned_requests_ends_as_a_plain_array_would(
        steps in steps(), verify: bool, slow: bool,
    ) {
        let size = SECTORS * SECTOR;
        // Room for what is new while the old is still there.
        let below = if slow { disk(2 * size) } else { memory(2 * size, 512) };
        let stand = Stand::with(below, DedupOptions { size_bytes: Some(size), verify });
        let mut array = vec![0u8; size as usize];
        for step in &steps {
            let range = (step.sector * SECTOR) as usize..((step.sector + step.sectors) * SECTOR) as usize;
            let Completion { result, buffer, .. } = stand.complete(request_of(step));
            prop_assert!(result.is_ok(), "{:?}: {:?}", step, result);
            match step.kind {
                0..4 => array[range].copy_from_slice(&payload(step)),
                4 | 5 => array[range].fill(0),
                _ => prop_assert!(buffer[..] == array[range], "{:?}", step),
            }
            let (logical, physical) = stand.usage();
            prop_assert!(physical <= logical && physical <= distinct_blocks(&array) as u64);
        }
        prop_assert!(stand.read(0, size as usize) == array);
        stand.complete(Request::discard(0, size, context())).result.expect("discards");
        prop_assert_eq!(stand.usage(), (0, 0));
    }

    #[test]
    fn requests_at_the_same_time_leave_in_each_sector_what_one_of_them_wrote(steps in steps()) {
        let size = SECTORS * SECTOR;
        let stand = Stand::with(disk(64 * size), DedupOptions { size_bytes: Some(size), verify: false });
        let mut legal: Vec<HashSet<u8>> = vec![HashSet::from([0]); SECTORS as usize];
        for wave in steps.chunks(6) {
            let mutations = || wave.iter().filter(|step| step.kind < 6);
            let submissions = mutations().map(|step| stand.queue.submit(request_of(step))).collect();
            for completion in stand.together(submissions) {
                prop_assert!(completion.result.is_ok(), "{:?}", completion.result);
            }
            for sector in 0..SECTORS {
                let written: HashSet<u8> = mutations()
                    .filter(|step| (step.sector..step.sector + step.sectors).contains(&sector))
                    .map(|step| if step.kind < 4 { step.fill ^ (sector % 8) as u8 } else { 0 })
                    .collect();
                if !written.is_empty() {
                    legal[sector as usize] = written;
                }
            }
            for (sector, data) in stand.read(0, size as usize).chunks(SECTOR as usize).enumerate() {
                let is_legal = legal[sector].contains(&data[0]) && data.iter().all(|byte| *byte == data[0]);
                prop_assert!(is_legal, "sector {}: {}, not of {:?}", sector, data[0], legal[sector]);
                legal[sector] = HashSet::from([data[0]]);
            }
        }
        stand.complete(Request::discard(0, size, context())).result.expect("discards");
        prop_assert_eq!(stand.usage(), (0, 0));
    }
}
