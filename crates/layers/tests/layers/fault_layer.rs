//! What a user of a faulty device sees: every effect with every schedule and persistence, on the way through the
//! layer.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::MemoryDevice;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{
    Buffer, Completion, ContentHash, Context, Device, DeviceInfo, Error, ErrorKind, Operation, Phase, Queue,
    Request, Result, Runtime, Submission,
};
use rotproof_fault::{Effect, Engine, Injection, RuleState};

use crate::devices::with_faults;

const BLOCK: usize = 4096;
const DEVICE_BYTES: u64 = 1 << 20;

/// A queue over a faulty device under virtual time.
struct Stand {
    runtime: Runtime,
    queue: Rc<dyn Queue>,
    pristine: Rc<dyn Queue>,
    engine: Arc<Engine>,
}

impl Stand {
    fn new(rules: &[&str]) -> Self {
        Self::over(MemoryDevice::new(DEVICE_BYTES, 512).expect("memory"), rules)
    }

    fn over(below: Arc<dyn Device>, rules: &[&str]) -> Self {
        let rules: Vec<String> = rules.iter().map(|text| (*text).to_owned()).collect();
        let runtime = Runtime::simulated(1);
        let pristine = below.open_queue(&runtime).expect("a queue");
        let (device, engine) = with_faults(below, &rules);
        let queue = device.open_queue(&runtime).expect("a queue");
        Self { runtime, queue, pristine, engine }
    }

    fn complete(&self, request: Request) -> Completion {
        self.runtime.block_on(self.queue.submit(request)).expect("every request completes")
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Completion { result, buffer, .. } =
            self.complete(Request::write(offset, Buffer::copy_of(data), context()));
        assert_eq!(&buffer[..], data, "the caller's buffer is never changed");
        result
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let completion = self.complete(Request::read(offset, Buffer::stale(length), context()));
        completion.result.map(|()| completion.buffer.to_vec())
    }

    /// What the device below holds.
    fn pristine(&self, offset: u64, length: usize) -> Vec<u8> {
        let request = Request::read(offset, Buffer::stale(length), context());
        self.runtime.block_on(self.pristine.submit(request)).expect("completes").buffer.to_vec()
    }

    fn records(&self) -> Vec<Injection> {
        self.engine.ledger().records().expect("in memory")
    }

    /// How long `work` takes in virtual time.
    fn time(&self, work: impl FnOnce()) -> Duration {
        let began = self.runtime.now();
        work();
        self.runtime.now().since(began)
    }
}

fn context() -> Context {
    Context { phase: Phase::Run, ..Context::default() }
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK]
}

fn flipped(fill: u8, byte: usize, bit: u8) -> Vec<u8> {
    let mut data = block(fill);
    data[byte] ^= 1 << bit;
    data
}

/// A block with something wrong with it by `effect`, where `old` was before.
fn lie(effect: &str, fill: u8, old: u8) -> Vec<u8> {
    match effect {
        "bit_flip(byte=9, bit=2)" => flipped(fill, 9, 2),
        "zeros" => block(0),
        "lost_write" => block(old),
        other => panic!("{other}"),
    }
}

const DATA_EFFECTS: [&str; 3] = ["bit_flip(byte=9, bit=2)", "zeros", "lost_write"];
const SCHEDULES: [(&str, [bool; 6]); 6] = [
    ("all", [true; 6]),
    ("once", [true, false, false, false, false, false]),
    ("nth=3", [false, false, true, false, false, false]),
    ("every=2", [false, true, false, true, false, true]),
    ("after=4", [false, false, false, false, true, true]),
    ("after=0", [true; 6]),
];

#[test]
fn every_effect_on_written_data_shows_where_its_schedule_hits() {
    for effect in DATA_EFFECTS {
        for (schedule, hits) in SCHEDULES {
            let stand = Stand::new(&[&format!("write, {schedule}: {effect}")]);
            for (n, hit) in hits.into_iter().enumerate() {
                let (offset, fill) = ((n * BLOCK) as u64, n as u8 + 1);
                stand.write(offset, &block(fill)).expect("acknowledged all the same");
                let expected = if hit { lie(effect, fill, 0) } else { block(fill) };
                // Twice: a retry sees the same lie.
                for _ in 0..2 {
                    assert!(
                        stand.read(offset, BLOCK).expect("reads") == expected,
                        "{schedule}: {effect}, {n}"
                    );
                }
                assert!(stand.pristine(offset, BLOCK) == block(fill), "the truth is kept below");
            }
            let expected = hits.iter().filter(|hit| **hit).count();
            assert_eq!(stand.records().len(), expected, "{schedule}: {effect}");
        }
    }
}

