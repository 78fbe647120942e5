//! `rotproof crash`: what file systems are left with when the power goes, explored state by state. Here of sequences of file
//! operations; of a recording that is there already in `recorded`.

mod recorded;
mod source;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rotproof_block::{Error, ErrorKind};
use rotproof_crash_fs::operations::{of_length_one, of_length_two, sample};
use rotproof_crash_fs::{
    Campaign, CampaignHead, CampaignOptions, Suspect, Tally, explore_sequences, write_state,
};
use rotproof_machine::registry::Registry;
use rotproof_spec::Span;
use rotproof_subject::FileSystem;
use serde_json::json;

pub use recorded::RecordedArgs;
use recorded::{explore_recorded, export_log};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::signals::cancel_on_signals;
use crate::units::{count, counted, short_duration};

/// `rotproof crash`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every sequence of file operations is done on a fresh file system whose device is
recorded. Of the recording come the states in which a power loss may have left
it; each is mounted, so that recovery runs, and its files are looked at. What
fails is kept with its story. With --recording the states are those of a
recording that is there. The same command goes on with an exploration that was
stopped. Needs root. Nothing of yours is written to. docs/crash-states.md says
more.")]
pub struct CrashArgs {
    /// The file system, or raw for a recording without one
    #[arg(value_name = "SUBJECT")]
    pub subject: Option<Held>,

    /// Sequences of so many operations, each alone or also in pairs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub length: u8,

    /// So many sequences of that length, drawn by the seed; default: all
    #[arg(long, value_name = "N")]
    pub sample: Option<usize>,

    /// States at most; default: 40 of each sequence, 1000 of a recording
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub states: Option<u64>,

    /// States looked at at the same time; default: one for each CPU, up to 4
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,

    /// Further mount options, such as data=journal; what is asked for goes by what they promise
    #[arg(long, value_name = "OPTIONS", value_delimiter = ',')]
    pub mount: Vec<String>,

    /// Let the file system's own checker look at every state too
    #[arg(long)]
    pub fsck: bool,

    /// Root of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Begin no sequence, and no state of a recording, after so long
    #[arg(long, value_name = "SPAN")]
    pub duration: Option<Span>,

    /// Where everything goes; default: a folder of the exploration's own in rotproof-results/crash
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,

    /// Show a state that was kept, instead of exploring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subject", "sample", "duration", "results"])]
    pub state: Option<PathBuf>,

    /// With --state: where to leave its image
    #[arg(long, value_name = "FILE", requires = "state")]
    pub image: Option<PathBuf>,

    #[command(flatten)]
    pub recorded: RecordedArgs,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

impl CrashArgs {
    fn workers(&self) -> usize {
        self.workers
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4))
    }
}

/// The file systems that can be explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CrashSubject {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl CrashSubject {
    /// As a subject.
    pub fn kind(self) -> FileSystem {
        match self {
            Self::Ext4 => FileSystem::Ext4,
            Self::Xfs => FileSystem::Xfs,
            Self::Btrfs => FileSystem::Btrfs,
        }
    }
}

/// What a recorded device held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Held {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// No file system, with --recording: states are files, and your --check looks at them.
    Raw,
}

impl Held {
    /// The file system, if it is one.
    pub fn kind(self) -> Option<FileSystem> {
        Some(match self {
            Self::Ext4 => FileSystem::Ext4,
            Self::Xfs => FileSystem::Xfs,
            Self::Btrfs => FileSystem::Btrfs,
            Self::Raw => return None,
        })
    }

    fn name(self) -> &'static str {
        self.kind().map_or("raw", |kind| kind.name())
    }
}

/// States of a sequence if nothing is said.
const STATES: u64 = 40;
/// Suspects that are shown one by one.
const SUSPECTS_MAX: usize = 10;
/// States of them of which nobody knows that are shown one by one.
const UNKNOWN_MAX: usize = 3;
/// How often progress is told, in sequences.
const TELL_EVERY: usize = 10;

