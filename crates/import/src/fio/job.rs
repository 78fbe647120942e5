//! One job: its options as keys of ours.

use std::time::Duration;

use rotproof_document::{Diagnostic, Location};
use rotproof_load::{Arrivals, BlockSizes, JobSpec, Pattern, Rate, SizeMix, ThinkAfter, ThinkTime};
use rotproof_record::statistics::SteadySpec;
use rotproof_spec::{Bytes, Percent, Span};

use super::sections::{Section, Setting};
use super::steady::FioSteady;
use super::value::{
    block_sizes, byte_rates, distribution, number, percent, range, rates, size, small, split, switch, time,
    whole,
};
use super::words::without_effect;

/// A job as we have it, and what belongs to the load as a whole.
pub(super) struct Job {
    pub(super) spec: JobSpec,
    pub(super) place: Location,
    /// Of one of its clones.
    pub(super) size: Option<Bytes>,
    /// What all its clones work on, where it is named.
    pub(super) file: Option<String>,
    pub(super) total: Option<Bytes>,
    pub(super) requests: Option<u64>,
    pub(super) duration: Option<Span>,
    pub(super) ramp_up: Option<Span>,
    pub(super) until_steady: Option<SteadySpec>,
    pub(super) duplicates: Option<Percent>,
    pub(super) compressible: Option<Percent>,
    pub(super) fixed_buffers: bool,
    /// Through the page cache.
    pub(super) buffered: bool,
    /// By a mapping.
    pub(super) mapped: bool,
    /// It begins when all before it have ended.
    pub(super) waits: bool,
    /// An I/O log that is replayed instead of what else is said.
    pub(super) trace: Option<FioTrace>,
}

/// A log of requests that fio replays.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FioTrace {
    pub(super) file: String,
    pub(super) asap: bool,
    pub(super) speed: Option<f64>,
    pub(super) skips: Vec<String>,
}

/// Options that change nothing that could be carried.
const WITHOUT_MEANING: [&str; 11] = [
    "group_reporting",
    "new_group",
    "name",
    "description",
    "thread",
    "unlink",
    "invalidate",
    "end_fsync",
    "fsync_on_close",
    "norandommap",
    "fallocate",
];

const TARGET: &str = "What fio works on (`filename`, `directory`) is not carried: the stack and the subject of the trial say \
                      it.";
const ENGINE: &str = "Requests go by io_uring past the page cache, whatever `ioengine` says.";
const VERIFY: &str =
    "Every block that is written is verified as it is read and in the end, whatever `verify` says.";
const FILES: &str = "Files are not registered with the kernel, whatever `registerfiles` says.";
const POLLING: &str = "The devices of a trial cannot be polled, whatever `hipri` says; `rotproof load --hipri` polls those that can.";
const NULL: &str = "fio's engine `null` does nothing with a request: use the leaf `null` of `rotproof load`, or a `memory` leaf.";
const BUFFERED: &str =
    "Where `direct=0` is said, the load is `buffered: true`, which takes a file system as the subject.";
const MAPPED: &str =
    "With the engine `mmap` the load is `ioengine: mmap`, which takes a file system as the subject.";
const SHARE: &str = "A `size` in percent is the share of the target that a job has; give the load a `total` or a `duration` as its end.";
const LOOPS: &str = "`loops` is carried as so many times the bytes and requests.";
const SYNCED: &str = "With `sync` every write is durable as it completes: `fua: 100%`.";
const BYTE_RATE: &str =
    "`rate` in bytes a second is carried as requests a second, by the mean size of a request.";
const FILL: &str = "`fill_device` writes until there is no room; here a load without `size` writes as many bytes as its target has.";
const STEADY_LOOK: &str = "How steady a load is, is looked at with each interval (`record: { interval }`).";
const GAPS: &str = "A way such as `rw=write:112k` leaves out so much after each request, which is the pattern `strided`. At the end \
                    that goes on from the second place, where fio begins anew.";
const STEADY: &str = "`steadystate` ends all jobs together, by their sum. Where fio limits how far a second lies from the mean, \
                      the lowest and the highest lie at most twice as far from each other here.";
const SEED: &str = "What is random comes from the trial's own `seed`.";
const RANDOM_MAP: &str = "fio comes to each place once before any comes again, unless `norandommap` is given; here random places \
                          are drawn independently.";

const PAGE_CACHE: &str = "Without `direct=1` fio goes through the page cache. Here requests go past it; on a file system \
                          `buffered: true` in the load goes through it.";
