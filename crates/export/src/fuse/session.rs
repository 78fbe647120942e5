//! One thread of an export: takes requests from its channels and answers them until the connection ends.
//!
//! While nothing is under way the thread sleeps in the FUSE device itself, or in its ring where the kernel sends requests
//! that way, which is the shortest way from a request to its answer. While requests are under way in the device (its
//! leaf is slow, a fault delays) the thread belongs to its runtime and looks for further requests without blocking.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, Result, Runtime};

use super::channel::{Channel, Received};
use super::data::{DataPath, Payload};
use super::parse::{FuseOperation, Malformed, TRANSFER_BYTES_MAX, parse};
use super::reply::{Asker, Reply};
use super::ring::{Arrived, FuseRing};
use super::tree::{FILE, Tree};
use super::wire::HEAD_BYTES;
use crate::byte_queue::ByteQueue;

/// Where a thread's requests come from.
pub(super) enum Source {
    Channels {
        /// To sleep in.
        blocking: Rc<Channel>,
        /// To look into while the runtime works.
        polled: Rc<Channel>,
    },
    Ring(Rc<FuseRing>),
}

/// What came of a look for a request.
#[derive(Debug, PartialEq, Eq)]
enum Served {
    One,
    None,
    End,
}

/// A thread's state. Dropping it answers what is still owed.
pub(super) struct Session {
    runtime: Runtime,
    data: DataPath,
    tree: Tree,
    source: Source,
    owed: Rc<Cell<usize>>,
    head: [u8; HEAD_BYTES],
    payload: Buffer,
}

impl Session {
    pub(super) fn new(byte_queue: ByteQueue, tree: Tree, source: Source) -> Self {
        Self {
            runtime: byte_queue.runtime.clone(),
            data: DataPath::new(byte_queue),
            tree,
            source,
            owed: Rc::default(),
            head: [0; HEAD_BYTES],
            payload: Buffer::stale(TRANSFER_BYTES_MAX),
        }
    }

    /// Serves until the file system is unmounted, its connection aborted, or `stop` set.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<()> {
        let runtime = self.runtime.clone();
        loop {
            let ended = if self.is_idle() {
                self.serve_one(true, stop)? == Served::End
            } else {
                runtime.block_on(self.serve_while_busy(stop))??
            };
            if ended {
                return Ok(());
            }
        }
    }

    /// Whether the thread may sleep outside the runtime. Looks at the answers owed too, since a request may wait
    /// for another thread, which the runtime cannot know.
    fn is_idle(&self) -> bool {
        self.owed.get() == 0 && self.runtime.is_quiet()
    }

    /// Returns whether the connection has ended.
    async fn serve_while_busy(&mut self, stop: &AtomicBool) -> Result<bool> {
        let readable = match &self.source {
            Source::Channels { polled, .. } => Arc::clone(polled.fd()),
            Source::Ring(ring) => Arc::clone(ring.arrival()),
        };
        loop {
            // Tasks and completions come first.
            self.runtime.yield_now().await;
            if self.is_idle() {
                return Ok(false);
            }
            let mut served = self.serve_one(false, stop)?;
            if let (Served::None, Source::Ring(ring)) = (&served, &self.source) {
                ring.begin_waiting();
                served = self.serve_one(false, stop)?;
            }
            match served {
                Served::One => {}
                Served::None => {
                    self.runtime.readable(&readable).await.0?;
                }
                Served::End => return Ok(true),
            }
        }
    }

    /// Serves the next request, if there is one; waits for it if so asked.
    fn serve_one(&mut self, wait: bool, stop: &AtomicBool) -> Result<Served> {
        match &self.source {
            Source::Channels { blocking, polled } => {
                let channel = Rc::clone(if wait { blocking } else { polled });
                self.serve_from_channel(&channel, stop)
            }
            Source::Ring(ring) => {
                let ring = Rc::clone(ring);
                self.serve_from_ring(&ring, wait, stop)
            }
        }
    }

    fn serve_from_channel(&mut self, channel: &Rc<Channel>, stop: &AtomicBool) -> Result<Served> {
        let received = channel
            .receive(&mut self.head, &mut self.payload)
            .doing(|| "reading from the FUSE device".into())?;
        let bytes = match received {
            Received::Request(bytes) => bytes,
            Received::Nothing => return Ok(Served::None),
            Received::End => return Ok(Served::End),
        };
        if stop.load(Ordering::Relaxed) {
            // Closing the channel answers the request with an error.
            return Ok(Served::End);
        }
        let (in_head, in_payload) = (bytes.min(HEAD_BYTES), bytes.saturating_sub(HEAD_BYTES));
        let asker = Asker::Device(Rc::clone(channel));
        match parse(&self.head[..in_head], &self.payload[..in_payload]) {
            Ok(message) => {
                let reply = Reply::new(asker, &self.owed, message.unique);
                let node = message.node;
                match message.operation {
                    FuseOperation::Write { offset, size, durable } => {
                        let payload = Payload::Arrived(&mut self.payload);
                        write(&self.data, &self.tree, reply, node, payload, (offset, size, durable));
                    }
                    operation => serve(&self.data, &self.tree, reply, node, operation),
                }
            }
            Err(Malformed { unique: Some(unique) }) => {
                Reply::new(asker, &self.owed, unique).errno(libc::EINVAL);
            }
            Err(Malformed { unique: None }) => {}
        }
        Ok(Served::One)
    }

    fn serve_from_ring(&mut self, ring: &Rc<FuseRing>, wait: bool, stop: &AtomicBool) -> Result<Served> {
        let entry = match ring.receive(wait)? {
            Arrived::Request(entry) => entry,
            Arrived::Nothing => return Ok(Served::None),
            Arrived::End => return Ok(Served::End),
        };
        let asker = Asker::Ring(Rc::clone(ring), entry);
        let arrived = match ring.request(entry) {
            Ok(arrived) => arrived,
            Err(unique) => {
                Reply::new(asker, &self.owed, unique).errno(libc::EINVAL);
                return Ok(Served::One);
            }
        };
        match parse(arrived.head(), &arrived.payload) {
            Ok(message) => {
                let reply = Reply::new(asker, &self.owed, message.unique);
                let node = message.node;
                if stop.load(Ordering::Relaxed) {
                    reply.errno(libc::ENOTCONN);
                    return Ok(Served::End);
                }
                match message.operation {
                    FuseOperation::Write { offset, size, durable } => {
                        let payload = Payload::Own(arrived.payload);
                        write(&self.data, &self.tree, reply, node, payload, (offset, size, durable));
                    }
                    operation => serve(&self.data, &self.tree, reply, node, operation),
                }
            }
            // An entry that got no answer would never be used again.
            Err(Malformed { unique }) => {
                Reply::new(asker, &self.owed, unique.unwrap_or_default()).errno(libc::EINVAL);
            }
        }
        Ok(Served::One)
    }
}

