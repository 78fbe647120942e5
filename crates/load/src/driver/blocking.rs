//! The queue of what answers in a call: whoever submits waits in it, so there is one request in flight whatever the depth
//! of the queue.
//!
//! Neither discards nor zeros without a payload are offered. A trace may hold discards all the same: they are refused
//! here as not supported, and the load counts them apart.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{
    Device, DeviceInfo, Error, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

/// What is read and written by calls that return once it is done. The ranges lie within the device.
pub(super) trait Blocking: Send + Sync + 'static {
    /// Fills the buffer from `offset` on.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all bytes from `offset` on; with `durable` they are so on return.
    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()>;

    /// Makes durable what has been written.
    fn flush(&self) -> io::Result<()>;

    /// An error of these calls as one of a device.
    fn error(error: io::Error) -> Error;
}

/// A device that is all calls, opened once for all workers.
#[derive(Debug)]
pub(super) struct BlockingDevice<T> {
    calls: Arc<T>,
    info: DeviceInfo,
}

impl<T: Blocking> BlockingDevice<T> {
    /// `info` is what the same thing says of itself as a device that can do more.
    pub(super) fn new(calls: T, info: DeviceInfo) -> Self {
        let features = Features { discard: false, write_zeroes: false, ..info.features };
        Self { calls: Arc::new(calls), info: DeviceInfo { features, ..info } }
    }
}

impl<T: Blocking> Device for BlockingDevice<T> {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(BlockingQueue { calls: Arc::clone(&self.calls), info: self.info }))
    }
}

struct BlockingQueue<T> {
    calls: Arc<T>,
    info: DeviceInfo,
}

