//! A state: one image that a crash may leave, and how it came to be. It can be written down and made again.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::contents::Contents;
use crate::point::{CrashImage, Point, Survivor};
use crate::recording::Reader;
use crate::ways::Way;
use crate::window::Window;

/// How to make a state again from its recording: what a state file (`--state FILE`) holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateDescription {
    /// Name of the recording, 32 hexadecimal digits.
    pub recording: String,
    /// How the state was chosen.
    pub way: Way,
    /// The crash comes before the event with this position.
    pub position: u64,
    /// How often something had become durable by then.
    pub epoch: u64,
    /// How many marks the load had set by then.
    pub marks: u64,
    /// Bytes of the unit inside which no write is torn.
    pub unit_bytes: u64,
    /// How many writes were volatile.
    pub volatile: u64,
    /// Which of them are there, laid over each other in this order.
    pub survivors: Vec<Survivor>,
}

/// A state, ready to be looked at.
#[derive(Clone, Debug)]
pub struct CrashState {
    /// How to make it again.
    pub description: StateDescription,
    /// What the device holds.
    pub image: CrashImage,
}

impl StateDescription {
    /// In one line: when, how, and what of it.
    pub fn words(&self) -> String {
        let (survivors, volatile) = (self.survivors.len() as u64, self.volatile);
        let torn = self.survivors.iter().filter(|survivor| survivor.units.is_some()).count();
        let of_them = match torn {
            0 => String::new(),
            torn => format!(", {torn} of them torn"),
        };
        format!(
            "power lost before event {}, after {} durable points and {} marks; {}: {survivors} of {volatile} volatile \
             writes survive{of_them}",
            self.position,
            self.epoch,
            self.marks,
            self.way.words(),
        )
    }

    /// Reads a state file. Fails with [`ErrorKind::Invalid`] on one that is none.
    pub fn read(path: &Path) -> Result<Self> {
        let doing = || format!("reading the state {}", path.display());
        let text = std::fs::read(path).doing(doing)?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::new(ErrorKind::Invalid, doing()).caused_by(error))
    }

    /// Writes a new state file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let doing = || format!("writing the state {}", path.display());
        let mut file = std::fs::File::create_new(path).doing(doing)?;
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(ErrorKind::Internal, doing()).caused_by(error))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).doing(doing)
    }

    /// The state again, and the point that it is one of. Fails with [`ErrorKind::Invalid`] if it belongs to another
    /// recording, or if no crash could leave it.
    pub fn rebuild(&self, recording: &Path, base: Option<&Path>) -> Result<(Point, CrashState)> {
        let reader = Reader::open(recording)?;
        let id = format!("{:032x}", reader.header().id);
        if self.recording != id {
            let context =
                format!("the state belongs to the recording {}, and this one is {id}", self.recording);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let contents = Arc::new(Contents::open(recording, reader.header(), base)?);
        let point = point_at(reader, contents, self.position, self.unit_bytes)?;
        point.check(&self.survivors)?;
        let image = point.build(&self.survivors);
        Ok((point, CrashState { description: self.clone(), image }))
    }
}

/// The point before the event with this position. Fails with [`ErrorKind::OutOfRange`] if the recording is shorter.
pub fn point_at(
    mut reader: Reader,
    contents: Arc<Contents>,
    position: u64,
    unit_bytes: u64,
) -> Result<Point> {
    reader.rewind()?;
    let mut window = Window::new(contents);
    while window.position() < position {
        let Some(event) = reader.next_event()? else {
            let context =
                format!("the recording has {} events and none before position {position}", window.position());
            return Err(Error::new(ErrorKind::OutOfRange, context));
        };
        window.pass(&event)?;
    }
    Point::new(&window, unit_bytes)
}
