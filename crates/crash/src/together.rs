//! Several devices that lose their power at one moment, each with a recording of its own.
//!
//! Who made the recordings knows which moments they have in common: how many events of each had passed. What is volatile on one
//! device survives or not whatever becomes of the others, so a state of them all is a choice for each.

use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Error, ErrorKind, Result};

use crate::contents::Contents;
use crate::point::{CrashImage, Point};
use crate::recording::Reader;
use crate::ways::{Choice, Seen, Way, WayLimits, completed};
use crate::window::Window;

/// The ways of which one is drawn for each device where several differ.
const DRAWN: [Way; 4] = [Way::Subsets, Way::SingleWrites, Way::Torn, Way::Adversarial];
/// Of the choices of a way at a point so many are made.
const OF_WAY: u64 = 12;

/// Recordings that pass by together. See the head of the module.
pub struct Together {
    devices: Vec<Passing>,
    unit_bytes: u64,
}

struct Passing {
    reader: Reader,
    window: Window,
}

/// One moment of several devices.
#[derive(Debug)]
pub struct JointPoint {
    /// What each device may hold then.
    pub points: Vec<Point>,
}

impl Together {
    /// Before the first event of each of these recordings. `unit_bytes` is the unit inside which no write is torn.
    ///
    /// Fails as opening the recordings does, and with [`ErrorKind::Invalid`] for a unit that is none.
    pub fn open(recordings: &[PathBuf], unit_bytes: u64) -> Result<Self> {
        let mut devices = Vec::new();
        for path in recordings {
            let reader = Reader::open(path)?;
            let contents = Arc::new(Contents::open(path, reader.header(), None)?);
            let window = Window::new(contents);
            Point::new(&window, unit_bytes)?;
            devices.push(Passing { reader, window });
        }
        Ok(Self { devices, unit_bytes })
    }

    /// Where the bytes of each device are.
    pub fn contents(&self) -> Vec<Arc<Contents>> {
        self.devices.iter().map(|device| Arc::clone(device.window.contents())).collect()
    }

    /// Lets events pass until so many of each recording have, and gives that moment. A later call goes on from there.
    ///
    /// Fails with [`ErrorKind::OutOfRange`] where a recording has fewer, or more have passed already.
    pub fn pass_to(&mut self, events: &[u64]) -> Result<JointPoint> {
        let mut points = Vec::new();
        for (device, &wanted) in self.devices.iter_mut().zip(events) {
            while device.window.position() < wanted {
                let Some(event) = device.reader.next_event()? else {
                    let context =
                        format!("a recording has {} events, not {wanted}", device.window.position());
                    return Err(Error::new(ErrorKind::OutOfRange, context));
                };
                device.window.pass(&event)?;
            }
            if device.window.position() > wanted {
                return Err(Error::new(ErrorKind::OutOfRange, "moments are given in their order"));
            }
            points.push(Point::new(&device.window, self.unit_bytes)?);
        }
        Ok(JointPoint { points })
    }
}

impl JointPoint {
    /// What may survive on each of the devices, state by state: on all of them nothing, all that had completed, and everything; on
    /// one nothing and on the others everything, and the reverse; then `drawn` states in which each device has a choice of its own.
    /// States that are equal are there once.
    pub fn choices(&self, drawn: u64, seed: u64) -> Vec<Vec<Choice>> {
        let none = || self.points.iter().map(|_| Vec::new()).collect::<Vec<Choice>>();
        let all = || self.points.iter().map(Point::all).collect::<Vec<Choice>>();
        let mut states = vec![none(), self.points.iter().map(completed).collect(), all()];
        for one in 0..self.points.len() {
            for (rest, odd) in [(none(), all()), (all(), none())] {
                let mut state = rest;
                state[one].clone_from(&odd[one]);
                states.push(state);
            }
        }
        for number in 0..drawn {
            let one = |device: usize| self.drawn(device, mix(seed, number, device as u64));
            states.push((0..self.points.len()).map(one).collect());
        }
        let mut distinct: Vec<Vec<Choice>> = Vec::new();
        for state in states {
            if !distinct.contains(&state) {
                distinct.push(state);
            }
        }
        distinct
    }

    /// A choice for one of the devices.
    fn drawn(&self, device: usize, seed: u64) -> Choice {
        let point = &self.points[device];
        let limits = WayLimits {
            per_point_max: OF_WAY,
            all_subsets_of_max: 3,
            subsets_drawn: OF_WAY,
            ..WayLimits::default()
        };
        let way = DRAWN[(mix(seed, 1, 0) % DRAWN.len() as u64) as usize];
        let mut choices: Vec<Choice> =
            way.choices(point, &limits, seed, &[], &mut Seen::default()).take(OF_WAY as usize).collect();
        match choices.len() as u64 {
            0 => completed(point),
            count => choices.swap_remove((mix(seed, 2, 0) % count) as usize),
        }
    }

    /// What the devices hold if this survives.
    pub fn build(&self, state: &[Choice]) -> Vec<CrashImage> {
        self.points.iter().zip(state).map(|(point, survivors)| point.build(survivors)).collect()
    }

    /// Refuses, with [`ErrorKind::Invalid`], what no loss of power at this moment could leave.
    pub fn check(&self, state: &[Choice]) -> Result<()> {
        self.points.iter().zip(state).try_for_each(|(point, survivors)| point.check(survivors))
    }
}

#[cfg(test)]
mod tests {
    use rotproof_block::Tag;

    use super::*;
    use crate::recording::{Header, Recorder, RecorderOptions};

    /// Two devices: one has flushed its first write, the other nothing.
    fn recorded(folder: &std::path::Path) -> Vec<PathBuf> {
        let record = |name: &str, flushes: bool| {
            let path = folder.join(name);
            let header = Header { size: 64 << 10, block_size: 512, atomic_write_bytes: 512, id: 1 };
            let recorder = Recorder::create(&path, header, RecorderOptions::default()).expect("a file");
            recorder.done(0, recorder.write(0, 0, false, Tag::NONE, &[1; 1024]), true);
            if flushes {
                recorder.done(0, recorder.flush(0), true);
            }
            recorder.done(0, recorder.write(0, 4096, false, Tag::NONE, &[2; 1024]), true);
            recorder.finish().expect("written");
            path
        };
        vec![record("a", true), record("b", false)]
    }

    #[test]
    fn each_device_has_a_choice_of_its_own_and_every_one_is_legal() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut together = Together::open(&recorded(folder.path()), 512).expect("two recordings");
        let contents = together.contents();
        let point = together.pass_to(&[6, 4]).expect("so many events");
        let states = point.choices(50, 3);
        assert_eq!(states, point.choices(50, 3), "a seed is a choice");
        let mut seen = std::collections::BTreeSet::new();
        for state in &states {
            point.check(state).expect("legal");
            let images = point.build(state);
            let byte = |device: usize, sector: u64| {
                let mut bytes = [0; 512];
                contents[device].read(&images[device].snapshot, sector, &mut bytes).expect("there");
                bytes[0]
            };
            assert_eq!(byte(0, 0), 1, "it was flushed");
            seen.insert([byte(0, 8), byte(1, 0), byte(1, 8)]);
        }
        // What one has says nothing of what the other has.
        for wanted in [[0, 0, 0], [2, 1, 2], [0, 1, 2], [2, 0, 0], [0, 0, 2]] {
            assert!(seen.contains(&wanted), "{wanted:?} of {seen:?}");
        }
        assert!(together.pass_to(&[5, 4]).is_err(), "it has passed");
        assert!(together.pass_to(&[7, 100]).is_err(), "there are not so many");
    }
}