#[test]
fn every_effect_on_read_data_shows_only_in_the_reads_that_its_schedule_hits() {
    for effect in &DATA_EFFECTS[..2] {
        for (schedule, hits) in SCHEDULES {
            let stand = Stand::new(&[&format!("read, {schedule}: {effect}")]);
            stand.write(0, &block(7)).expect("writes");
            for hit in hits {
                let expected = if hit { lie(effect, 7, 0) } else { block(7) };
                assert!(stand.read(0, BLOCK).expect("reads") == expected, "{schedule}: {effect}");
            }
        }
    }
}

#[test]
fn errors_and_delays_hit_every_operation_as_scheduled() {
    type Make = fn() -> Request;
    let requests: [(&str, Make); 4] = [
        ("read", || Request::read(0, Buffer::stale(BLOCK), context())),
        ("write", || Request::write(0, Buffer::copy_of(&block(1)), context())),
        ("flush", || Request::flush(context())),
        ("discard", || Request::discard(0, BLOCK as u64, context())),
    ];
    for (operation, request) in requests {
        for (schedule, hits) in SCHEDULES {
            for effect in ["error", "delay(10ms)"] {
                let stand = Stand::new(&[&format!("{operation}, {schedule}: {effect}")]);
                for hit in hits {
                    let mut result = Ok(());
                    let took = stand.time(|| result = stand.complete(request()).result);
                    if effect == "error" {
                        assert_eq!(result.is_err(), hit, "{operation}, {schedule}");
                        assert_eq!(took, Duration::ZERO);
                    } else {
                        assert!(result.is_ok());
                        let expected = Duration::from_millis(if hit { 10 } else { 0 });
                        assert_eq!(took, expected, "{operation}, {schedule}");
                    }
                }
                assert_eq!(stand.records().len(), hits.iter().filter(|hit| **hit).count());
            }
        }
    }
}

#[test]
fn a_transient_lie_ends_where_it_is_overwritten_and_only_there() {
    let stand = Stand::new(&["write, once: zeros"]);
    stand.write(0, &block(5)).expect("writes");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), block(0));
    stand.write(1024, &[6; 512]).expect("writes");
    let mut expected = block(0);
    expected[1024..1536].fill(6);
    assert_eq!(stand.read(0, BLOCK).expect("reads"), expected);
    stand.complete(Request::write_zeroes(0, 512, context())).result.expect("zeroes");
    stand.write(2048, &[7; 2048]).expect("writes");
    expected[2048..].fill(7);
    assert_eq!(stand.read(0, BLOCK).expect("reads"), expected);
    stand.write(0, &block(8)).expect("writes");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), block(8));
}

#[test]
fn a_discard_ends_a_lie() {
    let stand = Stand::new(&["write, once: bit_flip"]);
    stand.write(0, &block(5)).expect("writes");
    stand.complete(Request::discard(0, BLOCK as u64, context())).result.expect("discards");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), block(0));
}

#[test]
fn a_sticky_place_distorts_whatever_is_written_to_it_and_nothing_else() {
    for effect in &DATA_EFFECTS[..2] {
        for operation in ["read", "write"] {
            let stand = Stand::new(&[&format!("{operation}, once, sticky: {effect}")]);
            stand.write(4096, &block(1)).expect("writes");
            stand.read(4096, BLOCK).expect("reads");
            for fill in [2, 3] {
                stand.write(4096, &block(fill)).expect("writes");
                stand.write(8192, &block(fill)).expect("writes");
                for _ in 0..2 {
                    assert!(stand.read(4096, BLOCK).expect("reads") == lie(effect, fill, 0), "{operation}");
                    assert!(stand.read(8192, BLOCK).expect("reads") == block(fill), "{operation}");
                }
            }
            // One record for each content that it distorted.
            assert_eq!(stand.records().len(), 3, "{operation}: {effect}");
        }
    }
}