/// Explores, or shows a state that was kept. A state that fails is exit 1; so is one of which nobody knows, since that did
/// not pass either.
pub fn crash(args: &CrashArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(state) = &args.state {
        let Some(image) = &args.image else {
            let what = "say with `--image FILE` where the image of the state is to be written";
            return Err(Error::new(ErrorKind::Invalid, what).into());
        };
        if image.exists() {
            let what = format!("{} is there already; remove it or choose another", image.display());
            return Err(Error::new(ErrorKind::Refused, what).into());
        }
        let of = &args.recorded;
        let words = write_state(state, of.recording.as_deref(), of.base.as_deref(), image)?;
        match args.json {
            true => output.json(&json!({ "state": words, "image": image })),
            false => output.result(format!("{words}\nImage: {}", image.display())),
        }
        return Ok(Exit::Pass);
    }
    if let (Some(log), Some(recording)) = (&args.recorded.export_log, &args.recorded.recording) {
        return export_log(recording, log, args.json, output);
    }
    let Some(subject) = args.subject else {
        let what = "name the file system: rotproof crash ext4, with `--recording FILE` too; or a state with `--state FILE`";
        return Err(Error::new(ErrorKind::Invalid, what).into());
    };
    if let Some(recording) = &args.recorded.recording {
        return explore_recorded(args, subject, recording, output);
    }
    let Some(kind) = subject.kind() else {
        let what = "without a file system there are no files to do anything to; name a recording with `--recording FILE`";
        return Err(Error::new(ErrorKind::Invalid, what).into());
    };
    let cancel = cancel_on_signals()?;
    let two = of_length_two();
    let sequences = match (args.length, args.sample) {
        (1, None) => of_length_one(),
        (1, Some(count)) => sample(&of_length_one(), count, args.seed),
        (_, None) => [of_length_one(), two].concat(),
        (_, Some(count)) => sample(&two, count, args.seed),
    };
    let mut options = CampaignOptions {
        kind,
        mount: args.mount.clone(),
        sequences,
        states_max: args.states.unwrap_or(STATES),
        workers: args.workers(),
        checker_every: usize::from(args.fsck),
        seed: args.seed,
        time_max: args.duration.map(|span| span.0),
        keep: PathBuf::new(),
    };
    options.keep = match &args.results {
        Some(folder) => folder.clone(),
        None => default_folder().join(CampaignHead::of(&options)?.folder_name()?),
    };
    let run = Registry::of_user()?.begin()?;
    let began = Instant::now();
    let mut tell = |tally: &Tally, earlier: &Tally| match tally == earlier {
        _ if args.quiet => {}
        true => output.note(goes_on(earlier, &options.keep)),
        false if tally.sequences.is_multiple_of(TELL_EVERY) => {
            output.note(progress(tally, earlier, began.elapsed(), options.time_max));
        }
        false => {}
    };
    let campaign = explore_sequences(&run, &options, &cancel, &mut tell);
    let left = run.finish();
    let campaign = campaign?;
    if let Some(error) = left.into_iter().next() {
        return Err(error.while_doing("removing what the exploration had created").into());
    }
    let results = campaign.is_kept().then_some(options.keep.as_path());
    if results.is_none() && args.results.is_none() {
        // Ours, and empty; those above it only if nobody else has anything there.
        for folder in options.keep.ancestors().take(3) {
            let _ = std::fs::remove_dir(folder);
        }
    }
    if args.json {
        let value = serde_json::to_value(&campaign)
            .map_err(|error| Error::new(ErrorKind::Internal, "writing JSON").caused_by(error))?;
        output.json(
            &json!({ "subject": kind.name(), "seed": args.seed, "results": results, "campaign": value }),
        );
    } else {
        output.result(render(&campaign, (kind.name(), args.seed), results, output.stdout_paint()));
    }
    if let Some(signal) = cancel.signal() {
        return Ok(Exit::of_signal(signal));
    }
    let found = &campaign.tally;
    let is_shown = found.checked > 0 && found.failing == 0 && found.unknown == 0;
    Ok(if is_shown { Exit::Pass } else { Exit::VerdictFailed })
}

