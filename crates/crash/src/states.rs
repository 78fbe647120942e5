//! The states of a recording, one after the other: way by way, moment by moment, choice by choice; each image once.
//!
//! The recording is passed over once for each way, so memory does not grow with it. The same recording and options give
//! the same states in the same order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};

use crate::contents::Contents;
use crate::point::{CrashImage, Point};
use crate::recording::{Event, Reader, What};
use crate::state::{CrashState, StateDescription};
use crate::ways::{Choices, Moment, Seen, Way, WayLimits};
use crate::window::Window;

/// Tells which sectors recovery reads of an image, for [`Way::RecoveryReads`].
pub type RecoveryProbe = Box<dyn FnMut(&CrashState) -> Result<Vec<Range<u64>>> + Send>;

/// Which states.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// The recording.
    pub recording: PathBuf,
    /// What the device held before; zeros without it. Must stay as it is.
    pub base: Option<PathBuf>,
    /// The ways, in their order.
    pub ways: Vec<Way>,
    /// How much of each.
    pub limits: WayLimits,
    /// At most so many states in all.
    pub states_max: u64,
    /// Root of all that is drawn.
    pub seed: u64,
    /// Bytes of the unit inside which no write is torn; without it what the recording says of its device.
    pub unit_bytes: Option<u64>,
    /// No crash comes before the event with this position: what came before was made by somebody who waited for its
    /// end, such as `mkfs`.
    pub begin: u64,
    /// What is looked for depends on the marks that were set, so an image is another one when they are others.
    pub marks_matter: bool,
    /// Each way gets its share of [`StateOptions::states_max`], spread over the recording; otherwise the first ways, and the
    /// first moments, take what they find.
    pub is_shared: bool,
    /// So many images are remembered. One that is equal to another that was not is given again.
    pub known_max: u64,
}

impl StateOptions {
    /// All ways in their good order, without a limit on states.
    pub fn new(recording: &Path, seed: u64) -> Self {
        Self {
            recording: recording.to_owned(),
            base: None,
            ways: Way::IN_ORDER.to_vec(),
            limits: WayLimits::default(),
            states_max: u64::MAX,
            seed,
            unit_bytes: None,
            begin: 0,
            marks_matter: true,
            is_shared: false,
            known_max: u64::MAX,
        }
    }
}

/// How many states came of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayCount {
    /// Those that were chosen.
    pub chosen: u64,
    /// Those among them whose image had been given before.
    pub equal: u64,
}

/// See the head of the module.
pub struct States {
    options: StateOptions,
    contents: Arc<Contents>,
    recording_name: String,
    unit_bytes: u64,
    ways: VecDeque<Way>,
    reader: Reader,
    pass: Option<Pass>,
    /// Images given, by identity and number of marks, which is 0 if they do not matter.
    given: HashSet<(u128, u64)>,
    given_count: u64,
    counts: HashMap<Way, WayCount>,
    /// How many moments there are of each kind, if the states are shared.
    moments: HashMap<Moment, u64>,
    probe: Option<RecoveryProbe>,
}

/// The recording passing by for one way.
struct Pass {
    way: Way,
    window: Window,
    /// Read, and not let pass yet.
    next: Option<Event>,
    /// The recording is at its end, and the last moment has been.
    is_over: bool,
    point: Option<(Arc<Point>, Choices)>,
    share: Share,
    seen: Seen,
}

/// What one way may give, spread over its moments.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// No state is given beyond so many in all.
    given_max: u64,
    /// Of so many moments.
    moments: u64,
    /// So many are looked at.
    looked_at: u64,
    /// So many have been met.
    met: u64,
}

impl Share {
    /// Without bounds of its own.
    const ALL: Share = Share { given_max: u64::MAX, moments: 1, looked_at: 1, met: 0 };

    /// Whether the next moment is one to be looked at: they lie evenly among all.
    fn takes(&mut self) -> bool {
        let at = |met: u64| {
            (u128::from(met) * u128::from(self.looked_at) / u128::from(self.moments.max(1))) as u64
        };
        let takes = self.looked_at >= self.moments || at(self.met) < at(self.met + 1);
        self.met += 1;
        takes
    }
}

