//! A client of one export: writes, reads, flushes, hangs up, comes back, and knows what it must find.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::region::{BLOCK, BLOCKS, Region};
use crate::servers::{Places, Seat, Server};
use crate::ways::{Connection, Way};

/// The most blocks of a request.
const RUN_MAX: u64 = 16;
/// Blocks with an open write, beyond which none is left open any more until the server has ended.
const OPEN_MAX: usize = 256;

/// A client on a thread of its own.
pub struct Worker {
    pub name: String,
    pub is_on_mortal: bool,
    pub steps: Arc<AtomicU64>,
    pub is_parked: Arc<AtomicBool>,
    thread: JoinHandle<String>,
}

impl Worker {
    /// A failure is sent to `failed`.
    pub fn start(server: &Arc<Server>, way: Way, number: u64, failed: &mpsc::Sender<String>) -> Self {
        let name = format!("{way:?} of {}", server.name);
        let (steps, is_parked) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let client = Client {
            server: Arc::clone(server),
            way,
            region: Region::new(number + 1, number),
            random: number << 8 | u64::from(server.is_mortal()) << 1 | u64::from(server.tls),
            steps: Arc::clone(&steps),
            is_parked: Arc::clone(&is_parked),
            connection: None,
            tally: Tally::default(),
        };
        let (failed, whose) = (failed.clone(), name.clone());
        let run = move || {
            let mut client = client;
            match catch_unwind(AssertUnwindSafe(|| client.run())) {
                Ok(()) => format!("{whose}: {:?}", client.tally),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    let _ = failed.send(format!("{whose}: {}", text.unwrap_or_default()));
                    whose
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(run).expect("a thread starts");
        Self { name, is_on_mortal: server.is_mortal(), steps, is_parked, thread }
    }

    /// What it has done.
    pub fn join(self) -> String {
        self.thread.join().expect("it does not panic")
    }
}

#[derive(Debug, Default)]
struct Tally {
    reads: u64,
    writes: u64,
    flushes: u64,
    connections: u64,
    left_open: u64,
    servers_outlived: u64,
}

/// A connection, the server that it is to, and a seat there.
type Connected = (Box<dyn Connection>, Arc<Places>, Seat);

struct Client {
    server: Arc<Server>,
    way: Way,
    region: Region,
    random: u64,
    steps: Arc<AtomicU64>,
    is_parked: Arc<AtomicBool>,
    connection: Option<Connected>,
    tally: Tally,
}

impl Client {
    fn run(&mut self) {
        while !self.server.stop.load(Ordering::Relaxed) {
            self.steps.fetch_add(1, Ordering::Relaxed);
            if self.server.pause.load(Ordering::SeqCst) {
                self.connection = None;
                self.is_parked.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            self.is_parked.store(false, Ordering::SeqCst);
            let Some((mut connection, places, seat)) = self.connection.take().or_else(|| self.connect())
            else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let length = 1 + self.draw(RUN_MAX);
            let first = self.draw(BLOCKS - length);
            let blocks = first..first + length;
            let outcome = match self.draw(16) {
                0 => continue,
                1 if self.region.open().len() < OPEN_MAX && self.region.may_be_written(blocks.clone()) => {
                    self.leave(connection, blocks);
                    continue;
                }
                2 => {
                    self.tally.flushes += 1;
                    connection.flush()
                }
                3..9 if self.region.may_be_written(blocks.clone()) => self.write(&mut *connection, blocks),
                _ => self.read(&mut *connection, blocks),
            };
            match outcome {
                Ok(()) => self.connection = Some((connection, places, seat)),
                Err(error) => self.lose(&places, &error),
            }
        }
    }

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); a number below `end`.
    fn draw(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn connect(&mut self) -> Option<Connected> {
        let seat = Seat::new(&self.server);
        // Who sits down now is not waited for.
        if self.server.pause.load(Ordering::SeqCst) {
            return None;
        }
        let places = self.server.places()?;
        match self.way.connect(&places) {
            Ok(mut connection) => {
                self.tally.connections += 1;
                if self.server.is_mortal() && !self.settle(&mut *connection, &places) {
                    return None;
                }
                Some((connection, places, seat))
            }
            Err(error) => {
                self.lose(&places, &error);
                None
            }
        }
    }

    /// With another server than the one that was asked, what is open is decided.
    fn settle(&mut self, connection: &mut dyn Connection, places: &Places) -> bool {
        if self.tally.servers_outlived == places.generation {
            return true;
        }
        let mut found = vec![0; BLOCK];
        for block in self.region.open() {
            if let Err(error) = connection.read(self.region.offset(block), &mut found) {
                self.lose(places, &error);
                return false;
            }
            self.region.settle(block, &found);
        }
        self.tally.servers_outlived = places.generation;
        true
    }

    /// A connection has ended: only the end of the server is a reason.
    fn lose(&self, places: &Places, error: &io::Error) {
        assert!(
            self.server.is_doomed(places.generation),
            "an error from a server that nobody has ended: {error}"
        );
    }

    fn read(&mut self, connection: &mut dyn Connection, blocks: std::ops::Range<u64>) -> io::Result<()> {
        let mut found = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
        connection.read(self.region.offset(blocks.start), &mut found)?;
        self.region.check(blocks, &found);
        self.tally.reads += 1;
        Ok(())
    }

    fn write(&mut self, connection: &mut dyn Connection, blocks: std::ops::Range<u64>) -> io::Result<()> {
        let (version, content) = self.region.new_content(blocks.clone());
        match connection.write(self.region.offset(blocks.start), &content) {
            Ok(()) => {
                self.region.acknowledged(blocks, version);
                self.tally.writes += 1;
                Ok(())
            }
            Err(error) => {
                self.region.left_open(blocks, version);
                Err(error)
            }
        }
    }

    fn leave(&mut self, connection: Box<dyn Connection>, blocks: std::ops::Range<u64>) {
        let (version, content) = self.region.new_content(blocks.clone());
        self.region.left_open(blocks.clone(), version);
        self.tally.left_open += 1;
        if connection.write_and_leave(self.region.offset(blocks.start), &content) {
            return;
        }
        // Nothing is under way any more, so that it can be seen what became of it.
        let Some((mut connection, places, seat)) = self.connect() else { return };
        let mut found = vec![0; BLOCK];
        for block in blocks {
            if let Err(error) = connection.read(self.region.offset(block), &mut found) {
                return self.lose(&places, &error);
            }
            self.region.settle(block, &found);
        }
        self.connection = Some((connection, places, seat));
    }
}