impl<T: Blocking> Queue for BlockingQueue<T> {
    fn submit(&self, mut request: Request) -> Submission {
        // Refuses what is not offered, too.
        if let Err(error) = self.info.check(&request) {
            return request.fail(error).into();
        }
        let offset = request.offset;
        let done = match request.operation {
            Operation::Read => self.calls.read(offset, &mut request.buffer),
            Operation::Write { fua } => self.calls.write(offset, &request.buffer, fua),
            Operation::Flush => self.calls.flush(),
            Operation::Discard | Operation::WriteZeroes => Err(io::ErrorKind::Unsupported.into()),
        };
        match done {
            Ok(()) => request.succeed().into(),
            Err(error) => request.fail(T::error(error)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use parking_lot::{Condvar, Mutex};
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_block::{ErrorKind, Phase};

    use super::*;
    use crate::engine::HungEnd;
    use crate::probe::uring;
    use crate::{DeviceDriver, Driver, FileEngine, LoadSpec, Oracle, Workload, run};

    /// Memory of which the third block cannot be written as long as it is held; then the call waits.
    struct Held(Arc<Shared>);

    struct Shared {
        data: Mutex<Vec<u8>>,
        is_held: Mutex<bool>,
        changed: Condvar,
    }

    /// No test waits for longer.
    const DEADLINE: Duration = Duration::from_secs(60);
    const HELD: u64 = 3 * 4096;

    impl Blocking for Held {
        fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            buffer.copy_from_slice(&self.0.data.lock()[offset as usize..][..buffer.len()]);
            Ok(())
        }

        fn write(&self, offset: u64, bytes: &[u8], _: bool) -> io::Result<()> {
            let mut is_held = self.0.is_held.lock();
            let deadline = Instant::now() + DEADLINE;
            while *is_held && offset == HELD {
                assert!(!self.0.changed.wait_until(&mut is_held, deadline).timed_out(), "nobody let it go");
            }
            self.0.data.lock()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn error(error: io::Error) -> Error {
            Error::from_io(error, "memory")
        }
    }

    struct Rig {
        shared: Arc<Shared>,
        driver: DeviceDriver,
        workload: Workload,
        oracle: Oracle,
    }

    impl Rig {
        fn new(json: &str) -> Self {
            let info = MemoryDevice::new(20 * 4096, 512).expect("memory").info();
            let shared = Arc::new(Shared {
                data: Mutex::new(vec![0; 20 * 4096]),
                is_held: Mutex::new(true),
                changed: Condvar::new(),
            });
            let device = Arc::new(BlockingDevice::new(Held(Arc::clone(&shared)), info));
            let driver = DeviceDriver::through(FileEngine::Psync, device).expect("suits");
            let spec: LoadSpec = serde_json::from_str(json).expect(json);
            let workload = Workload::new(&spec, 1, driver.objects()).expect("makes sense");
            let oracle = Oracle::new(&workload);
            Self { shared, driver, workload, oracle }
        }

        fn release(shared: &Shared) {
            *shared.is_held.lock() = false;
            shared.changed.notify_all();
        }

        /// Lets the call return of a thread that was left behind, and waits for its end.
        fn end(self) {
            Self::release(&self.shared);
            drop(self.driver);
            let deadline = Instant::now() + DEADLINE;
            while Arc::strong_count(&self.shared) > 1 {
                assert!(Instant::now() < deadline, "the thread that was left behind does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_call_that_does_not_return_is_told_of_and_its_worker_given_up() {
        // The first worker, which writes blocks 0 to 9 in order, or the only one.
        for (json, writes) in [
            (r#"{ "queue_depth": 4, "hung_after": "60ms" }"#, 4),
            (r#"{ "workers": 2, "hung_after": "60ms" }"#, 14),
        ] {
            let mut rig = Rig::new(json);
            let options = uring(Phase::Run);
            let report = run(&rig.workload, &rig.driver, &mut rig.oracle, &options).expect("it ends");
            assert!(!report.is_interrupted, "{json}");
            assert_eq!(report.hung.len(), 1, "{json}: {:?}", report.hung);
            let hung = &report.hung[0];
            assert_eq!(
                (&*hung.operation, hung.offset_bytes, hung.end),
                ("write", HELD, HungEnd::GivenUp),
                "{json}"
            );
            assert!(hung.age_ns >= 120_000_000, "{hung:?}");
            // What was done before it is kept.
            assert_eq!(
                (report.writes.requests, report.writes.bytes),
                (writes, (writes - 1) * 4096),
                "{json}"
            );
            assert_eq!(report.writes.errors, [(ErrorKind::TimedOut, 1)], "{json}");
            let told = options.progress.take_hung();
            assert_eq!(told.iter().map(|hung| hung.end).collect::<Vec<_>>(), [HungEnd::Waiting], "{json}");
            // It may still be written at any time, so it is not judged; everything else is.
            let check =
                run(&rig.workload, &rig.driver, &mut rig.oracle, &uring(Phase::Check)).expect("it ends");
            assert_eq!((check.reads.bytes, check.sightings.len()), ((writes - 1) * 4096, 0), "{json}");
            let failures = crate::classify(&rig.workload, &rig.oracle, [&report, &check]);
            assert_eq!(failures.len(), 1, "{json}");
            assert_eq!((failures[0].block, failures[0].worst().what.kind()), (3, "unwritable"));
            rig.end();
        }
    }

    #[test]
    fn a_call_that_returns_late_is_told_of_and_no_error() {
        let mut rig = Rig::new(r#"{ "hung_after": "500ms" }"#);
        let (options, shared) = (uring(Phase::Run), Arc::clone(&rig.shared));
        let progress = Arc::clone(&options.progress);
        let releases = std::thread::spawn(move || {
            let deadline = Instant::now() + DEADLINE;
            while progress.take_hung().is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            Rig::release(&shared);
        });
        let report = run(&rig.workload, &rig.driver, &mut rig.oracle, &options).expect("it ends");
        releases.join().expect("it only waits");
        assert_eq!((report.hung.len(), report.error_count(), report.writes.requests), (1, 0, 20));
        assert_eq!(report.hung[0].end, HungEnd::Returned);
        let check = run(&rig.workload, &rig.driver, &mut rig.oracle, &uring(Phase::Check)).expect("it ends");
        assert_eq!((check.reads.bytes, check.sightings.len()), (20 * 4096, 0));
        rig.end();
    }

    #[test]
    fn a_load_that_shall_stop_does_not_wait_for_a_call_that_does_not_return() {
        let mut rig = Rig::new(r#"{ "hung_after": "1h" }"#);
        let options = uring(Phase::Run);
        let cancel = Arc::clone(&options.cancel);
        let asks = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cancel.store(2, Ordering::Relaxed);
        });
        let report =
            run(&rig.workload, &rig.driver, &mut rig.oracle, &options).expect("what was done up to there");
        asks.join().expect("it only waits");
        assert!(report.is_interrupted && report.hung.is_empty());
        assert_eq!(
            (report.writes.requests, report.error_count()),
            (3, 0),
            "the call is in none of the figures"
        );
        rig.end();
    }
}