impl States {
    /// Fails as opening the recording and the image does, and with [`ErrorKind::Invalid`] on an atomic unit that is none.
    pub fn new(options: StateOptions) -> Result<Self> {
        let mut reader = Reader::open(&options.recording)?;
        let header = reader.header();
        let contents = Arc::new(Contents::open(&options.recording, header, options.base.as_deref())?);
        let unit_bytes = options.unit_bytes.unwrap_or_else(|| header.atomic_write_bytes.into());
        // Refuses the unit before the first state does.
        Point::new(&Window::new(Arc::clone(&contents)), unit_bytes)?;
        let moments =
            if options.is_shared { moments(&mut reader, &contents, options.begin)? } else { HashMap::new() };
        Ok(Self {
            moments,
            ways: options.ways.iter().copied().collect(),
            options,
            contents,
            recording_name: format!("{:032x}", header.id),
            unit_bytes,
            reader,
            pass: None,
            given: HashSet::new(),
            given_count: 0,
            counts: HashMap::new(),
            probe: None,
        })
    }

    /// Who tells what recovery reads; without it [`Way::RecoveryReads`] chooses nothing.
    #[must_use]
    pub fn with_probe(mut self, probe: RecoveryProbe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// Where the bytes are.
    pub fn contents(&self) -> &Arc<Contents> {
        &self.contents
    }

    /// What has come of a way so far.
    pub fn way_count(&self, way: Way) -> WayCount {
        self.counts.get(&way).copied().unwrap_or_default()
    }

    /// The next state and the point that it is one of; nothing when all are given or enough.
    pub fn next_state(&mut self) -> Result<Option<(Arc<Point>, CrashState)>> {
        while self.given_count < self.options.states_max {
            let Some(pass) = &mut self.pass else {
                let Some(way) = self.ways.pop_front() else { return Ok(None) };
                self.reader.rewind()?;
                let window = Window::new(Arc::clone(&self.contents));
                let share = self.share(way);
                self.pass = Some(Pass {
                    way,
                    window,
                    next: None,
                    is_over: false,
                    point: None,
                    share,
                    seen: Seen::default(),
                });
                continue;
            };
            let way = pass.way;
            if self.given_count >= pass.share.given_max {
                self.pass = None;
                continue;
            }
            if let Some((point, choices)) = &mut pass.point {
                let Some(survivors) = choices.next() else {
                    pass.point = None;
                    continue;
                };
                let image = point.build(&survivors);
                let count = self.counts.entry(way).or_default();
                count.chosen += 1;
                let marks = if self.options.marks_matter { point.marks() } else { 0 };
                let identity = (image.identity, marks);
                let is_known = match (self.given.len() as u64) < self.options.known_max {
                    true => !self.given.insert(identity),
                    false => self.given.contains(&identity),
                };
                if is_known {
                    count.equal += 1;
                    continue;
                }
                self.given_count += 1;
                let description = StateDescription {
                    recording: self.recording_name.clone(),
                    way,
                    position: point.position(),
                    epoch: point.epoch(),
                    marks: point.marks(),
                    unit_bytes: self.unit_bytes,
                    volatile: point.volatile().len() as u64,
                    survivors,
                };
                return Ok(Some((Arc::clone(point), CrashState { description, image })));
            }
            if pass.is_over {
                self.pass = None;
                continue;
            }
            if pass.next_moment(&mut self.reader, self.options.begin)? && pass.share.takes() {
                self.choose()?;
            }
        }
        Ok(None)
    }

    /// What a way may give of what is left, when it begins.
    fn share(&self, way: Way) -> Share {
        if !self.options.is_shared {
            return Share::ALL;
        }
        let ways_left = self.ways.len() as u64 + 1;
        let states = (self.options.states_max - self.given_count).div_ceil(ways_left);
        let moments = self.moments.get(&way.moment()).copied().unwrap_or_default();
        let of_moment = match way {
            Way::PrefixAtBarrier | Way::PrefixAtWrite => 1,
            Way::PersistencePoints => 2,
            _ => self.options.limits.per_point_max.clamp(1, 8),
        };
        let given_max = self.given_count.saturating_add(states);
        Share { given_max, moments, looked_at: states.div_ceil(of_moment).min(moments), met: 0 }
    }

    /// Begins with the point that the pass is at.
    fn choose(&mut self) -> Result<()> {
        let Some(pass) = &mut self.pass else { return Ok(()) };
        let point = Point::new(&pass.window, self.unit_bytes)?;
        let mut reads = Vec::new();
        if pass.way == Way::RecoveryReads {
            let (Some(probe), false) = (&mut self.probe, point.volatile().is_empty()) else { return Ok(()) };
            let survivors = point.all();
            let image: CrashImage = point.build(&survivors);
            let description = StateDescription {
                recording: self.recording_name.clone(),
                way: pass.way,
                position: point.position(),
                epoch: point.epoch(),
                marks: point.marks(),
                unit_bytes: self.unit_bytes,
                volatile: point.volatile().len() as u64,
                survivors,
            };
            reads = probe(&CrashState { description, image })?;
        }
        let choices =
            pass.way.choices(&point, &self.options.limits, self.options.seed, &reads, &mut pass.seen);
        pass.point = Some((Arc::new(point), choices));
        Ok(())
    }
}

/// How many moments of each kind a recording has. The recording is read once.
fn moments(reader: &mut Reader, contents: &Arc<Contents>, begin: u64) -> Result<HashMap<Moment, u64>> {
    reader.rewind()?;
    let mut window = Window::new(Arc::clone(contents));
    let mut moments: HashMap<Moment, u64> = HashMap::new();
    while let Some(event) = reader.next_event()? {
        if window.position() >= begin {
            let settles = window.settles(&event);
            let is_write = matches!(event.what, What::Done { ok: true, .. }) && !window.is_flush_done(&event);
            for (moment, is_one) in [
                (Moment::BeforeBarrier, settles),
                (Moment::AfterBarrier, settles),
                (Moment::AfterWrite, is_write),
                (Moment::AfterMark, matches!(event.what, What::Mark(_))),
            ] {
                *moments.entry(moment).or_default() += u64::from(is_one);
            }
        }
        window.pass(&event)?;
    }
    // The end of the recording is one, too.
    *moments.entry(Moment::BeforeBarrier).or_default() += 1;
    Ok(moments)
}

impl Iterator for States {
    type Item = Result<CrashState>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_state().map(|state| state.map(|(_, state)| state)).transpose()
    }
}