/// Stores what a write brings: where, how much, and whether it is to be durable.
fn write(
    data: &DataPath,
    tree: &Tree,
    reply: Reply,
    node: u64,
    payload: Payload<'_>,
    (offset, size, durable): (u64, usize, bool),
) {
    match tree.check_is_file(node) {
        Ok(()) => data.write(reply, payload, offset, size, durable),
        Err(errno) => reply.errno(errno),
    }
}

/// Serves anything but a write.
fn serve(data: &DataPath, tree: &Tree, reply: Reply, node: u64, operation: FuseOperation<'_>) {
    match operation {
        FuseOperation::Read { offset, size } => match tree.check_is_file(node) {
            Ok(()) => data.read(reply, offset, size),
            Err(errno) => reply.errno(errno),
        },
        // After this answer the kernel sends no more of them, and says by itself that they are done.
        FuseOperation::Fsync if tree.needs_no_fsync.load(Ordering::Relaxed) => reply.errno(libc::ENOSYS),
        FuseOperation::Fsync => data.flush(reply),
        FuseOperation::Fallocate { offset, length, mode } => match tree.check_is_file(node) {
            Ok(()) => data.allocate(reply, offset, length, mode),
            Err(errno) => reply.errno(errno),
        },
        FuseOperation::Lookup(name) => reply.fields(tree.lookup(node, name)),
        FuseOperation::GetAttr => reply.fields(tree.get_attributes(node)),
        FuseOperation::SetAttr { valid, size } => {
            reply.fields(tree.set_attributes(node, valid, size));
        }
        FuseOperation::Open { flags } => {
            let answer = tree.open(node, flags);
            if answer.is_ok() {
                tree.opened.fetch_add(1, Ordering::Relaxed);
            }
            reply.fields(answer);
        }
        FuseOperation::Release if node == FILE => {
            tree.opened.fetch_sub(1, Ordering::Relaxed);
            reply.data(&[]);
        }
        FuseOperation::OpenDir => reply.fields(tree.open_directory(node)),
        FuseOperation::ReadDir { offset, size } => match tree.entries(node, offset, size) {
            Ok(entries) => reply.data(&entries),
            Err(errno) => reply.errno(errno),
        },
        FuseOperation::StatFs => reply.fields(Ok(tree.statistics())),
        // Permissions are the kernel's business (`default_permissions`); closing promises nothing; names do not
        // change, so the directory is always durable.
        FuseOperation::Access
        | FuseOperation::Flush
        | FuseOperation::Release
        | FuseOperation::FsyncDir
        | FuseOperation::Destroy => reply.data(&[]),
        FuseOperation::Forget => reply.none(),
        // A second INIT is as unknown as what we never heard of. Interrupts are not needed: every request gets
        // its answer; after this one the kernel sends no more.
        FuseOperation::Init { .. }
        | FuseOperation::Interrupt
        | FuseOperation::Write { .. }
        | FuseOperation::Unknown { .. } => reply.errno(libc::ENOSYS),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Tasks hold the runtime and the runtime holds them. Each still owes an answer, and gives it now.
        self.runtime.abandon_tasks();
        if let Source::Ring(ring) = &self.source {
            ring.flush();
        }
    }
}

