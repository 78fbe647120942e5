//! A sequence of operations, done to a real file system whose device is recorded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_crash::recording::{Recorder, RecorderOptions};
use rotproof_layers::RecordDevice;
use rotproof_machine::registry::Run;

use crate::blank::Blank;
use crate::check::mount_options;
use crate::doer::{perform, persist, set_up};
use crate::operations::Step;
use crate::scene::Scene;
use crate::tree_oracle::{begin_mark, persisted_mark};

/// The mark behind what every sequence begins with.
const SET_UP: &str = "the first files are durable";

/// How to record a sequence.
#[derive(Clone, Copy, Debug)]
pub struct SequenceOptions<'a> {
    /// Folder for the recording, best in memory.
    pub folder: &'a Path,
    /// Name of the recording, and of the scene in the run's scratch folder.
    pub name: &'a str,
    /// Tells the recording from others.
    pub id: u128,
    /// Further mount options.
    pub mount: &'a [String],
}

/// A sequence that was done.
#[derive(Clone, Debug)]
pub struct SequenceRun {
    /// What the device was asked.
    pub recording: PathBuf,
    /// No crash is to come before the event with this position: the first files were being made.
    pub begin: u64,
}

/// Mounts a fresh file system, makes the first files, does the steps, and unmounts it. Marks say which step had begun and
/// which was made durable. What no step made durable reaches the device when it is unmounted, so a crash may come there.
pub fn run_sequence(
    run: &Run,
    blank: &Blank,
    steps: &[Step],
    options: SequenceOptions<'_>,
) -> Result<SequenceRun> {
    let recording = options.folder.join(options.name);
    let header = Blank::header(blank.size, options.id);
    let recorder = Recorder::create(&recording, header, RecorderOptions { same_bits: 14 })?;
    let device: Arc<dyn Device> = blank.device()?;
    let recorded = RecordDevice::new(device, Arc::clone(&recorder));
    let mut scene = Scene::new(run, options.name, recorded, blank.kind)?;
    scene.mount(&[&mount_options(blank.kind), options.mount].concat())?;
    set_up(scene.mountpoint())?;
    let mark = |text: &str| recorder.mark(recorder.time_ns(), text);
    mark(SET_UP);
    for (number, step) in (1u8..).zip(steps) {
        mark(&begin_mark(number.into()));
        perform(scene.mountpoint(), &step.operation, number)?;
        persist(scene.mountpoint(), step.persist)?;
        mark(&persisted_mark(number.into()));
    }
    scene.unmount()?;
    recorder.finish()?;
    if let Some(error) = scene.end().into_iter().next() {
        return Err(error);
    }
    let marks = rotproof_crash::marks(rotproof_crash::recording::Reader::open(&recording)?)?;
    let begin = marks.iter().find(|mark| mark.text == SET_UP).map_or(0, |mark| mark.position + 1);
    Ok(SequenceRun { recording, begin })
}
