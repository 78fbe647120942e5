//! The line to the program inside a guest, from this side: frames of FUSE, and commands as lines of text.
//!
//! `agent/link.rs` is the other end. No more is under way to the guest than what it has room for: the
//! serial line of User Mode Linux stops for good when its line discipline is full.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rotproof_block::{Error, ErrorKind, Result};
use rotproof_machine::start_thread;

const FUSE: u8 = 1;
const CONTROL: u8 = 2;
const TAKEN: u8 = 3;
const MASK: u8 = 0xA5;
/// Bytes of a message of FUSE at the most, its header included.
pub(crate) const MESSAGE_BYTES_MAX: usize = (128 << 10) + 4096;
/// Bytes of the data of a read or write at the most.
pub(crate) const TRANSFER_BYTES_MAX: usize = 128 << 10;

/// Who takes the answers of FUSE.
pub(crate) type Taker = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The line.
pub(crate) struct Link {
    line: UnixStream,
    /// Bytes that may be under way.
    window_bytes: usize,
    /// A guest that takes nothing for so long is given up.
    stalled: Duration,
    /// Held while a frame is sent.
    sending: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    taker: Mutex<Option<Taker>>,
    /// Is called once, when the line has ended.
    at_end: Mutex<Option<AtEnd>>,
}

