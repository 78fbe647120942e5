//! Threads that work side by side on a phase, and the one that waits for them and hears of each end, also by a panic.
//!
//! One whose call does not return can be left behind: nobody waits for it any more, and whenever the call does return it must
//! end without touching anything.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// How often those at work are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often they are looked at after somebody asked to stop, before those in a call are to be left behind: most calls
/// return by then.
const LOOKS_BEFORE_END: u32 = 20;

/// Threads at work: what can be seen of each meanwhile, and what it comes to.
pub(crate) struct WorkerThreads<Seen, Done> {
    members: Vec<Member<Seen, Done>>,
    to: Sender<(usize, Result<Done>)>,
    ends: Receiver<(usize, Result<Done>)>,
}

/// One of them.
pub(crate) struct Member<Seen, Done> {
    at_work: Option<(JoinHandle<()>, Seen)>,
    result: Option<Result<Done>>,
}

impl<Seen, Done> Member<Seen, Done> {
    /// What can be seen of it, if it is at work.
    pub(crate) fn at_work(&self) -> Option<&Seen> {
        self.at_work.as_ref().map(|(_, seen)| seen)
    }

    /// Waits for it no more: this is what it has come to.
    pub(crate) fn leave_behind(&mut self, result: Result<Done>) {
        (self.at_work, self.result) = (None, Some(result));
    }
}

/// What a thread tells of its end, also if it panics.
struct Ending<Done> {
    number: usize,
    result: Option<Result<Done>>,
    to: Sender<(usize, Result<Done>)>,
}

impl<Done> Ending<Done> {
    fn is_known(&mut self, result: Result<Done>) {
        self.result = Some(result);
    }
}

impl<Done> Drop for Ending<Done> {
    fn drop(&mut self) {
        let panicked = || Err(Error::new(ErrorKind::Internal, "a thread of the load panicked"));
        // Nobody hears of one that was left behind.
        let _ = self.to.send((self.number, self.result.take().unwrap_or_else(panicked)));
    }
}

impl<Seen, Done: Send + 'static> WorkerThreads<Seen, Done> {
    /// Nobody yet.
    pub(crate) fn new() -> Self {
        let (to, ends) = mpsc::channel();
        Self { members: Vec::new(), to, ends }
    }

    /// Begins a thread. One that cannot be begun has come to that failure; gives whether it could.
    pub(crate) fn start(
        &mut self,
        name: &str,
        seen: Seen,
        work: impl FnOnce() -> Result<Done> + Send + 'static,
    ) -> bool {
        let mut ending = Ending { number: self.members.len(), result: None, to: self.to.clone() };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || ending.is_known(work()));
        let (at_work, result) = match thread.doing(|| format!("starting the thread {name} of the load")) {
            Ok(thread) => (Some((thread, seen)), None),
            Err(error) => (None, Some(Err(error))),
        };
        let is_started = at_work.is_some();
        self.members.push(Member { at_work, result });
        is_started
    }

    /// Waits until nobody is at work; gives what each came to, in the order in which they began. `look` gets all of them every
    /// now and then, and whether those in a call are to be left behind, as somebody asked long ago to stop.
    pub(crate) fn wait(
        self,
        cancel: &AtomicUsize,
        mut look: impl FnMut(&mut [Member<Seen, Done>], bool),
    ) -> Vec<Result<Done>> {
        let Self { mut members, to, ends } = self;
        drop(to);
        let mut looks_after_cancel = 0;
        while members.iter().any(|member| member.at_work.is_some()) {
            match ends.recv_timeout(LOOK_EVERY) {
                Ok((number, result)) => {
                    let Some((thread, _)) = members[number].at_work.take() else { continue };
                    // Its files are closed by then.
                    let _ = thread.join();
                    members[number].result = Some(result);
                }
                Err(RecvTimeoutError::Timeout) => {
                    looks_after_cancel += u32::from(cancel.load(Ordering::Relaxed) != 0);
                    look(&mut members, looks_after_cancel > LOOKS_BEFORE_END);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let missing =
            || Err(Error::new(ErrorKind::Internal, "a thread of the load has not said how it ended"));
        members.into_iter().map(|member| member.result.unwrap_or_else(missing)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_to_something_in_the_order_in_which_they_began() {
        let mut threads = WorkerThreads::new();
        let (go, may_go) = mpsc::channel();
        assert!(threads.start("first", (), move || Ok(may_go.recv().expect("the second says so"))));
        assert!(threads.start("second", (), move || {
            go.send(1).expect("the first listens");
            Ok(2)
        }));
        assert!(threads.start("third", (), || panic!("as it happens")));
        assert!(threads.start("fourth", (), || Err(Error::new(ErrorKind::Cancelled, "no"))));
        let results = threads.wait(&AtomicUsize::new(0), |_, _| {});
        assert!(matches!(results[..2], [Ok(1), Ok(2)]), "{results:?}");
        assert_eq!(results[2].as_ref().expect_err("it panicked").kind(), ErrorKind::Internal);
        assert_eq!(results[3].as_ref().expect_err("it failed").kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn one_that_does_not_return_is_left_behind_and_not_heard_of_again() {
        let mut threads = WorkerThreads::new();
        let (go, may_go) = mpsc::channel::<()>();
        threads.start("stuck", "in a call", move || {
            let _ = may_go.recv();
            Ok(1)
        });
        threads.start("well", "at work", || Ok(2));
        let mut looks = 0;
        let results = threads.wait(&AtomicUsize::new(1), |members, must_end| {
            looks += 1;
            assert_eq!(members[0].at_work(), Some(&"in a call"));
            if must_end {
                members[0].leave_behind(Ok(3));
            }
        });
        assert!(matches!(results[..], [Ok(3), Ok(2)]), "{results:?}");
        assert_eq!(looks, LOOKS_BEFORE_END + 1, "not before its time");
        drop(go);
    }
}