/// Where explorations have their folders if nothing is said.
pub(super) fn default_folder() -> PathBuf {
    PathBuf::from("rotproof-results").join("crash")
}

fn goes_on(earlier: &Tally, folder: &Path) -> String {
    format!(
        "  goes on in {}: {} of {} sequences are done, {} states, {} failing, {} unknown",
        folder.display(),
        count(earlier.sequences as u64),
        count(earlier.sequences_in_all as u64),
        count(earlier.checked),
        count(earlier.failing),
        count(earlier.unknown)
    )
}

/// How far it has come after so long, and how long the rest takes if it goes on so, at most until its time is over. What earlier
/// runs had done took none of this time.
fn progress(tally: &Tally, earlier: &Tally, elapsed: Duration, time_max: Option<Duration>) -> String {
    let states_per_s =
        (tally.checked - earlier.checked) as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let share = tally.sequences_in_all.saturating_sub(tally.sequences) as f64
        / (tally.sequences - earlier.sequences).max(1) as f64;
    let rest = Duration::try_from_secs_f64(elapsed.as_secs_f64() * share).unwrap_or(Duration::MAX);
    let left = time_max.map_or(rest, |most| rest.min(most.saturating_sub(elapsed)));
    format!(
        "  {} of {} sequences, {} states, {states_per_s:.0} a second, {} failing, {} unknown, about {} left",
        count(tally.sequences as u64),
        count(tally.sequences_in_all as u64),
        count(tally.checked),
        count(tally.failing),
        count(tally.unknown),
        short_duration(left)
    )
}

fn render(campaign: &Campaign, (subject, seed): (&str, u64), results: Option<&Path>, paint: Paint) -> String {
    let Campaign { tally, earlier, suspects, is_complete, seconds } = campaign;
    let of_earlier = |earlier: u64| match earlier {
        0 => String::new(),
        earlier => format!(", {} of them by earlier runs", count(earlier)),
    };
    let now = tally.checked - earlier.checked;
    let mut lines = vec![
        format!("{}  power loss, seed {seed}", paint.bold(subject)),
        String::new(),
        format!(
            "  sequences  {} of {}{}",
            count(tally.sequences as u64),
            count(tally.sequences_in_all as u64),
            of_earlier(earlier.sequences as u64)
        ),
        format!("  states     {}{}", count(tally.checked), of_earlier(earlier.checked)),
        format!("  failing    {}", count(tally.failing)),
        format!("  unknown    {}", count(tally.unknown)),
    ];
    if now > 0 {
        let states_per_s = now as f64 / seconds.max(f64::MIN_POSITIVE);
        lines.push(format!("  took       {seconds:.1} s, {states_per_s:.0} states a second"));
    }
    for suspect in suspects.iter().take(SUSPECTS_MAX) {
        lines.push(String::new());
        lines.extend(told(suspect, paint));
    }
    if suspects.len() > SUSPECTS_MAX {
        let more = counted((suspects.len() - SUSPECTS_MAX) as u64, "sequence");
        lines.extend([String::new(), format!("and {more} more; --json has them all")]);
    }
    lines.push(String::new());
    lines.push(match (tally.checked, tally.failing, tally.unknown, is_complete) {
        (0, ..) => format!("{}  no state was looked at", paint.bad("NOTHING SHOWN")),
        (_, 0, 0, true) => {
            format!("{}  every state that was looked at keeps what was promised", paint.good("PASS"))
        }
        (_, 0, 0, false) => {
            format!("{}  stopped early; what was looked at passes", paint.notable("PASS SO FAR"))
        }
        (_, 0, ..) => format!("{}  of some states nobody knows", paint.bad("FAIL")),
        _ => format!("{}  {}", paint.bad("FAIL"), counted(tally.failing, "state")),
    });
    if let Some(folder) = results {
        lines.push(format!("Results: {}", folder.display()));
        let found = match (is_complete, now) {
            (false, _) => Some("The same command goes on from there."),
            (true, 0) => {
                Some("Nothing was looked at again. Remove that folder, or name another, to begin anew.")
            }
            (true, _) => None,
        };
        lines.extend(found.map(str::to_owned));
    }
    lines.join("\n")
}