/// What is to be done when the line has ended.
pub(crate) type AtEnd = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Sent, and not known to be taken.
    under_way: usize,
    /// Number of the last command.
    last: u64,
    /// Answers that have come, by the number of their command.
    answers: Vec<(u64, String)>,
    /// Commands that somebody waits for.
    waited_for: Vec<u64>,
    is_ready: bool,
    has_ended: bool,
    /// It was ended because the guest took nothing for too long.
    is_given_up: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    /// Begins to listen on `line`, on which no more than `window_bytes` are under way. A guest that takes nothing of what is sent to it for `stalled` is given up: the line ends.
    pub(crate) fn new(line: UnixStream, window_bytes: usize, stalled: Duration) -> Result<Arc<Self>> {
        let reader = line.try_clone().map_err(|error| Error::from_io(error, "the line to a guest"))?;
        let link = Arc::new(Self {
            line,
            window_bytes,
            stalled,
            sending: Mutex::new(()),
            state: Mutex::default(),
            changed: Condvar::new(),
            taker: Mutex::new(None),
            at_end: Mutex::new(None),
        });
        let listener = Arc::clone(&link);
        start_thread("guest", move || listener.listen(reader))?;
        Ok(link)
    }

    fn listen(&self, mut reader: UnixStream) {
        while let Ok((kind, mut payload)) = receive(&mut reader) {
            mask(&mut payload);
            match kind {
                FUSE => {
                    if let Some(taker) = &*self.taker.lock() {
                        taker(&payload);
                    }
                }
                CONTROL => self.take_answer(&String::from_utf8_lossy(&payload)),
                TAKEN => {
                    let count = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
                    let mut state = self.state.lock();
                    state.under_way = state.under_way.saturating_sub(count);
                    self.changed.notify_all();
                }
                _ => break,
            }
        }
        self.finish();
    }

    fn finish(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
        if let Some(at_end) = self.at_end.lock().take() {
            at_end();
        }
    }

    /// Has that done when the line ends, or at once if it has.
    pub(crate) fn at_end(&self, act: Option<AtEnd>) {
        *self.at_end.lock() = act;
        if self.has_ended()
            && let Some(act) = self.at_end.lock().take()
        {
            act();
        }
    }

    fn take_answer(&self, text: &str) {
        let Some((number, said)) = text.split_once('\t') else { return };
        let mut state = self.state.lock();
        match number.parse() {
            Ok(0) => state.is_ready = true,
            Ok(number) if state.waited_for.contains(&number) => state.answers.push((number, said.to_owned())),
            _ => return,
        }
        self.changed.notify_all();
    }

    /// Who takes what the guest answers from now on; none lets it go.
    pub(crate) fn set_taker(&self, taker: Option<Taker>) {
        *self.taker.lock() = taker;
    }

    /// Whether the line has ended: the guest is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Whether it was ended from here, because the guest took nothing for too long: one that comes to itself then ends its machine.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state.lock().is_given_up
    }

    /// Waits until the agent is there. Gives whether it is.
    pub(crate) fn wait_until_ready(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut state = self.state.lock();
        while !state.is_ready && !state.has_ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.is_ready
    }

    /// Sends a message of FUSE. An error is that the guest is gone.
    pub(crate) fn send_fuse(&self, message: &mut [u8]) -> io::Result<()> {
        self.send(FUSE, message, None)
    }

    /// Has the agent carry out a command, words parted by tabs, and waits for its answer.
    ///
    /// Fails with [`ErrorKind::Gone`] if the guest is, with [`ErrorKind::TimedOut`] if it does not answer, and with the error
    /// of the guest's kernel if the command failed there.
    pub(crate) fn command(&self, words: &str, most: Duration) -> Result<String> {
        let name = || words.replace('\t', " ");
        let gone =
            || Error::new(ErrorKind::Gone, format!("the guest is gone, and was to carry out `{}`", name()));
        let number = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            state.waited_for.push(number);
            number
        };
        let deadline = Instant::now() + most;
        let sent = self.send(CONTROL, &mut format!("{number}\t{words}").into_bytes(), Some(deadline));
        let mut state = self.state.lock();
        let answer = loop {
            if let Some(at) = state.answers.iter().position(|(of, _)| *of == number) {
                break Ok(state.answers.swap_remove(at).1);
            }
            let is_untaken = sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
            if state.has_ended || sent.is_err() && !is_untaken {
                break Err(gone());
            }
            if is_untaken || self.changed.wait_until(&mut state, deadline).timed_out() {
                let context = format!("the guest has not carried out `{}` within {most:?}", name());
                break Err(Error::new(ErrorKind::TimedOut, context));
            }
        };
        state.waited_for.retain(|other| *other != number);
        let answer = answer?;
        match answer.split_once('\t') {
            Some(("ok", said)) => Ok(said.to_owned()),
            Some(("error", errno)) => {
                let errno = errno.parse().unwrap_or(libc::EIO);
                Err(Error::from_errno(errno, format!("in the guest, `{}`", name())))
            }
            _ => Err(Error::new(ErrorKind::Internal, format!("the agent in the guest says `{answer}`"))),
        }
    }

    /// Sends a frame, if its turn comes by then. An error is that it was not sent; the line has ended if that was in the middle of it.
    fn send(&self, kind: u8, payload: &mut [u8], by: Option<Instant>) -> io::Result<()> {
        mask(payload);
        let length = u32::try_from(payload.len() + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut head = [0; 5];
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4] = kind;
        let turn = match by {
            Some(by) => self.sending.try_lock_until(by),
            None => Some(self.sending.lock()),
        };
        let _sending = turn.ok_or(io::ErrorKind::TimedOut)?;
        for part in [&head[..], payload].into_iter().flat_map(|part| part.chunks(self.window_bytes / 2)) {
            let mut state = self.state.lock();
            let (mut least, mut deadline) = (state.under_way, Instant::now() + self.stalled);
            while state.under_way + part.len() > self.window_bytes && !state.has_ended {
                let has_stalled = self.changed.wait_until(&mut state, deadline).timed_out();
                if state.under_way < least {
                    (least, deadline) = (state.under_way, Instant::now() + self.stalled);
                } else if has_stalled {
                    state.is_given_up = true;
                    drop(state);
                    self.end();
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            if state.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.under_way += part.len();
            drop(state);
            (&self.line).write_all(part)?;
        }
        Ok(())
    }

    /// Ends the line. The agent then ends the machine, if it still can.
    pub(crate) fn end(&self) {
        let _ = self.line.shutdown(Shutdown::Both);
        self.finish();
    }
}

fn receive(line: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    line.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    // A guest whose memory is wrong may say anything.
    if !(1..=4 << 20).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length - 1];
    line.read_exact(&mut payload)?;
    Ok((head[4], payload))
}