/// A failure in words, of a thread that ended by error or panic.
pub(crate) fn describe(outcome: &std::thread::Result<Result<()>>) -> Option<String> {
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(Error::to_string(error)),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use proptest::prelude::*;
    use rotproof_block::leaf::MemoryDevice;
    use rotproof_block::runtime::RuntimeOptions;
    use rotproof_block::{Device, Runtime};

    use super::super::wire::{AttrOut, InHeader, OutHeader, Plain, opcode};
    use super::*;
    use crate::stripes::SharedStripes;
    use crate::system::check;

    /// Two ends that keep messages apart, as the FUSE device does.
    fn pair() -> (OwnedFd, OwnedFd) {
        use std::os::fd::FromRawFd;
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors, which are ours afterwards.
        unsafe {
            check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())).expect("a pair of sockets");
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    /// A session served by a thread, and the end from which the test plays the kernel.
    fn with_session(test: impl FnOnce(&Channel)) {
        let ((kernel, session), (polled, _other)) = (pair(), pair());
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::uring(RuntimeOptions::new(1)).expect("this machine has io_uring");
            let device: Arc<dyn Device> = MemoryDevice::new(1 << 20, 4096).expect("sizes that fit");
            let (queue, info) = (device.open_queue(&runtime).expect("opens"), device.info());
            let stripes = SharedStripes::of(&device).on_this_thread();
            let byte_queue = ByteQueue {
                runtime,
                queue,
                info,
                size: Arc::new(info.size.into()),
                stripes,
                phase: Arc::default(),
                thread: 0,
                requests: Default::default(),
            };
            let tree = Tree {
                file_name: "disk".into(),
                info,
                size: Arc::new(info.size.into()),
                opened: Arc::default(),
                uid: 0,
                gid: 0,
                open_to_all: false,
                is_cached: false,
                needs_no_fsync: Arc::default(),
            };
            let (blocking, polled) = (Channel::from_fd(session), Channel::from_fd(polled));
            let source = Source::Channels { blocking: Rc::new(blocking), polled: Rc::new(polled) };
            Session::new(byte_queue, tree, source).run(&AtomicBool::new(false))
        });
        let kernel = Channel::from_fd(kernel);
        test(&kernel);
        drop(kernel);
        thread.join().expect("no message makes it panic").expect("the end of the connection is no error");
    }

    /// Sends a message that is not an answer.
    fn send(kernel: &Channel, bytes: &[u8]) {
        use std::os::fd::AsRawFd;
        // SAFETY: the bytes live across the call.
        let answer = unsafe {
            libc::send(kernel.fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        assert_eq!(usize::try_from(answer), Ok(bytes.len()), "{}", std::io::Error::last_os_error());
    }

    /// The next answer: its header and how many bytes it has.
    fn answer(kernel: &Channel) -> (OutHeader, usize) {
        let (mut head, mut payload) = ([0; HEAD_BYTES], Buffer::stale(TRANSFER_BYTES_MAX));
        match kernel.receive(&mut head, &mut payload).expect("it answers") {
            Received::Request(bytes) => (OutHeader::from_prefix(&head).expect("a whole header"), bytes),
            other => panic!("{other:?} instead of an answer"),
        }
    }

    fn header(opcode: u32, unique: u64, node: u64, body_len: usize) -> Vec<u8> {
        let len = u32::try_from(40 + body_len).expect("short");
        InHeader { len, opcode, unique, nodeid: node, ..InHeader::default() }.as_bytes().to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn hostile_messages_are_answered_and_the_next_is_served(
            messages in prop::collection::vec(
                (0u32..60, 0u64..4, prop::collection::vec(any::<u8>(), 0..200)), 1..20
            ),
            garbage in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            with_session(|kernel| {
                for (unique, (opcode, node, body)) in (1..).zip(&messages) {
                    send(kernel, &[header(*opcode, unique, *node, body.len()), body.clone()].concat());
                    if matches!(*opcode, opcode::FORGET | opcode::BATCH_FORGET) {
                        continue;
                    }
                    let (header, bytes) = answer(kernel);
                    assert_eq!((header.unique, header.len as usize), (unique, bytes));
                    assert!((-511..=0).contains(&header.error));
                }
                // Shorter than a header, so there is nobody to answer.
                send(kernel, &garbage[..garbage.len().min(39)]);
                send(kernel, &header(opcode::GETATTR, 1000, 2, 0));
                let (header, bytes) = answer(kernel);
                assert_eq!((header.unique, header.error), (1000, 0));
                assert_eq!(bytes, size_of::<OutHeader>() + size_of::<AttrOut>());
            });
        }
    }
}
