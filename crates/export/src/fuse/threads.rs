//! The threads of an export: started before anything is mounted, told what to serve, awaited with patience.

use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rotproof_block::error::IoContext;
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Device, Error, ErrorKind, Queue, Result, Runtime};

use super::FuseOptions;
use super::channel::Channel;
use super::mount::Mount;
use super::ring::{Unconnected, is_enabled};
use super::session::{Session, Source, describe};
use super::tree::Tree;
use crate::byte_queue::ByteQueue;
use crate::stripes::SharedStripes;
use crate::system;

/// What threads serve.
#[derive(Clone)]
pub(super) struct Setup {
    pub device: Arc<dyn Device>,
    pub tree: Tree,
    pub options: FuseOptions,
}

/// The connection's channels for one thread.
pub(super) struct Channels {
    pub blocking: Channel,
    pub polled: Channel,
    /// Requests come by io_uring.
    pub over_ring: bool,
}

/// What a thread waits for: its channels, and whom to abort if it fails.
type Work = (Channels, Arc<Mount>);

pub(super) struct Threads {
    /// Threads that have not been told what to serve; dropping a sender ends its thread.
    idle: Mutex<Vec<mpsc::Sender<Work>>>,
    running: Arc<Running>,
    /// Every thread has a ring, should the kernel want to send requests that way.
    has_rings: bool,
}

struct Running {
    /// Serve nothing more and end.
    stop: AtomicBool,
    /// Readable then.
    stop_event: Arc<OwnedFd>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    failure: Option<String>,
}

impl Threads {
    /// Starts the threads and waits until each has a queue of the device.
    pub(super) fn start(setup: &Setup) -> Result<Self> {
        let running = Running {
            stop: AtomicBool::new(false),
            stop_event: Arc::new(system::event()?),
            state: Mutex::default(),
            ended: Condvar::new(),
        };
        let wants_rings = setup.options.use_ring && is_enabled();
        let mut threads = Self { idle: Mutex::default(), running: Arc::new(running), has_rings: wants_rings };
        let stripes = SharedStripes::of(&setup.device);
        let (ready, is_ready) = mpsc::channel();
        for number in 0..setup.options.threads {
            let (work, next_work) = mpsc::channel();
            let (setup, stripes, ready, running) =
                (setup.clone(), stripes.clone(), ready.clone(), Arc::clone(&threads.running));
            running.state.lock().running += 1;
            let ended = EndMark(Arc::clone(&running));
            std::thread::Builder::new()
                .name(format!("fuse-{number}"))
                .spawn(move || {
                    let _ended = ended;
                    run(&setup, number, wants_rings, &stripes, &ready, &next_work, &running);
                })
                .doing(|| "starting a thread of the export".into())?;
            threads.idle.lock().push(work);
        }
        drop(ready);
        for _ in 0..setup.options.threads {
            threads.has_rings &= is_ready.recv().map_err(|_| {
                Error::new(ErrorKind::Internal, "a thread of the export panicked while it opened its queue")
            })??;
        }
        Ok(threads)
    }

    /// Whether every thread could take its requests from a ring.
    pub(super) fn have_rings(&self) -> bool {
        self.has_rings
    }

    /// Gives each thread its channels.
    pub(super) fn serve(&self, channels: Vec<Channels>, mount: &Arc<Mount>) {
        for (thread, channels) in self.idle.lock().drain(..).zip(channels) {
            // A thread that is gone has recorded why, and its channels close here.
            let _ = thread.send((channels, Arc::clone(mount)));
        }
    }

    /// Waits until all have ended; false if they have not in that time.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        self.idle.lock().clear();
        let deadline = Instant::now() + patience;
        let mut state = self.running.state.lock();
        while state.running > 0 {
            if self.running.ended.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0;
            }
        }
        true
    }

    /// Makes the threads end although the connection does not; when the last is gone, the kernel aborts it. Those
    /// without a ring sleep in the kernel until there is a request, so a helper makes some, in the directory `point`.
    pub(super) fn stop(&self, point: &Path) {
        self.running.stop.store(true, Ordering::Relaxed);
        system::signal(&self.running.stop_event);
        let Ok(directory) = system::open(point, libc::O_PATH) else { return };
        let running = Arc::clone(&self.running);
        let wake = move || {
            while running.state.lock().running > 0 {
                // SAFETY: all zeros is a value of this structure, which lives across the call that fills it.
                let answer = unsafe {
                    let mut statistics: libc::statfs = std::mem::zeroed();
                    libc::fstatfs(directory.as_raw_fd(), &raw mut statistics)
                };
                // Each thread that ends fails the request that woke it, so only the end of all is an end here.
                if answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOTCONN) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // A thread of its own, because it hangs with a thread of the export that hangs in its device. If there can
        // be none, the next request of any program does the same.
        let _ = std::thread::Builder::new().name("fuse-stop".into()).spawn(wake);
    }

    /// Why a thread failed while it served, if one did.
    pub(super) fn failure(&self) -> Option<String> {
        self.running.state.lock().failure.clone()
    }
}

/// Counts a thread out, on whatever way it ends, also if it never began.
struct EndMark(Arc<Running>);

impl Drop for EndMark {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.ended.notify_all();
    }
}

fn run(
    setup: &Setup,
    number: usize,
    wants_ring: bool,
    stripes: &SharedStripes,
    ready: &mpsc::Sender<Result<bool>>,
    next_work: &mpsc::Receiver<Work>,
    running: &Running,
) {
    system::mark_as_io_flusher();
    let (runtime, queue) = match open(setup) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let byte_queue = ByteQueue {
        runtime,
        queue,
        info: setup.tree.info,
        size: Arc::clone(&setup.tree.size),
        stripes: stripes.on_this_thread(),
        phase: Arc::clone(&setup.options.phase),
        thread: u16::try_from(number).expect("at most 64 threads"),
        requests: Default::default(),
    };
    // Without a ring it goes on by the device; the other threads do so too then.
    let ring = wants_ring.then(|| Unconnected::new(number, setup.options.threads, &running.stop_event));
    let ring = ring.and_then(Result::ok);
    let _ = ready.send(Ok(ring.is_some()));
    let Ok((channels, mount)) = next_work.recv() else { return };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let source = source(channels, ring)?;
        Session::new(byte_queue, setup.tree.clone(), source).run(&running.stop)
    }));
    if let Some(failure) = describe(&outcome) {
        running.state.lock().failure.get_or_insert(failure);
        // What was under way here has been answered with an error. Nobody can say what state the device is in, so
        // no other request may reach it: if the connection cannot be aborted, the next one ends its thread.
        running.stop.store(true, Ordering::Relaxed);
        system::signal(&running.stop_event);
        let _ = mount.abort();
    }
}

/// Where a thread takes its requests from.
fn source(channels: Channels, ring: Option<Unconnected>) -> Result<Source> {
    let Channels { blocking, polled, over_ring } = channels;
    match ring.filter(|_| over_ring) {
        Some(ring) => Ok(Source::Ring(Rc::new(ring.connect(polled)?))),
        None => Ok(Source::Channels { blocking: Rc::new(blocking), polled: Rc::new(polled) }),
    }
}

fn open(setup: &Setup) -> Result<(Runtime, Rc<dyn Queue>)> {
    let options = RuntimeOptions { epoch: setup.options.epoch, ..RuntimeOptions::new(setup.options.seed) };
    let runtime = Runtime::uring(options)?;
    let queue = setup.device.open_queue(&runtime)?;
    Ok((runtime, queue))
}