fn mask(bytes: &mut [u8]) {
    for byte in bytes {
        *byte ^= MASK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_BYTES: usize = 3072;
    const MOST: Duration = Duration::from_secs(20);

    fn frame(kind: u8, text: &[u8]) -> Vec<u8> {
        let mut bytes = (text.len() as u32 + 1).to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(text.iter().map(|byte| byte ^ MASK));
        bytes
    }

    #[test]
    fn a_command_is_answered_and_what_passes_is_masked() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let link = Link::new(ours, WINDOW_BYTES, MOST).expect("listens");
        let guest = std::thread::spawn(move || {
            theirs.write_all(&frame(CONTROL, b"0\tready")).expect("said");
            let (kind, text) = receive(&mut theirs).expect("asked");
            assert_eq!(kind, CONTROL);
            assert!(!text.windows(4).any(|window| window == b"ping"), "plain text passed");
            theirs.write_all(&frame(CONTROL, b"1\tok\tpong")).expect("said");
            let _ = receive(&mut theirs).expect("asked");
            theirs.write_all(&frame(CONTROL, b"2\terror\t30")).expect("said");
        });
        assert!(link.wait_until_ready(MOST));
        assert_eq!(link.command("ping", MOST).expect("answered"), "pong");
        assert_eq!(link.command("mount", MOST).expect_err("EROFS").kind(), ErrorKind::ReadOnly);
        guest.join().expect("no panic");
        assert_eq!(link.command("ping", MOST).expect_err("gone").kind(), ErrorKind::Gone);
    }

    #[test]
    fn no_more_is_under_way_than_the_guest_has_room_for() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let link = Link::new(ours, WINDOW_BYTES, MOST).expect("listens");
        let sender = Arc::clone(&link);
        let sends = std::thread::spawn(move || sender.send_fuse(&mut vec![7; 100_000]));
        let (mut taken, mut bytes) = (0, vec![0; 1 << 16]);
        while taken < 100_005 {
            let count = theirs.read(&mut bytes).expect("there");
            assert!(count <= WINDOW_BYTES, "{count} bytes at once");
            taken += count;
            theirs.write_all(&frame(TAKEN, &(count as u32).to_le_bytes())).expect("told");
        }
        sends.join().expect("no panic").expect("all of it");
    }

    #[test]
    fn nonsense_from_a_guest_ends_the_line_and_nothing_else() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let link = Link::new(ours, WINDOW_BYTES, MOST).expect("listens");
        theirs.write_all(&[0xFF; 64]).expect("said");
        let error = link.command("ping", MOST).expect_err("no guest any more");
        assert_eq!(error.kind(), ErrorKind::Gone);
    }

    #[test]
    fn a_guest_that_takes_nothing_is_given_up_and_holds_nobody() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let link = Link::new(ours, WINDOW_BYTES, Duration::from_millis(50)).expect("listens");
        assert!(!link.is_given_up());
        let (told, hears) = std::sync::mpsc::channel();
        link.at_end(Some(Box::new(move || told.send(()).expect("heard"))));
        let sender = Arc::clone(&link);
        let sends = std::thread::spawn(move || sender.send_fuse(&mut vec![7; 100_000]));
        let error = link.command("ping", MOST).expect_err("nobody answers");
        assert!(matches!(error.kind(), ErrorKind::Gone | ErrorKind::TimedOut), "{error}");
        sends.join().expect("no panic").expect_err("never taken");
        hears.recv_timeout(MOST).expect("the line has ended");
        assert!(link.has_ended() && link.is_given_up());
    }
}