#[test]
fn a_sticky_lost_write_loses_every_later_write_to_its_place() {
    let stand = Stand::new(&["write, nth=2, sticky: lost_write"]);
    for fill in [1, 2, 3] {
        stand.write(0, &block(fill)).expect("acknowledged");
        assert_eq!(stand.read(0, BLOCK).expect("reads"), block(1));
    }
    stand.write(4096, &block(4)).expect("writes");
    assert_eq!(stand.read(4096, BLOCK).expect("reads"), block(4));
    assert_eq!(stand.records().len(), 2);
}

#[test]
fn a_sticky_error_fails_every_later_request_of_its_operation_that_touches_the_place() {
    let stand = Stand::new(&["read, offset=4096, once, sticky: error"]);
    stand.read(0, BLOCK).expect("not the place");
    for _ in 0..2 {
        assert_eq!(stand.read(0, 3 * BLOCK).expect_err("touches it").kind(), ErrorKind::Medium);
        assert_eq!(stand.read(4096 + 512, 512).expect_err("inside it").kind(), ErrorKind::Medium);
        stand.read(0, BLOCK).expect("the neighbour is well");
        stand.write(4096, &block(1)).expect("only reads fail");
    }
    assert_eq!(stand.records().len(), 4);
}

#[test]
fn a_sticky_delay_slows_the_place_down() {
    let stand = Stand::new(&["offset=4096, once, sticky: delay(5ms)"]);
    let slow = || stand.time(|| drop(stand.read(4096, BLOCK)));
    assert_eq!([slow(), slow()], [Duration::from_millis(5); 2]);
    assert_eq!(stand.time(|| drop(stand.read(0, BLOCK))), Duration::ZERO);
}

#[test]
fn a_content_is_hit_wherever_it_is_written_and_a_sticky_one_stays_where_it_was() {
    let rule = format!("write, content={}, sticky: bit_flip", ContentHash::of(&block(3)));
    let stand = Stand::new(&[&rule]);
    let mut data = block(1);
    data.extend(block(3));
    data.extend(block(2));
    stand.write(8192, &data).expect("writes");
    assert_eq!(stand.read(8192, BLOCK).expect("reads"), block(1));
    assert_eq!(stand.read(12288, BLOCK).expect("reads"), flipped(3, 0, 0));
    assert_eq!(stand.read(16384, BLOCK).expect("reads"), block(2));
    stand.write(12288, &block(9)).expect("writes");
    assert_eq!(stand.read(12288, BLOCK).expect("reads"), flipped(9, 0, 0));
}

#[test]
fn a_merged_read_with_one_bad_block_fails_whole_and_the_ledger_names_all_32_blocks() {
    let stand = Stand::new(&["read, offset=69632: error"]);
    let data: Vec<u8> = (0..32u8).flat_map(block).collect();
    stand.write(0, &data).expect("writes");
    let mut buffer = Buffer::stale(data.len());
    buffer.fill(0xaa);
    let completion = stand.complete(Request::read(0, buffer, context()));
    let error = completion.result.expect_err("one block is bad");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Medium, Error::medium().to_string()));
    assert!(completion.buffer.iter().all(|&byte| byte == 0xaa), "the reader's buffer stays as it was");
    let records = stand.records();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].offset, records[0].length), (0, 32 * 4096));
    let expected: Vec<_> = (0..32u8).map(|n| (u64::from(n) * 4096, ContentHash::of(&block(n)))).collect();
    let found: Vec<_> = records[0].blocks.iter().map(|block| (block.offset, block.content)).collect();
    assert_eq!(found, expected);
    stand.read(0, 17 * BLOCK).expect("without the bad block");
}

#[test]
fn a_read_that_fails_for_its_content_does_not_bring_the_content() {
    let rule = format!("read, content={}: error", ContentHash::of(&block(3)));
    let stand = Stand::new(&[&rule]);
    stand.write(0, &block(3)).expect("writes");
    let completion = stand.complete(Request::read(0, Buffer::copy_of(&block(1)), context()));
    assert!(completion.result.is_err());
    assert!(!completion.buffer.contains(&3));
}

