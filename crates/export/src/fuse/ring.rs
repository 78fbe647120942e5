//! FUSE over io_uring (Linux 6.14 and later, where `/sys/module/fuse/parameters/enable_uring` says so): an answer and
//! the look for the next request are one entry of a ring, and many of them one system call.
//!
//! The kernel has a queue for each processor and hands a request to that of the processor it comes from, so every
//! queue must be served. Each thread of an export serves every so many of them by its own ring. An entry of a queue is
//! memory for one request: it is the kernel's until a request has come, and ours until the answer has gone.
//!
//! It knows the layout of the ring and nothing of what messages mean. The kernel still says by the device that it has
//! forgotten a node or that a caller was interrupted; neither concerns us, and the first thread takes it away.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, ErrorKind, Result};

use super::channel::{Channel, Received};
use super::parse::{FuseOperation, TRANSFER_BYTES_MAX, parse};
use super::wire::{HEAD_BYTES, HEADER_BYTES, InHeader, OutHeader, Plain, RingCommand, RingRequest};

/// Says whether the kernel offers it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// How many processors there can be, as a list of ranges.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";
/// Requests that one queue has under way at once, and those of one thread in all; more wait in the kernel.
const QUEUE_DEPTH_MAX: usize = 32;
const THREAD_DEPTH_MAX: usize = 256;

/// Registers an entry and waits for its first request.
const REGISTER: u32 = 1;
/// Answers an entry's request and waits for its next.
const COMMIT_AND_FETCH: u32 = 2;

/// What completes besides entries: nothing more is to be served; the device has something to say.
const STOP_TOKEN: u64 = u64::MAX;
const DEVICE_TOKEN: u64 = u64::MAX - 1;

/// The ring of one thread. Belongs to the thread that made it.
pub(super) struct FuseRing {
    ring: RefCell<IoUring<Entry128>>,
    /// Signalled when something has come. The descriptor of the ring itself becomes readable only once a call of ours has
    /// made a completion of what has come.
    arrival: Arc<OwnedFd>,
    /// Does not block.
    device: Channel,
    /// Whether it is this thread that listens to the device.
    is_first: bool,
    /// Readable when nothing more is to be served.
    stop: Arc<OwnedFd>,
    entries: Vec<Entry>,
    /// Entries that the kernel has or will get back.
    alive: Cell<usize>,
    /// Answers are sent with the next look for a request; nobody need see to it.
    is_serving: Cell<bool>,
}

struct Entry {
    queue: u16,
    state: Cell<State>,
    header: Box<UnsafeCell<RingRequest>>,
    payload: UnsafeCell<Buffer>,
    /// Where both are, for the kernel: it reads this when the entry is registered, whenever that is submitted.
    memory: Cell<[libc::iovec; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not known to the kernel yet, or not any more.
    Idle,
    /// The kernel may write into it.
    Kernel,
    /// It holds a request without an answer.
    Ours,
}

/// What came of a look for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// One, in this entry.
    Request(usize),
    /// None is there; never where it was to be waited for.
    Nothing,
    /// There will never be one again.
    End,
}

/// A request, copied from its entry.
pub(super) struct InEntry {
    head: [u8; HEADER_BYTES + RingRequest::FIELDS_BYTES],
    head_len: usize,
    /// What follows its header and its fields.
    pub payload: Buffer,
}

impl InEntry {
    /// Header and fields.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

/// Whether the kernel offers FUSE over io_uring to new connections.
pub(super) fn is_enabled() -> bool {
    fs::read(SWITCH).is_ok_and(|text| matches!(text.first(), Some(b'Y' | b'1')))
}

/// How many queues the kernel has.
fn queues() -> Result<u16> {
    let list = fs::read_to_string(PROCESSORS).doing(|| format!("reading {PROCESSORS}"))?;
    count(list.trim()).ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("{PROCESSORS} says {list:?}, which is no list"))
    })
}

/// The members of a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    list.split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