const ONE_IN_FLIGHT: &str = "With a synchronous engine, such as `psync`, which is fio's default, one request is in flight \
                             whatever `iodepth` says: the same here. Name an asynchronous one, such as `io_uring`, to have \
                             `iodepth` carried.";
const CONTENT: &str = "Every block that is written has a content of its own, by which it is verified, whatever \
                       `refill_buffers` and `scramble_buffers` say.";
const DUPLICATES: &str =
    "`dedupe_percentage` repeats whole requests in fio; here blocks of 4 KiB are repeated, as many in all.";
const ENDLESS: &str = "Without `time_based` fio ends before `runtime` is over, once it has been over its file. How large that is, \
                       is not said here: give the load a `total` beside its `duration`.";
const BY_TIME: &str =
    "With `time_based` fio goes on until `runtime` is over, whatever `number_ios` says; so it is left out.";
const CURSORS: &str = "fio's `rw=rw` goes through the file twice side by side, reading and writing, each from its beginning. Here \
                       one sequence goes through it, of which some requests read and some write.";
const BOTH_RATES: &str = "`rate_iops` limits reads and writes each for itself, so what both make together is the `rate`, and how \
                          they share it is `reads`, whatever `rwmixread` says.";
const RATE_OF_SIZES: &str = "fio takes `rate_iops` for as many bytes a second as that many of the smallest requests have: of \
                             sizes that differ, fewer requests.";
pub(super) const OWN_PARTS: &str = "Each worker has its own part of the target. Clones and jobs of fio's on one file all go over the whole \
                         of it.";

/// What is known of a job while its options are gone through.
#[derive(Default)]
struct Options {
    access: Option<(bool, f64)>,
    mix: Option<Percent>,
    pattern: Option<Pattern>,
    random: Option<Percent>,
    /// Of reads and of writes.
    rate: Option<(f64, f64)>,
    poisson: bool,
    /// Whatever its order, it counts more than one size.
    split: Option<BlockSizes>,
    /// Bytes that are left out after each request.
    gap: Option<Bytes>,
    is_async: bool,
    is_direct: Option<bool>,
    byte_rate: Option<(f64, f64)>,
    loops: Option<u64>,
    trace: FioTrace,
    think: Option<Span>,
    think_after: Option<u64>,
    steady: Option<FioSteady>,
    steady_for: Option<Span>,
    steady_after: Option<Span>,
    think_busy: Option<Span>,
    io_size: Option<Bytes>,
    runtime: Option<Span>,
    time_based: bool,
}

impl Job {
    pub(super) fn of(section: &Section, notes: &mut Vec<String>, diagnostics: &mut Vec<Diagnostic>) -> Self {
        let spec = JobSpec { name: Some(section.name.clone()), ..JobSpec::default() };
        let mut job = Self {
            spec,
            place: section.place.clone(),
            size: None,
            file: None,
            total: None,
            requests: None,
            duration: None,
            ramp_up: None,
            until_steady: None,
            duplicates: None,
            compressible: None,
            fixed_buffers: false,
            buffered: false,
            mapped: false,
            waits: false,
            trace: None,
        };
        let mut options = Options::default();
        for setting in &section.options {
            if let Err(message) = job.set(setting, &mut options, notes) {
                let diagnostic = Diagnostic {
                    message,
                    help: Some("change it or take it out, so that nothing is lost in silence".to_owned()),
                    place: Some(setting.place.clone()),
                    path: String::new(),
                };
                // A global option is met with every job.
                if !diagnostics.contains(&diagnostic) {
                    diagnostics.push(diagnostic);
                }
            }
        }
        job.settle(options, notes, diagnostics);
        job
    }