#[test]
fn a_failed_write_leaves_the_old_data_and_old_lies() {
    let stand = Stand::new(&["write, nth=1: bit_flip", "write, nth=2: error"]);
    stand.write(0, &block(1)).expect("acknowledged");
    stand.write(0, &block(2)).expect_err("fails");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), flipped(1, 0, 0));
    stand.write(0, &block(3)).expect("writes");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), block(3));
}

#[test]
fn a_ledger_entry_tells_truth_and_lie_and_is_repaired_by_the_truth_alone() {
    let stand = Stand::new(&["write, once: bit_flip(byte=9, bit=2)"]);
    let (truth, lie) = (ContentHash::of(&block(1)), ContentHash::of(&flipped(1, 9, 2)));
    stand.write(0, &block(1)).expect("writes");
    let record = &stand.records()[0];
    assert_eq!((record.before, record.after, record.repaired_at_ns), (Some(truth), Some(lie), None));
    assert_eq!(record.effect, "bit_flip(byte=9, bit=2)".parse::<Effect>().expect("an effect"));
    stand.runtime.block_on(stand.runtime.sleep(Duration::from_micros(7))).expect("sleeps");
    stand.write(0, &block(1)).expect("writes");
    assert_eq!(stand.records()[0].repaired_at_ns, Some(7_000));

    let stand = Stand::new(&["write, once: bit_flip(byte=9, bit=2)"]);
    for fill in [1, 2, 1] {
        stand.write(0, &block(fill)).expect("writes");
    }
    assert_eq!(stand.records()[0].repaired_at_ns, None, "something else came between");
}

#[test]
fn sectors_of_a_damaged_block_repair_it_when_the_last_of_them_is_right() {
    let stand = Stand::new(&["write, once: zeros"]);
    stand.write(0, &block(1)).expect("writes");
    for sector in 0..8u64 {
        assert_eq!(stand.records()[0].repaired_at_ns, None, "before sector {sector}");
        stand.write(sector * 512, &[1; 512]).expect("writes");
    }
    assert!(stand.records()[0].repaired_at_ns.is_some());
}

#[test]
fn a_lie_on_part_of_a_block_is_recorded_with_the_hashes_of_the_whole() {
    let stand = Stand::new(&["write, after=1: zeros"]);
    stand.write(0, &block(1)).expect("writes");
    stand.write(512, &[2; 1024]).expect("writes");
    let mut truth = block(1);
    truth[512..1536].fill(2);
    let mut lie = truth.clone();
    lie[512..1536].fill(0);
    assert_eq!(stand.read(0, BLOCK).expect("reads"), lie);
    let record = &stand.records()[0];
    assert_eq!((record.offset, record.length), (512, 1024));
    assert_eq!(record.before, Some(ContentHash::of(&truth)));
    assert_eq!(record.after, Some(ContentHash::of(&lie)));
}

#[test]
fn a_bit_flip_matches_only_requests_that_carry_its_byte() {
    let stand = Stand::new(&["write: bit_flip(byte=600, bit=0)"]);
    for sector in 0..8u64 {
        stand.write(sector * 512, &[1; 512]).expect("writes");
    }
    assert_eq!(stand.read(0, BLOCK).expect("reads"), flipped(1, 600, 0));
    assert_eq!(stand.engine.report()[0].matches, 1);
}

#[test]
fn writes_of_zeros_are_writes() {
    let stand = Stand::new(&["write, nth=2: bit_flip(byte=9, bit=2)"]);
    stand.complete(Request::write_zeroes(0, 3 * 4096, context())).result.expect("zeroes");
    assert_eq!(stand.read(0, BLOCK).expect("reads"), block(0));
    assert_eq!(stand.read(4096, BLOCK).expect("reads"), flipped(0, 9, 2));
    assert_eq!(stand.records()[0].before, Some(ContentHash::of(&block(0))));
}

#[test]
fn a_request_that_the_device_refuses_matches_nothing() {
    let stand = Stand::new(&["any: error"]);
    let beyond = stand.complete(Request::read(DEVICE_BYTES, Buffer::stale(512), context()));
    assert_eq!(beyond.result.expect_err("beyond").kind(), ErrorKind::OutOfRange);
    let askew = stand.complete(Request::discard(1, 512, context()));
    assert_eq!(askew.result.expect_err("askew").kind(), ErrorKind::Misaligned);
    stand.complete(Request::read(0, Buffer::empty(), context())).result.expect("nothing to read");
    assert_eq!(stand.engine.report()[0].matches, 0);
}