impl FuseRing {
    /// Sends the answers that have been given, when nothing more is to be received.
    pub(super) fn flush(&self) {
        self.is_serving.set(false);
        // If it fails, so will the connection, and that is an answer too.
        let _ = self.submit(0);
    }

    /// What is readable when something may have come since [`FuseRing::begin_waiting`].
    pub(super) fn arrival(&self) -> &Arc<OwnedFd> {
        &self.arrival
    }

    /// Forgets what has come so far; look for a request once more before you wait.
    pub(super) fn begin_waiting(&self) {
        let mut count = 0u64;
        // SAFETY: an eventfd gives eight bytes, and that is what `count` has. It does not block.
        unsafe { libc::read(self.arrival.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// The next request; waits for it if so asked. Sends the answers that have been given.
    pub(super) fn receive(&self, wait: bool) -> Result<Arrived> {
        self.is_serving.set(true);
        let arrived = self.next(wait);
        // Whoever serves it now comes back here, unless nothing has come.
        self.is_serving.set(matches!(arrived, Ok(Arrived::Request(_))));
        arrived
    }

    fn next(&self, wait: bool) -> Result<Arrived> {
        loop {
            let completed = self.ring.borrow_mut().completion().next();
            match completed {
                Some(entry) => {
                    if let Some(arrived) = self.completed(&entry)? {
                        return Ok(arrived);
                    }
                }
                None if self.alive.get() == 0 => return Ok(Arrived::End),
                None if wait => self.submit(1).doing(|| "waiting for FUSE requests".into())?,
                None if self.has_work() => self.submit(0).doing(|| "sending FUSE answers".into())?,
                None => return Ok(Arrived::Nothing),
            }
        }
    }

    /// Whether a call of the kernel would send or bring something.
    fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let submission = ring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// What a completion means; nothing, if an entry has gone.
    fn completed(&self, completion: &cqueue::Entry) -> Result<Option<Arrived>> {
        match completion.user_data() {
            STOP_TOKEN => return Ok(Some(Arrived::End)),
            DEVICE_TOKEN => return self.listen().map(|()| None),
            _ => {}
        }
        let number = completion.user_data() as usize;
        let entry = &self.entries[number];
        match completion.result() {
            0.. => {
                entry.state.set(State::Ours);
                Ok(Some(Arrived::Request(number)))
            }
            result => {
                entry.state.set(State::Idle);
                self.alive.set(self.alive.get() - 1);
                match -result {
                    libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => Ok(None),
                    errno => Err(Error::from_errno(errno, "an entry of the FUSE ring was refused")),
                }
            }
        }
    }

    /// Sends what is queued; waits for so many completions.
    fn submit(&self, wait_for: usize) -> io::Result<()> {
        match self.ring.borrow().submitter().submit_and_wait(wait_for) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The request in an entry. Where the lengths in its headers contradict each other: the number to answer to.
    pub(super) fn request(&self, number: usize) -> std::result::Result<InEntry, u64> {
        let entry = &self.entries[number];
        assert!(entry.state.get() == State::Ours, "an entry is read between its request and its answer");
        // SAFETY: the entry is ours, so the kernel does not write, and nothing here does before these borrows end.
        let (header, payload) = unsafe { (&*entry.header.get(), &*entry.payload.get()) };
        let fields = InHeader::from_prefix(&header.in_out).expect("there is room for a header");
        let payload_len = header.payload_len as usize;
        let head_len = (fields.len as usize).saturating_sub(payload_len);
        let is_sound = (HEADER_BYTES..=HEADER_BYTES + RingRequest::FIELDS_BYTES).contains(&head_len);
        let payload = payload.get(..payload_len).filter(|_| is_sound).ok_or(fields.unique)?;
        let mut head = [0; HEADER_BYTES + RingRequest::FIELDS_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&header.in_out[..HEADER_BYTES]);
        head[HEADER_BYTES..].copy_from_slice(&header.fields);
        Ok(InEntry { head, head_len, payload: Buffer::copy_of(payload) })
    }

    /// Answers the request in an entry with minus an errno or zero, and data, and gives the entry back to the kernel.
    /// Fails where there is none to answer.
    pub(super) fn answer(&self, number: usize, unique: u64, error: i32, data: &[u8]) -> io::Result<()> {
        let entry = &self.entries[number];
        if entry.state.get() != State::Ours {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the entry is ours, and no other borrow of its memory lives longer than a call.
        let (header, payload) = unsafe { (&mut *entry.header.get(), &mut *entry.payload.get()) };
        let (error, data) = match payload.get_mut(..data.len()) {
            Some(room) => {
                room.copy_from_slice(data);
                (error, data)
            }
            None => (-libc::EIO, &[][..]),
        };
        let len = (size_of::<OutHeader>() + data.len()) as u32;
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(OutHeader { len, error, unique }.as_bytes());
        header.payload_len = data.len() as u32;
        let command = RingCommand { commit: header.commit, queue: entry.queue, ..RingCommand::default() };
        entry.state.set(State::Kernel);
        self.push(&self.command(COMMIT_AND_FETCH, command), number as u64)?;
        if self.is_serving.get() { Ok(()) } else { self.submit(0) }
    }

    /// Takes away what the kernel says by the device.
    fn listen(&self) -> Result<()> {
        let (mut head, mut payload) = ([0; HEAD_BYTES], Buffer::stale(TRANSFER_BYTES_MAX));
        loop {
            let received = self.device.receive(&mut head, &mut payload);
            match received.doing(|| "reading from the FUSE device".into())? {
                Received::Request(bytes) => {
                    let (in_head, in_payload) = (bytes.min(HEAD_BYTES), bytes.saturating_sub(HEAD_BYTES));
                    let message = parse(&head[..in_head], &payload[..in_payload]);
                    if let Some(message) = message.ok().filter(|m| m.operation != FuseOperation::Forget) {
                        // Every request gets its answer, so interrupts are not needed: none comes after this.
                        let answer = self.device.send(message.unique, -libc::ENOSYS, &[]);
                        answer.doing(|| "answering the FUSE device".into())?;
                    }
                }
                Received::Nothing => return self.begin_listening().doing(|| "waiting for FUSE".into()),
                // The entries say so too.
                Received::End => return Ok(()),
            }
        }
    }

    fn begin_listening(&self) -> io::Result<()> {
        let wait = opcode::PollAdd::new(Fd(self.device.fd().as_raw_fd()), libc::POLLIN as u32).build();
        self.push(&wait.into(), DEVICE_TOKEN)
    }

    /// An entry of the ring that carries a command to the FUSE device.
    fn command(&self, operation: u32, command: RingCommand) -> Entry128 {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        opcode::UringCmd80::new(Fd(self.device.fd().as_raw_fd()), operation).cmd(bytes).build()
    }

    fn push(&self, command: &Entry128, token: u64) -> io::Result<()> {
        let command = command.clone().user_data(token);
        loop {
            // SAFETY: the memory that a command names is an entry's, which lies still in its list and outlives the ring.
            if unsafe { self.ring.borrow_mut().submission().push(&command) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Makes all entries known to the kernel and begins to wait for the end.
    fn register(&self) -> io::Result<()> {
        let wait = opcode::PollAdd::new(Fd(self.stop.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(&wait.into(), STOP_TOKEN)?;
        if self.is_first {
            self.begin_listening()?;
        }
        for (number, entry) in self.entries.iter().enumerate() {
            // SAFETY: the kernel does not know the entry yet.
            let payload = unsafe { &mut *entry.payload.get() };
            entry.memory.set([
                libc::iovec { iov_base: entry.header.get().cast(), iov_len: size_of::<RingRequest>() },
                libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
            ]);
            let command = RingCommand { queue: entry.queue, ..RingCommand::default() };
            let mut command = self.command(REGISTER, command);
            name_memory(&mut command, entry.memory.as_ptr());
            self.push(&command, number as u64)?;
            entry.state.set(State::Kernel);
            self.alive.set(self.alive.get() + 1);
        }
        self.submit(0)
    }
}

/// A ring that no connection has been given to.
pub(super) struct Unconnected {
    ring: IoUring<Entry128>,
    entries: Vec<Entry>,
    is_first: bool,
    stop: Arc<OwnedFd>,
}

impl Unconnected {
    /// The ring of thread `number` of `threads`, which is the calling one, before there is a connection.
    pub(super) fn new(number: usize, threads: usize, stop: &Arc<OwnedFd>) -> Result<Self> {
        let own: Vec<u16> = (0..queues()?).filter(|queue| usize::from(*queue) % threads == number).collect();
        let depth = QUEUE_DEPTH_MAX.min(THREAD_DEPTH_MAX / own.len().max(1)).max(1);
        let entries: Vec<Entry> =
            own.iter().flat_map(|&queue| (0..depth).map(move |_| Entry::new(queue))).collect();
        // One for each entry and the two waits besides, so that there is always room.
        let size = u32::try_from(entries.len() + 2).expect("bounded above").next_power_of_two();
        let ring = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(size)
            .doing(|| "making a ring for FUSE".into())?;
        Ok(Self { ring, entries, is_first: number == 0, stop: Arc::clone(stop) })
    }

    /// Takes requests of the connection that `device` belongs to, which has agreed to it.
    pub(super) fn connect(self, device: Channel) -> Result<FuseRing> {
        let Self { ring, entries, is_first, stop } = self;
        let arrival = Arc::new(crate::system::event()?);
        ring.submitter().register_eventfd(arrival.as_raw_fd()).doing(|| "giving the ring an event".into())?;
        let ring = FuseRing {
            ring: RefCell::new(ring),
            arrival,
            device,
            is_first,
            stop,
            entries,
            alive: Cell::new(0),
            is_serving: Cell::new(false),
        };
        ring.register().doing(|| "giving the entries of the ring to FUSE".into())?;
        Ok(ring)
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        if self.alive.get() > 0 {
            // The connection lives on without this thread. When the kernel lets go of the entries nobody can say, so
            // leaking them is the only safe way.
            std::mem::forget(std::mem::take(&mut self.entries));
        }
    }
}

impl Entry {
    fn new(queue: u16) -> Self {
        Self {
            queue,
            state: Cell::new(State::Idle),
            header: Box::new(UnsafeCell::new(RingRequest::default())),
            payload: UnsafeCell::new(Buffer::stale(TRANSFER_BYTES_MAX)),
            memory: Cell::new([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2]),
        }
    }
}

/// Names the memory of an entry in its command: the two fields that the library has no words for.
fn name_memory(command: &mut Entry128, memory: *const [libc::iovec; 2]) {
    /// Where `addr` and `len` lie in `struct io_uring_sqe`.
    const ADDRESS: usize = 16;
    const LENGTH: usize = 24;
    let start: *mut u8 = (&raw mut *command).cast();
    // SAFETY: the command is the kernel's structure of 128 bytes, in which these are eight and four bytes.
    unsafe {
        start.add(ADDRESS).cast::<u64>().write_unaligned(memory as u64);
        start.add(LENGTH).cast::<u32>().write_unaligned(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_counted() {
        for (list, expected) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)]
        {
            assert_eq!(count(list), expected, "{list}");
        }
        assert!(queues().expect("this machine says how many it has") > 0);
    }

    #[test]
    fn the_memory_of_an_entry_stands_where_the_kernel_looks_for_it() {
        let mut command = opcode::UringCmd80::new(Fd(7), REGISTER).cmd([1; 80]).build();
        let memory = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
        name_memory(&mut command, &raw const memory);
        // SAFETY: 128 bytes of numbers.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(command) };
        assert_eq!(bytes[4..8], 7i32.to_ne_bytes());
        assert_eq!(bytes[8..12], REGISTER.to_ne_bytes());
        assert_eq!(bytes[16..24], (memory.as_ptr() as u64).to_ne_bytes());
        assert_eq!(bytes[24..28], 2u32.to_ne_bytes());
        assert_eq!(bytes[48..], [1; 80]);
    }
}
