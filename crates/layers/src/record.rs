//! The layer that records what passes: every write with its data, flush, discard and write of zeros, when it goes down
//! and when it comes back.
//!
//! A request is recorded before it is submitted below, its completion before it is handed up, so the order of events is
//! one that the device below has really seen, and that everybody above has seen too. Reads, and requests that the device
//! refuses, are not recorded. A recording that finds no room ends; requests go on, and whoever finishes it is told.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::ability::{Ability, Wanted};
use rotproof_block::{
    Completion, Device, DeviceInfo, Operation, Queue, Request, Result, Runtime, Submission,
};
use rotproof_crash::recording::{Header, Recorder};

use crate::below::ability_below;

/// A device that is recorded.
pub struct RecordDevice {
    below: Arc<dyn Device>,
    recorder: Arc<Recorder>,
}

impl RecordDevice {
    /// Records what passes to `below`. The recorder's header is that of [`header_of`].
    pub fn new(below: Arc<dyn Device>, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self { below, recorder })
    }

    /// Where marks are set, and the recording ended.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }
}

/// What a recording says of a device; `id` tells it from other recordings.
pub fn header_of(info: DeviceInfo, id: u128) -> Header {
    Header { size: info.size, block_size: info.block_size, atomic_write_bytes: info.atomic_write_bytes, id }
}

impl Device for RecordDevice {
    fn info(&self) -> DeviceInfo {
        self.below.info()
    }

    fn ability(&self, wanted: Wanted) -> Option<Ability> {
        ability_below(&*self.below, wanted)
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(RecordQueue {
            below: self.below.open_queue(runtime)?,
            info: self.info(),
            recorder: Arc::clone(&self.recorder),
            runtime: runtime.clone(),
        }))
    }
}

impl fmt::Debug for RecordDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordDevice({:?})", self.recorder)
    }
}

struct RecordQueue {
    below: Rc<dyn Queue>,
    info: DeviceInfo,
    recorder: Arc<Recorder>,
    runtime: Runtime,
}

impl Queue for RecordQueue {
    fn submit(&self, request: Request) -> Submission {
        let is_of_interest = match request.operation {
            Operation::Read => false,
            Operation::Flush => true,
            _ => request.length > 0 && self.info.check(&request).is_ok(),
        };
        if !is_of_interest {
            return self.below.submit(request);
        }
        let Request { operation, offset, length, ref buffer, context } = request;
        let now = self.runtime.now().0;
        let name = match operation {
            Operation::Read => unreachable!("of no interest"),
            Operation::Write { fua } => self.recorder.write(now, offset, fua, context.tag, buffer),
            Operation::Flush => self.recorder.flush(now),
            Operation::Discard => self.recorder.discard(now, offset, length),
            Operation::WriteZeroes => self.recorder.write_zeroes(now, offset, length),
        };
        match self.below.submit(request).try_take() {
            Ok(completion) => {
                self.recorder.done(now, name, completion.result.is_ok());
                completion.into()
            }
            Err(submission) => {
                let (recorder, runtime) = (Arc::clone(&self.recorder), self.runtime.clone());
                Submission::pending(async move {
                    let completion: Completion = submission.await;
                    recorder.done(runtime.now().0, name, completion.result.is_ok());
                    completion
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rotproof_block::conformance::{On, check, check_layer};
    use rotproof_block::leaf::{DiskProfile, MemoryDevice, SimulatedDisk};
    use rotproof_block::{Buffer, Context, ErrorKind, Tag};
    use rotproof_crash::recording::{Event, Reader, RecorderOptions, What};
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn recorded(below: Arc<dyn Device>, path: &Path) -> Arc<RecordDevice> {
        let recorder = Recorder::create(path, header_of(below.info(), 1), RecorderOptions { same_bits: 8 });
        RecordDevice::new(below, recorder.expect("a new file"))
    }

    #[test]
    fn it_keeps_the_contract_and_passes_contexts_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let count = AtomicU32::new(0);
        let new = || folder.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
        for on in [On::Simulated, On::Uring] {
            check(on, &|| Ok(recorded(MemoryDevice::new(2 << 20, 512)?, &new()))).expect("the contract");
            check_layer(on, &|below| Ok(recorded(below, &new()))).expect("contexts");
        }
        let disk = || SimulatedDisk::new(2 << 20, 512, DiskProfile::NVME);
        check(On::Simulated, &|| Ok(recorded(disk()?, &new()))).expect("the contract");
    }

    #[test]
    fn what_passes_is_recorded_with_what_was_under_way_together_and_what_is_refused_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("r");
        let disk = SimulatedDisk::new(1 << 20, 512, DiskProfile::NVME).expect("a disk");
        let device = recorded(disk, &path);
        let runtime = Runtime::simulated(1);
        let queue = device.open_queue(&runtime).expect("a queue");
        let context = Context { tag: Tag::intern("focal.img"), ..Context::default() };
        let write = |offset, byte| Request::write(offset, Buffer::copy_of(&[byte; 4096]), context);
        let fua = Request { operation: Operation::Write { fua: true }, ..write(8192, 2) };
        let (first, second) = (queue.submit(write(0, 1)), queue.submit(fua));
        let complete = |submission: Submission| runtime.block_on(submission).expect("completes").result;
        complete(second).expect("on the disk");
        complete(first).expect("on the disk");
        complete(queue.submit(Request::flush(context))).expect("on the disk");
        device.recorder().mark(runtime.now().0, "both are safe");
        complete(queue.submit(Request::discard(0, 4096, context))).expect("on the disk");
        complete(queue.submit(Request::write_zeroes(4096, 512, context))).expect("on the disk");
        let beyond = complete(queue.submit(write(1 << 20, 3))).expect_err("beyond the end");
        assert_eq!(beyond.kind(), ErrorKind::OutOfRange);
        complete(queue.submit(Request::read(0, Buffer::zeroed(512), context))).expect("on the disk");
        complete(queue.submit(Request::discard(0, 0, context))).expect("nothing to do");
        device.recorder().finish().expect("there is room");
        let mut reader = Reader::open(&path).expect("a recording");
        let mut short = Vec::new();
        let mut times = Vec::new();
        while let Some(Event { what, time_ns, .. }) = reader.next_event().expect("whole") {
            times.push(time_ns);
            short.push(match what {
                What::Write(write) => {
                    assert_eq!((&*write.tag, write.length), ("focal.img", 4096));
                    format!("write {} {}", write.offset, write.fua)
                }
                What::Done { request, ok } => format!("done {request} {ok}"),
                What::Mark(text) => text,
                other => format!("{other:?}"),
            });
        }
        let mut ends = vec![short.remove(2), short.remove(2)];
        ends.sort();
        assert_eq!(ends, ["done 0 true", "done 1 true"]);
        assert_eq!(
            short,
            [
                "write 0 false",
                "write 8192 true",
                "Flush",
                "done 4 true",
                "both are safe",
                "Discard { offset: 0, length: 4096 }",
                "done 7 true",
                "WriteZeroes { offset: 4096, length: 512 }",
                "done 9 true",
                "End"
            ]
        );
        assert!(times.is_sorted() && times[3] > 0, "in the time of the runtime: {times:?}");
    }
}