impl Pass {
    /// Goes on to the next moment at which the way chooses; no if the recording ended instead.
    fn next_moment(&mut self, reader: &mut Reader, begin: u64) -> Result<bool> {
        loop {
            // An event at which a way has chosen before it passes now.
            if let Some(event) = self.next.take() {
                self.window.pass(&event)?;
            }
            let Some(event) = reader.next_event()? else {
                self.is_over = true;
                if self.window.position() < begin {
                    let context = format!(
                        "the recording has {} events, and no crash was to come before {begin}",
                        self.window.position()
                    );
                    return Err(Error::new(ErrorKind::OutOfRange, context));
                }
                return Ok(self.way.moment() == Moment::BeforeBarrier);
            };
            let is_moment = match self.way.moment() {
                Moment::BeforeBarrier => {
                    let settles = self.window.settles(&event);
                    self.next = Some(event);
                    if settles && self.window.position() >= begin {
                        return Ok(true);
                    }
                    continue;
                }
                Moment::AfterBarrier => self.window.settles(&event),
                Moment::AfterWrite => {
                    matches!(event.what, What::Done { ok: true, .. }) && !self.window.is_flush_done(&event)
                }
                Moment::AfterMark => matches!(event.what, What::Mark(_)),
            };
            self.window.pass(&event)?;
            if is_moment && self.window.position() >= begin {
                return Ok(true);
            }
        }
    }
}
