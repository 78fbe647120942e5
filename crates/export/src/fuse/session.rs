//! One thread of an export: takes requests from its channels and answers them until the connection ends.
//!
//! While nothing is under way the thread sleeps in the FUSE device itself, which is the shortest way from a request
//! to its answer. While requests are under way in the device (its leaf is slow, a fault delays) the thread belongs
//! to its runtime and looks for further requests through a second channel that does not block.

use std::cell::Cell;
use std::rc::Rc;

use rotproof_block::error::IoContext;
use rotproof_block::{Buffer, Error, Result, Runtime};

use super::channel::{Channel, Received};
use super::data::DataPath;
use super::parse::{FuseOperation, Malformed, TRANSFER_BYTES_MAX, parse};
use super::reply::Reply;
use super::tree::Tree;
use super::wire::HEAD_BYTES;

/// The channels of one thread.
pub(super) struct Channels {
    /// To sleep in.
    pub blocking: Channel,
    /// To look into while the runtime works.
    pub polled: Channel,
}

/// A thread's state. Dropping it answers what is still owed.
pub(super) struct Session {
    runtime: Runtime,
    data: Rc<DataPath>,
    tree: Tree,
    blocking: Rc<Channel>,
    polled: Rc<Channel>,
    owed: Rc<Cell<usize>>,
    head: [u8; HEAD_BYTES],
    payload: Buffer,
}

impl Session {
    pub(super) fn new(data: DataPath, tree: Tree, channels: Channels) -> Self {
        Self {
            runtime: data.runtime.clone(),
            data: Rc::new(data),
            tree,
            blocking: Rc::new(channels.blocking),
            polled: Rc::new(channels.polled),
            owed: Rc::default(),
            head: [0; HEAD_BYTES],
            payload: Buffer::stale(TRANSFER_BYTES_MAX),
        }
    }

    /// Serves until the file system is unmounted or its connection aborted.
    pub(super) fn run(mut self) -> Result<()> {
        let runtime = self.runtime.clone();
        loop {
            let ended = if self.is_idle() {
                let channel = Rc::clone(&self.blocking);
                self.serve_one(&channel)? == Received::End
            } else {
                runtime.block_on(self.serve_while_busy())??
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
    async fn serve_while_busy(&mut self) -> Result<bool> {
        let channel = Rc::clone(&self.polled);
        loop {
            // Tasks and completions come first.
            self.runtime.yield_now().await;
            if self.is_idle() {
                return Ok(false);
            }
            match self.serve_one(&channel)? {
                Received::Request(_) => {}
                Received::Nothing => {
                    self.runtime.readable(channel.fd()).await.0?;
                }
                Received::End => return Ok(true),
            }
        }
    }

    fn serve_one(&mut self, channel: &Rc<Channel>) -> Result<Received> {
        let received = channel
            .receive(&mut self.head, &mut self.payload)
            .doing(|| "reading from the FUSE device".into())?;
        if let Received::Request(bytes) = received {
            self.serve(channel, bytes);
        }
        Ok(received)
    }

    /// Serves the request of `bytes` bytes that lies in the buffers.
    fn serve(&mut self, channel: &Rc<Channel>, bytes: usize) {
        let (in_head, in_payload) = (bytes.min(HEAD_BYTES), bytes.saturating_sub(HEAD_BYTES));
        let message = match parse(&self.head[..in_head], &self.payload[..in_payload]) {
            Ok(message) => message,
            Err(Malformed { unique: Some(unique) }) => {
                return Reply::new(channel, &self.owed, unique).errno(libc::EINVAL);
            }
            Err(Malformed { unique: None }) => return,
        };
        let reply = Reply::new(channel, &self.owed, message.unique);
        let node = message.node;
        match message.operation {
            FuseOperation::Read { offset, size } => match self.tree.check_is_file(node) {
                Ok(()) => self.data.read(reply, offset, size),
                Err(errno) => reply.errno(errno),
            },
            FuseOperation::Write { offset, size, durable } => match self.tree.check_is_file(node) {
                Ok(()) => self.data.write(reply, &mut self.payload, offset, size, durable),
                Err(errno) => reply.errno(errno),
            },
            FuseOperation::Fsync => self.data.flush(reply),
            FuseOperation::Fallocate { offset, length, mode } => match self.tree.check_is_file(node) {
                Ok(()) => self.data.allocate(reply, offset, length, mode),
                Err(errno) => reply.errno(errno),
            },
            FuseOperation::Lookup(name) => reply.fields(self.tree.lookup(node, name)),
            FuseOperation::GetAttr => reply.fields(self.tree.get_attributes(node)),
            FuseOperation::SetAttr { valid, size } => {
                reply.fields(self.tree.set_attributes(node, valid, size));
            }
            FuseOperation::Open { flags } => reply.fields(self.tree.open(node, flags)),
            FuseOperation::OpenDir => reply.fields(self.tree.open_directory(node)),
            FuseOperation::ReadDir { offset, size } => match self.tree.entries(node, offset, size) {
                Ok(entries) => reply.data(&entries),
                Err(errno) => reply.errno(errno),
            },
            FuseOperation::StatFs => reply.fields(Ok(self.tree.statistics())),
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
            FuseOperation::Init { .. } | FuseOperation::Interrupt | FuseOperation::Unknown { .. } => {
                reply.errno(libc::ENOSYS);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Tasks hold the runtime and the runtime holds them. Each still owes an answer, and gives it now.
        self.runtime.abandon_tasks();
    }
}

/// A failure in words, of a thread that ended by error or panic.
pub(super) fn describe(outcome: &std::thread::Result<Result<()>>) -> Option<String> {
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