/// A sequence that does not simply pass.
fn told(suspect: &Suspect, paint: Paint) -> Vec<String> {
    let Suspect { sequence, failures, unknown, stories, kept } = suspect;
    let mut lines = vec![paint.bold(sequence.join("; ")).to_string()];
    for story in stories {
        lines.extend(story.lines().map(|line| format!("  {line}")));
    }
    lines.extend(
        unknown.iter().take(UNKNOWN_MAX).map(|one| format!("  unknown: {}: {}", one.state.words(), one.why)),
    );
    if let Some(first) = failures.first() {
        let state = kept.join(format!("state-{}.json", first.index));
        lines.push(format!(
            "  {}",
            paint.dim(format!("rotproof crash --state {} --image crashed.img", state.display()))
        ));
    }
    lines.push(format!("  {}", paint.dim(format!("kept in {}", kept.display()))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_fast_it_goes_and_how_long_the_rest_takes() {
        let none = Tally { sequences_in_all: 40, ..Tally::default() };
        let tally = Tally { sequences: 10, checked: 300, unknown: 1, ..none };
        let text = progress(&tally, &none, Duration::from_secs(20), None);
        assert_eq!(
            text,
            "  10 of 40 sequences, 300 states, 15 a second, 0 failing, 1 unknown, about 60.0 s left"
        );
        let text = progress(&tally, &none, Duration::from_secs(20), Some(Duration::from_secs(25)));
        assert!(text.ends_with("about 5.00 s left"), "{text}");
        let none = Tally::default();
        assert!(progress(&none, &none, Duration::ZERO, None).contains("0 of 0"));
        // What was done before took none of this time.
        let earlier = Tally { sequences: 10, checked: 300, sequences_in_all: 40, ..none };
        let tally = Tally { sequences: 20, checked: 500, ..earlier };
        let text = progress(&tally, &earlier, Duration::from_secs(20), None);
        assert_eq!(
            text,
            "  20 of 40 sequences, 500 states, 10 a second, 0 failing, 0 unknown, about 40.0 s left"
        );
    }

    #[test]
    fn what_is_told_of_the_whole_says_what_earlier_runs_had_done_and_how_to_go_on() {
        let tally = Tally { sequences: 30, sequences_in_all: 40, checked: 900, failing: 0, unknown: 0 };
        let earlier = Tally { sequences: 20, checked: 600, ..tally };
        let told = |tally: Tally, earlier: Tally, is_complete: bool| {
            let campaign = Campaign { tally, earlier, suspects: Vec::new(), is_complete, seconds: 10.0 };
            let folder = campaign.is_kept().then_some(Path::new("kept"));
            render(&campaign, ("ext4", 1), folder, Paint::OFF)
        };
        let text = told(tally, earlier, false);
        for part in [
            "30 of 40, 20 of them by earlier runs",
            "900, 600 of them by earlier runs",
            "10.0 s, 30 states a second",
            "PASS SO FAR",
            "Results: kept\nThe same command goes on from there.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let whole = Tally { sequences: 40, ..tally };
        let text = told(whole, Tally { sequences_in_all: 40, ..Tally::default() }, true);
        assert!(
            text.contains("PASS  every") && !text.contains("earlier") && !text.contains("Results"),
            "{text}"
        );
        let text = told(Tally { sequences_in_all: 40, ..Tally::default() }, Tally::default(), false);
        assert!(text.contains("NOTHING SHOWN"), "{text}");
    }
}