/// A device that fails every request while it is told to.
struct Moody {
    below: Arc<dyn Device>,
    fails: Arc<std::sync::atomic::AtomicBool>,
}

impl Device for Moody {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(MoodyQueue { below: self.below.open_queue(runtime)?, fails: Arc::clone(&self.fails) }))
    }
}

struct MoodyQueue {
    below: Rc<dyn Queue>,
    fails: Arc<std::sync::atomic::AtomicBool>,
}

impl Queue for MoodyQueue {
    fn submit(&self, request: Request) -> Submission {
        if self.fails.load(std::sync::atomic::Ordering::Relaxed) {
            return request.fail(Error::new(ErrorKind::Gone, "moody")).into();
        }
        self.below.submit(request)
    }
}

#[test]
fn what_fails_below_changes_no_lie_and_is_no_injection() {
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let below = MemoryDevice::new(DEVICE_BYTES, 512).expect("memory");
    let stand = Stand::over(
        Arc::new(Moody { below, fails: Arc::clone(&fails) }),
        &["write, nth=1: bit_flip", "write, nth=2: zeros", "read, offset=8192: error"],
    );
    stand.write(0, &block(1)).expect("writes");
    fails.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(stand.write(0, &block(2)).expect_err("moody").kind(), ErrorKind::Gone);
    assert_eq!(stand.read(8192, BLOCK).expect_err("moody").kind(), ErrorKind::Gone);
    fails.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(stand.read(0, BLOCK).expect("reads"), flipped(1, 0, 0));
    assert_eq!(stand.records().len(), 1);
}

#[test]
fn delayed_requests_hold_no_one_up() {
    let stand = Stand::new(&["offset=0: delay(1s)"]);
    let finished = Rc::new(Cell::new(0));
    let took = stand.time(|| {
        let tasks: Vec<_> = (0..10u64)
            .map(|n| {
                let (queue, finished) = (Rc::clone(&stand.queue), Rc::clone(&finished));
                let request = Request::read(n % 2 * 4096, Buffer::stale(BLOCK), context());
                stand.runtime.spawn(async move {
                    queue.submit(request).await.result.expect("reads");
                    finished.set(finished.get() + 1);
                })
            })
            .collect();
        stand.runtime.block_on(stand.runtime.sleep(Duration::from_millis(1))).expect("sleeps");
        assert_eq!(finished.get(), 5, "those without a delay are done");
        stand
            .runtime
            .block_on(async {
                for task in tasks {
                    task.await;
                }
            })
            .expect("completes");
    });
    assert_eq!(took, Duration::from_secs(1), "the delays pass side by side");
}

#[test]
fn a_request_hangs_until_it_is_released_its_rule_rests_or_its_span_is_over() {
    type LetGo = fn(&Engine);
    let ways: [(&str, LetGo, u64); 6] = [
        ("hang", |engine| assert_eq!(engine.release(None::<&[&str]>).expect("all"), 1), 1000),
        ("hang", |engine| assert_eq!(engine.release(Some(&["stuck"])).expect("it is there"), 1), 1000),
        ("hang", |engine| engine.set_state("stuck", RuleState::Paused).expect("it is there"), 1000),
        ("hang", |engine| engine.set_state("stuck", RuleState::Removed).expect("it is there"), 1000),
        ("hang(30s)", |engine| assert_eq!(engine.release(Some(&["stuck"])).expect("it is there"), 1), 1000),
        ("hang(500ms)", |engine| assert_eq!(engine.release(Some(&["stuck"])).expect("it is there"), 0), 500),
    ];
    for (effect, let_go, took_ms) in ways {
        for operation in ["read", "write", "flush"] {
            let stand =
                Stand::new(&[&format!("name=stuck, {operation}: {effect}"), "name=other, discard: hang"]);
            let request = match operation {
                "read" => Request::read(0, Buffer::stale(BLOCK), context()),
                "write" => Request::write(0, Buffer::copy_of(&block(1)), context()),
                _ => Request::flush(context()),
            };
            let (queue, runtime) = (Rc::clone(&stand.queue), stand.runtime.clone());
            let hung = stand.runtime.spawn(async move {
                queue.submit(request).await.result.expect("succeeds in the end");
                runtime.now()
            });
            stand.runtime.block_on(stand.runtime.sleep(Duration::from_secs(1))).expect("sleeps");
            let is_over = took_ms < 1000;
            assert_eq!(stand.engine.report()[0].hanging, u64::from(!is_over), "{operation}: {effect}");
            assert!(stand.engine.release(Some(&["stcuk"])).is_err(), "a name that no rule has");
            let_go(&stand.engine);
            let came_back = stand.runtime.block_on(hung).expect("it comes back");
            assert_eq!(
                came_back.since(Default::default()),
                Duration::from_millis(took_ms),
                "{operation}: {effect}"
            );
            assert_eq!(stand.engine.report()[0].hanging, 0);
            assert_eq!(stand.records().len(), 1, "a hang is on record");
        }
    }
}