    fn set(
        &mut self,
        setting: &Setting,
        options: &mut Options,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let value = setting.value.as_str();
        let mut note = |text: &str| {
            if !notes.iter().any(|known| known == text) {
                notes.push(text.to_owned());
            }
        };
        match setting.name.as_str() {
            "rw" | "readwrite" => {
                let (word, gap) = value.split_once(':').unwrap_or((value, ""));
                let (is_random, reads) = access(word)?;
                options.gap = match (is_random, gap) {
                    (_, "") => None,
                    // To fio the number is how many requests come before the next random place.
                    (true, "1") => None,
                    (true, _) => {
                        return Err(
                            "runs of several requests at random places have no counterpart".to_owned()
                        );
                    }
                    (false, gap) if gap.starts_with('-') => {
                        return Err("going backwards has no counterpart among the patterns".to_owned());
                    }
                    (false, gap) => Some(size(gap)?).filter(|gap| gap.0 > 0),
                };
                options.access = Some((is_random, reads));
            }
            "bsrange" | "blocksize_range" => self.spec.block_size = range(value)?,
            "fill_device" | "fill_fs" => {
                if switch(value)? {
                    note(FILL);
                }
            }
            "steadystate_check_interval" | "ss_interval" => {
                time(value, 1e9)?;
                note(STEADY_LOOK);
            }
            "bs" | "blocksize" => self.spec.block_size = block_sizes(value)?,
            "bssplit" => options.split = Some(split(value)?),
            "ba" | "blockalign" => self.spec.align = Some(size(value)?),
            "iodepth" => self.spec.queue_depth = small(value)?,
            "numjobs" => self.spec.workers = small(value)?,
            "size" if value.ends_with('%') => {
                self.spec.space = Some(percent(value)?).filter(|share| share.0 < 1.0);
                note(SHARE);
            }
            "size" => self.size = Some(size(value)?),
            "io_size" | "io_limit" => options.io_size = Some(size(value)?),
            "loops" => {
                options.loops = Some(whole(value)?).filter(|loops| *loops > 1);
                if options.loops.is_some() {
                    note(LOOPS);
                }
            }
            "stonewall" | "wait_for_previous" => self.waits = switch(value)?,
            "read_iolog" => value.clone_into(&mut options.trace.file),
            "replay_no_stall" => options.trace.asap = switch(value)?,
            "replay_time_scale" => options.trace.speed = Some(number(value)? / 100.0),
            "replay_skip" => {
                options.trace.skips = value
                    .split(',')
                    .map(|word| match word.trim() {
                        "trim" => Ok("discard".to_owned()),
                        word @ ("read" | "write") => Ok(word.to_owned()),
                        "sync" => Ok("flush".to_owned()),
                        word => Err(format!("`{word}` is nothing that a replay could leave out")),
                    })
                    .collect::<Result<_, _>>()?;
            }
            "replay_redirect" => note(TARGET),
            "sync" => match value {
                "0" | "none" => {}
                "" | "1" | "sync" | "dsync" => {
                    self.spec.fua = Some(Percent(1.0));
                    note(SYNCED);
                }
                _ => return Err(format!("`{value}` has no counterpart among the ways to be durable")),
            },
            "rate" => {
                options.byte_rate = Some(byte_rates(value)?);
                note(BYTE_RATE);
            }
            "number_ios" => self.requests = Some(whole(value)?),
            "runtime" | "timeout" => options.runtime = Some(time(value, 1e9)?),
            "time_based" => options.time_based = switch(value)?,
            "ramp_time" => self.ramp_up = Some(time(value, 1e9)?),
            "steadystate" | "ss" => {
                options.steady = Some(value.parse()?);
                note(STEADY);
            }
            "steadystate_duration" | "ss_dur" => options.steady_for = Some(time(value, 1e9)?),
            "steadystate_ramp_time" | "ss_ramp" => options.steady_after = Some(time(value, 1e9)?),
            "rwmixread" => options.mix = Some(percent(value)?),
            "rwmixwrite" => options.mix = Some(Percent(1.0 - percent(value)?.0)),
            "percentage_random" => options.random = Some(percent(value)?),
            "random_distribution" => options.pattern = Some(distribution(value)?),
            "fsync" | "fdatasync" => {
                // With both fio syncs after each of their numbers, so the smaller one counts; zero is none.
                let writes = Some(whole(value)?).filter(|writes| *writes > 0);
                self.spec.flush_every = [self.spec.flush_every, writes].into_iter().flatten().min();
            }
            "rate_iops" => options.rate = Some(rates(value)?),
            "rate_process" => {
                options.poisson = match value {
                    "linear" => false,
                    "poisson" => true,
                    _ => return Err(format!("`{value}` has no counterpart among the arrivals")),
                }
            }
            "thinktime" => options.think = Some(time(value, 1e3)?),
            "thinktime_blocks" => options.think_after = Some(whole(value)?),
            "thinktime_iotime" => options.think_busy = Some(time(value, 1e9)?),
            "fixedbufs" => self.fixed_buffers = switch(value)?,
            "registerfiles" => note(FILES),
            "hipri" => note(POLLING),
            "dedupe_percentage" => {
                self.duplicates = Some(percent(value)?);
                note(DUPLICATES);
            }
            "refill_buffers" | "scramble_buffers" => {
                switch(value)?;
                note(CONTENT);
            }
            "buffer_compress_percentage" => self.compressible = Some(percent(value)?),
            "filename" => {
                self.file = Some(value.to_owned());
                note(TARGET);
            }
            "directory" | "filesize" | "uri" => note(TARGET),
            "ioengine" => match value {
                "io_uring" | "libaio" | "posixaio" | "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => {
                    options.is_async = matches!(value, "io_uring" | "libaio" | "posixaio");
                    note(ENGINE);
                }
                "windowsaio" | "solarisaio" | "libblkio" => {
                    options.is_async = true;
                    note(ENGINE);
                }
                "nbd" => {
                    options.is_async = true;
                    note(TARGET);
                }
                "null" => {
                    options.is_async = true;
                    note(NULL);
                }
                "mmap" => {
                    self.mapped = true;
                    note(MAPPED);
                }
                _ => return Err(format!("`{value}` has no counterpart among the engines")),
            },
            "direct" | "buffered" => {
                options.is_direct = Some(switch(value)? == (setting.name == "direct"));
                if options.is_direct == Some(true) {
                    note(ENGINE);
                }
            }
            "verify" | "do_verify" => note(VERIFY),
            "randrepeat" | "allrandrepeat" | "randseed" => note(SEED),
            name if WITHOUT_MEANING.contains(&name) => {}
            name if without_effect(name).is_some() => {
                let why = without_effect(name).unwrap_or_default();
                note(&format!("`{name}` {why}."));
            }
            name => return Err(format!("`{name}` has no counterpart in a load")),
        }
        Ok(())
    }

    /// What takes several options.
    fn settle(&mut self, options: Options, notes: &mut Vec<String>, diagnostics: &mut Vec<Diagnostic>) {
        let mut report = |message: &str, help: &str, place: &Location| {
            diagnostics.push(Diagnostic {
                message: message.to_owned(),
                help: Some(help.to_owned()),
                place: Some(place.clone()),
                path: String::new(),
            });
        };
        let mut note = |text: &str| {
            if !notes.iter().any(|known| known == text) {
                notes.push(text.to_owned());
            }
        };
        let (is_random, reads) = options.access.unwrap_or((false, 1.0));
        self.spec.reads = match options.mix {
            Some(mix) if reads == MIXED => mix,
            _ => Percent(reads),
        };
        if let Some(split) = options.split {
            self.spec.block_size = split;
        }
        if !options.is_async && self.spec.queue_depth > 1 {
            self.spec.queue_depth = 1;
            note(ONE_IN_FLIGHT);
        }
        match options.is_direct {
            None if !self.mapped => note(PAGE_CACHE),
            Some(false) if !self.mapped => {
                self.buffered = true;
                note(BUFFERED);
            }
            _ => {}
        }
        if !options.trace.file.is_empty() {
            self.trace = Some(options.trace.clone());
        }
        if self.spec.workers > 1 {
            note(OWN_PARTS);
        }
        if !is_random && reads == MIXED {
            note(CURSORS);
        }
        if let Some(gap) = options.gap {
            let (read_sizes, write_sizes) = self.spec.block_size.split();
            match (read_sizes.0.as_slice(), write_sizes.0.as_slice()) {
                ([(one, _)], [(other, _)]) if one == other => {
                    self.spec.pattern = Pattern::Strided { by: Bytes(one.0.saturating_add(gap.0)) };
                    note(GAPS);
                }
                _ => report("gaps between requests of several sizes", "give one `bs`", &self.place),
            }
        }
        if is_random {
            self.spec.pattern = options.pattern.unwrap_or(Pattern::Random);
            self.spec.sequential =
                options.random.map(|random| Percent(1.0 - random.0)).filter(|share| share.0 > 0.0);
            if self.spec.pattern == Pattern::Random {
                note(RANDOM_MAP);
            }
        } else if options.pattern.is_some() || options.random.is_some() {
            let help = "give `rw=randread`, `randwrite` or `randrw`, or take it out";
            report("what is random is said of a sequential job", help, &self.place);
        }
        let by_bytes = options.byte_rate.map(|limits| self.requests_of(limits));
        if by_bytes.is_some() && options.rate.is_some() {
            let help = "keep one of them";
            report("both `rate` and `rate_iops` limit the job", help, &self.place);
        }
        match by_bytes.or(options.rate).map(|limits| self.together(limits)) {
            None => {}
            Some(Some((requests, reads))) => {
                if reads > 0.0 && reads < 1.0 {
                    note(BOTH_RATES);
                }
                let (read_sizes, write_sizes) = self.spec.block_size.split();
                if read_sizes.0.len() > 1 || write_sizes.0.len() > 1 {
                    note(RATE_OF_SIZES);
                }
                self.spec.reads = Percent(reads);
                let arrivals = if options.poisson { Arrivals::Poisson } else { Arrivals::Even };
                // fio counts those of each clone, and takes none for as many as there are.
                let requests = requests * f64::from(self.spec.workers);
                self.spec.rate = (requests > 0.0).then_some(Rate { requests, arrivals });
            }
            Some(None) => {
                let help = "limit both, such as rate_iops=500,500, or make two jobs of them";
                report("either reads or writes have no limit", help, &self.place);
            }
        }
        // To fio, no time is as good as none given.
        let busy = options.think_busy.filter(|busy| !busy.0.is_zero());
        let after = match (busy, options.think_after) {
            (Some(_), Some(_)) => {
                let help = "keep one of them";
                report("both `thinktime_blocks` and `thinktime_iotime` say when to pause", help, &self.place);
                ThinkAfter::default()
            }
            (Some(busy), None) => ThinkAfter::Time(busy),
            (None, requests) => requests.map_or_else(ThinkAfter::default, ThinkAfter::Requests),
        };
        self.spec.think_time =
            options.think.filter(|pause| !pause.0.is_zero()).map(|pause| ThinkTime { pause, after });
        // Without a window fio does not look.
        let window = options.steady_for.filter(|window| !window.0.is_zero());
        self.until_steady = options.steady.zip(window).map(|(steady, window)| {
            steady.spec(window, options.steady_after.unwrap_or_default(), Duration::from_secs(1))
        });
        // With `time_based` the time alone counts, else the first of the ends.
        let is_by_time = options.time_based && options.runtime.is_some();
        self.total = options.io_size.or(self.size).filter(|_| !is_by_time);
        if let Some(loops) = options.loops.filter(|_| !is_by_time) {
            self.total = self.total.map(|total| Bytes(total.0.saturating_mul(loops)));
            self.requests = self.requests.map(|requests| requests.saturating_mul(loops));
        }
        self.duration = options.runtime;
        if is_by_time && self.requests.take().is_some() {
            note(BY_TIME);
        }
        if options.runtime.is_some() && !is_by_time && self.total.is_none() && self.trace.is_none() {
            note(ENDLESS);
        }
    }

    /// Limits in bytes a second as fio's in requests of the smallest size, which it takes for as many bytes.
    fn requests_of(&self, (reads, writes): (f64, f64)) -> (f64, f64) {
        let smallest =
            |sizes: &SizeMix| sizes.0.iter().map(|(size, _)| size.0).min().unwrap_or(1).max(1) as f64;
        let (read_sizes, write_sizes) = self.spec.block_size.split();
        (reads / smallest(read_sizes), writes / smallest(write_sizes))
    }

    /// Requests a second of one clone, and the share of reads, from what limits its reads and its writes; `None` if only
    /// one of both has a limit. To fio the limit is one of bytes, by the smallest size, and zero is none.
    fn together(&self, (reads, writes): (f64, f64)) -> Option<(f64, f64)> {
        let share = self.spec.reads.0;
        let requests = |limit: f64, sizes: &SizeMix| {
            let smallest = sizes.0.iter().map(|(size, _)| size.0).min().unwrap_or_default();
            limit * smallest as f64 / sizes.mean_bytes().max(1.0)
        };
        let (read_sizes, write_sizes) = self.spec.block_size.split();
        let (reads, writes) = (requests(reads, read_sizes), requests(writes, write_sizes));
        match (reads > 0.0, writes > 0.0) {
            _ if share >= 1.0 => Some((reads, 1.0)),
            _ if share <= 0.0 => Some((writes, 0.0)),
            (true, true) => Some((reads + writes, reads / (reads + writes))),
            (false, false) => Some((0.0, share)),
            _ => None,
        }
    }
}

/// Reads unless `rwmixread` says otherwise, where both are done.
const MIXED: f64 = 0.5;

/// Whether it is random, and the share of reads.
fn access(text: &str) -> Result<(bool, f64), String> {
    match text {
        "read" => Ok((false, 1.0)),
        "write" => Ok((false, 0.0)),
        "rw" | "readwrite" => Ok((false, MIXED)),
        "randread" => Ok((true, 1.0)),
        "randwrite" => Ok((true, 0.0)),
        "randrw" => Ok((true, MIXED)),
        _ => Err(format!("`{text}` has no counterpart among the ways to read and write")),
    }
}
