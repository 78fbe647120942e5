//! The servers: started, killed, started again, watched, and taken away at the end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::region::{BLOCK, BLOCKS};
use crate::stage::{PATIENCE, Stage, address, certificates};

/// Regions of a disk: one for each way.
const REGIONS: u64 = 6;

/// A stack that is served in all ways at once, or over TLS.
pub struct Server {
    pub name: &'static str,
    pub tls: bool,
    /// Clients go, and stay away.
    pub pause: AtomicBool,
    /// All is over.
    pub stop: AtomicBool,
    stage: Mutex<Stage>,
    /// Where it is to be found, if it is there.
    places: Mutex<Option<Arc<Places>>>,
    /// Servers up to this one have been ended, or are about to be.
    doomed: AtomicU64,
    /// Clients that are connected.
    clients: AtomicUsize,
}

/// Counts a client as connected.
pub struct Seat(Arc<Server>);

impl Seat {
    pub fn new(server: &Arc<Server>) -> Self {
        server.clients.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(server))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where a server is to be found.
pub struct Places {
    /// How many servers there were before this one.
    pub generation: u64,
    index: usize,
    pub file: PathBuf,
    pub device: PathBuf,
    pub nbd_unix: PathBuf,
    /// Address and port.
    pub nbd_tcp: String,
    pub vhost: PathBuf,
    pub certificates: PathBuf,
}

/// What a server holds.
#[derive(Debug)]
pub struct Sample {
    pub descriptors: usize,
    pub resident_kib: u64,
}

impl Server {
    pub fn start(name: &'static str, tls: bool) -> Self {
        let stage = Stage::new();
        std::fs::write(stage.path("disk.yaml"), "stack: [file: { path: disk.img }]\n").expect("written");
        let image = std::fs::File::create(stage.path("disk.img")).expect("made");
        image.set_len(REGIONS * BLOCKS * BLOCK as u64).expect("made");
        std::fs::create_dir(stage.path("pki")).expect("made");
        if tls {
            certificates(&stage.path("pki"));
        }
        let server = Self {
            name,
            tls,
            pause: AtomicBool::default(),
            stop: AtomicBool::default(),
            stage: Mutex::new(stage),
            places: Mutex::default(),
            doomed: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
        };
        server.serve(&mut server.stage.lock().expect("nobody has it yet"), 0);
        server
    }

    fn serve(&self, stage: &mut Stage, generation: u64) {
        let tcp = ["--overwrite", "--as", "nbd", "--listen", "127.0.0.1:0"];
        let more: &[&str] = if self.tls {
            &["--tls", "pki"]
        } else {
            &["--listen", "unix:nbd.sock", "--as", "file", "--as", "device", "--as", "vhost"]
        };
        let (index, ready) = stage.serve(&[&tcp, more].concat());
        let uri = ready["exports"][0]["address"].as_str().expect("an address").to_owned();
        let place = |kind| if self.tls { PathBuf::new() } else { address(&ready, kind) };
        let places = Places {
            generation,
            index,
            file: place("file"),
            device: place("device"),
            nbd_unix: stage.path("nbd.sock"),
            nbd_tcp: uri.split('/').nth(2).expect("after two slashes").to_owned(),
            vhost: place("vhost"),
            certificates: stage.path("pki"),
        };
        *self.places.lock().expect("never poisoned") = Some(Arc::new(places));
    }

    pub fn is_mortal(&self) -> bool {
        self.name.starts_with("mortal")
    }

    pub fn places(&self) -> Option<Arc<Places>> {
        self.places.lock().expect("never poisoned").clone()
    }

    /// Whether that server has been ended, or is about to be.
    pub fn is_doomed(&self, generation: u64) -> bool {
        self.doomed.load(Ordering::SeqCst) > generation
    }

    /// Ends the server, by force or not, and puts another in its place.
    fn replace(&self, by_force: bool) {
        let mut stage = self.stage.lock().expect("never poisoned");
        let places = self.places().expect("it is there");
        self.doomed.store(places.generation + 1, Ordering::SeqCst);
        if by_force {
            assert_eq!(stage.end(places.index, libc::SIGKILL), None);
        } else if !self.tls {
            // A file that somebody has open cannot be taken away in good order.
            self.pause.store(true, Ordering::SeqCst);
            let deadline = Instant::now() + PATIENCE;
            while self.clients.load(Ordering::SeqCst) > 0 {
                assert!(Instant::now() < deadline, "the clients of {} do not leave", self.name);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        *self.places.lock().expect("never poisoned") = None;
        if by_force {
            let cleaned = stage.run(&["clean"]);
            assert_eq!(cleaned.code, 0, "{}{}", cleaned.stdout, cleaned.stderr);
        } else {
            assert_eq!(stage.end(places.index, libc::SIGTERM), Some(143), "{}", stage.stderr());
        }
        stage.assert_nothing_left();
        self.serve(&mut stage, places.generation + 1);
        self.pause.store(false, Ordering::SeqCst);
    }

    /// Descriptors and memory when the connections that were closed are gone.
    pub fn sample(&self) -> Sample {
        let places = self.places().expect("a steady server");
        let pid = self.stage.lock().expect("never poisoned").served[places.index].id();
        let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count();
        let mut least = descriptors();
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            least = least.min(descriptors());
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        Sample { descriptors: least, resident_kib }
    }

    /// An orderly end that leaves nothing.
    pub fn end(&self) {
        let mut stage = self.stage.lock().expect("never poisoned");
        let places = self.places().expect("it is there");
        self.doomed.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(stage.end(places.index, libc::SIGTERM), Some(143), "{}", stage.stderr());
        stage.assert_nothing_left();
    }
}

/// Ends the server again and again.
pub fn haunt(server: &Arc<Server>, failed: &mpsc::Sender<String>) -> JoinHandle<()> {
    let (server, failed) = (Arc::clone(server), failed.clone());
    let name = format!("haunt {}", server.name);
    let run = move || {
        for round in 1u64.. {
            // 1 to 3 seconds, in a pattern that does not repeat soon.
            let life = Duration::from_millis(1000 + round * 617 % 2000);
            let began = Instant::now();
            while began.elapsed() < life {
                if server.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let replaced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                server.replace(round % 3 != 0);
            }));
            if let Err(panic) = replaced {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                let _ = failed.send(format!("{} could not be ended and replaced: {text}", server.name));
                return;
            }
        }
    };
    std::thread::Builder::new().name(name).spawn(run).expect("a thread starts")
}

/// On every way out no server is left, though threads may still hold on to them.
pub struct Reaper(pub Vec<Arc<Server>>);

impl Drop for Reaper {
    fn drop(&mut self) {
        for server in &self.0 {
            server.stop.store(true, Ordering::SeqCst);
        }
        for server in &self.0 {
            let mut stage = server.stage.lock().unwrap_or_else(PoisonError::into_inner);
            stage.kill_all();
        }
    }
}