#[test]
fn a_release_concerns_what_hangs_now_and_reaches_other_threads() {
    let below: Arc<dyn Device> = MemoryDevice::new(DEVICE_BYTES, 4096).expect("memory");
    let (device, engine) = with_faults(below, &["name=stuck, read: hang".to_owned()]);
    let hanging = || engine.report()[0].hanging;
    let wait_until_it_hangs = || {
        let began = std::time::Instant::now();
        while hanging() == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "the read never hung");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring");
            let queue = device.open_queue(&runtime).expect("a queue");
            for _ in 0..2 {
                let request = Request::read(0, Buffer::stale(BLOCK), context());
                runtime.block_on(queue.submit(request)).expect("completes").result.expect("reads");
            }
        });
        for _ in 0..2 {
            wait_until_it_hangs();
            assert_eq!(engine.release(None::<&[&str]>).expect("all"), 1);
        }
        reader.join().expect("both reads came back");
    });
    assert_eq!((engine.report()[0].hits, hanging()), (2, 0));
}

#[test]
fn a_request_that_is_given_up_no_longer_hangs() {
    let stand = Stand::new(&["name=stuck, read: hang"]);
    let submission = stand.queue.submit(Request::read(0, Buffer::stale(BLOCK), context()));
    let task = stand.runtime.spawn(async move { drop(submission.await) });
    stand.runtime.block_on(stand.runtime.sleep(Duration::from_secs(1))).expect("sleeps");
    assert_eq!(stand.engine.report()[0].hanging, 1);
    stand.runtime.abandon_tasks();
    drop(task);
    assert_eq!(stand.engine.report()[0].hanging, 0);
}

#[test]
fn queues_on_several_threads_lose_no_hit_and_no_lie() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 64;
    let below: Arc<dyn Device> = MemoryDevice::new(DEVICE_BYTES, 4096).expect("memory");
    let rules = ["write, every=3: bit_flip(byte=9, bit=2)".to_owned()];
    let (device, engine) = with_faults(below, &rules);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let device = Arc::clone(&device);
            scope.spawn(move || {
                let runtime = Runtime::uring(RuntimeOptions::new(thread)).expect("this machine has io_uring");
                let queue = device.open_queue(&runtime).expect("a queue");
                for round in 0..10 {
                    for n in 0..BLOCKS {
                        let offset = (n * THREADS + thread) * BLOCK as u64;
                        let fill = (round * 16 + thread) as u8;
                        let request = Request::write(offset, Buffer::copy_of(&block(fill)), context());
                        runtime.block_on(queue.submit(request)).expect("completes").result.expect("writes");
                    }
                }
            });
        }
    });
    let writes = THREADS * BLOCKS * 10;
    assert_eq!(engine.report()[0].matches, writes);
    let records = engine.ledger().records().expect("in memory");
    assert_eq!(records.len() as u64, writes / 3);
    let runtime = Runtime::simulated(1);
    let queue = device.open_queue(&runtime).expect("a queue");
    for n in 0..BLOCKS * THREADS {
        let offset = n * BLOCK as u64;
        let fill = (9 * 16 + n % THREADS) as u8;
        let request = Request::read(offset, Buffer::stale(BLOCK), context());
        let data = runtime.block_on(queue.submit(request)).expect("completes").buffer.to_vec();
        let last = records.iter().rev().find(|record| record.offset == offset);
        let is_hit = last.is_some_and(|record| record.before == Some(ContentHash::of(&block(fill))));
        let expected = if is_hit { flipped(fill, 9, 2) } else { block(fill) };
        assert!(data == expected, "block {n}");
    }
}

/// What a device was asked for: operation, first byte, length, context.
type Seen = Arc<parking_lot::Mutex<Vec<(Operation, u64, u64, Context)>>>;

/// Notes every request.
struct Watch(Arc<dyn Device>, Seen);

struct WatchQueue(Rc<dyn Queue>, Seen);

impl Device for Watch {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(WatchQueue(self.0.open_queue(runtime)?, Arc::clone(&self.1))))
    }
}

impl Queue for WatchQueue {
    fn submit(&self, request: Request) -> Submission {
        self.1.lock().push((request.operation, request.offset, request.length, request.context));
        self.0.submit(request)
    }
}

/// A faulty device, and what the one below it is asked for.
fn watched(rules: &[&str]) -> (Stand, Seen) {
    let seen = Seen::default();
    let below = MemoryDevice::new(DEVICE_BYTES, 512).expect("memory");
    (Stand::over(Arc::new(Watch(below, Arc::clone(&seen))), rules), seen)
}

#[test]
fn requests_that_the_layer_makes_are_children_of_the_one_they_serve() {
    let (stand, seen) = watched(&["write: lost_write"]);
    let own = Context { id: 42, ..context() };
    stand.complete(Request::write(0, Buffer::copy_of(&block(1)), own)).result.expect("acknowledged");
    let seen = seen.lock();
    assert_eq!(seen.iter().map(|seen| seen.0).collect::<Vec<_>>(), [Operation::Read, Operation::WRITE]);
    assert_eq!((seen[0].3.parent, seen[1].3), (42, own));
}

#[test]
fn a_small_read_that_is_hit_takes_its_whole_block_along_and_no_second_read() {
    let (stand, seen) = watched(&["read, once: bit_flip(byte=600, bit=0)"]);
    stand.write(0, &block(1)).expect("writes");
    stand.write(512, &[2; 512]).expect("writes");
    seen.lock().clear();
    let mut lie = vec![2; 512];
    lie[88] ^= 1;
    assert_eq!(stand.read(512, 512).expect("reads"), lie);
    let asked: Vec<_> = seen.lock().iter().map(|seen| (seen.0, seen.1, seen.2)).collect();
    assert_eq!(asked, [(Operation::Read, 0, 4096)]);
    let truth = stand.pristine(0, BLOCK);
    assert_eq!(stand.records()[0].before, Some(ContentHash::of(&truth)));
    // What no rule hits is asked for as it is, although there is a record that a write may close.
    seen.lock().clear();
    assert_eq!(stand.read(512, 512).expect("reads"), [2; 512]);
    let asked: Vec<_> = seen.lock().iter().map(|seen| (seen.0, seen.1, seen.2)).collect();
    assert_eq!(asked, [(Operation::Read, 512, 512)]);
}

#[test]
fn the_neighbours_of_a_small_write_that_is_hit_are_read_while_it_is_written() {
    let (stand, seen) = watched(&["write, after=1: ones"]);
    stand.write(0, &block(1)).expect("writes");
    seen.lock().clear();
    // It begins in one block and ends in the next.
    stand.write(3584, &[7; 1024]).expect("writes");
    let asked: Vec<_> = seen.lock().iter().map(|seen| (seen.0, seen.1, seen.2)).collect();
    let expected =
        [(Operation::WRITE, 3584, 1024), (Operation::Read, 0, 4096), (Operation::Read, 4096, 4096)];
    assert_eq!(asked, expected);
    for (record, place) in stand.records().iter().zip([0, 4096]) {
        let truth = stand.pristine(place, BLOCK);
        assert_eq!(record.before, Some(ContentHash::of(&truth)), "the block at {place}");
    }
    assert_eq!(stand.records().len(), 2);
}
