//! The command line of `rotproof volume`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use rotproof_matrix_fs::Peer;
use rotproof_serve::{ExportKind, NbdAddress};
use rotproof_spec::{Bytes, Span};

use crate::metrics::MetricsArgs;

/// `rotproof volume`.
#[derive(Clone, Debug, Args)]
pub struct VolumeArgs {
    #[command(subcommand)]
    pub verb: VolumeVerb,
}

/// What can be done with a volume.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeVerb {
    /// Make a volume of several files or block devices
    #[command(next_line_help = true)]
    Create(CreateArgs),
    /// Offer a volume to any program
    #[command(next_line_help = true)]
    Serve(ServeVolumeArgs),
    /// Show what the members say of their volume; writes nothing
    #[command(next_line_help = true)]
    Status(StatusArgs),
    /// Bring members up to date that were away or are new
    #[command(next_line_help = true)]
    Rebuild(UpkeepArgs),
    /// Read every copy of everything, and put right what can be
    #[command(next_line_help = true)]
    Scrub(UpkeepArgs),
    /// Put another device in the place of a member, and fill it
    #[command(next_line_help = true)]
    Replace(ReplaceArgs),
    /// List the versions of a volume, or give one up
    #[command(next_line_help = true)]
    Versions(VersionsArgs),
    /// Keep the volume as it is now as a version
    #[command(next_line_help = true)]
    Capture(CaptureArgs),
    /// Make the volume what it was in a version
    #[command(next_line_help = true)]
    Rollback(RollbackArgs),
    /// Keep one copy more, or a spare
    #[command(next_line_help = true)]
    Add(AddArgs),
    /// Keep one copy fewer, or let a spare go
    #[command(next_line_help = true)]
    Remove(RemoveArgs),
    /// Make the volume larger: its members have grown, or there are more
    #[command(next_line_help = true)]
    Grow(GrowArgs),
    /// Put a volume on trial: each fault at each place
    #[command(next_line_help = true)]
    Matrix(MatrixArgs),
    /// End a volume: what its members hold cannot be reached any more
    #[command(next_line_help = true)]
    Destroy(DestroyArgs),
}

/// Which checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Checksum {
    /// CRC-32C.
    #[default]
    Crc32c,
    /// XXH3-64.
    Xxh3,
    /// BLAKE3.
    Blake3,
    /// None.
    None,
}

/// `rotproof volume create`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
So many members in a row as there are copies keep the same; over several such
mirrors lies a stripe. Each member gives as much as the smallest.")]
pub struct CreateArgs {
    /// Files or block devices, which exist
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Copies of everything: 1 to 3
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub copies: u8,

    /// Bytes of a chunk of the stripe, a power of two
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub chunk: Bytes,

    /// Of every block: crc32c, xxh3, blake3 or none
    #[arg(long, value_name = "KIND", value_enum, default_value_t, hide_possible_values = true)]
    pub checksum: Checksum,

    /// Keep versions, captured by `capture` and by themselves
    #[arg(long)]
    pub versions: bool,

    /// Capture one by itself so often, while somebody writes
    #[arg(long, value_name = "SPAN", requires = "versions")]
    pub every: Option<Span>,

    /// How many of those are kept
    #[arg(long, value_name = "N", default_value_t = 24, requires = "versions", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,

    /// Percent of the room that are kept for versions
    #[arg(long, value_name = "N", default_value_t = 20, requires = "versions", value_parser = clap::value_parser!(u8).range(1..=90))]
    pub reserve: u8,

    /// Permit destroying what the members hold
    #[arg(long)]
    pub overwrite: bool,

    /// Print the volume as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeVolumeArgs {
    /// The members, in any order; of each mirror one may be missing
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// File (default), device, ublk, nbd, vhost; may repeat
    #[arg(long = "as", value_name = "WAY", default_value = "file", hide_default_value = true)]
    pub exports: Vec<ExportKind>,

    /// Where NBD listens: :10809 or unix:PATH; may repeat
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<NbdAddress>,

    /// Offer this version, to be read only, and not the present
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,

    /// Offer this version too, to be read only, beside the present; may repeat
    #[arg(long, value_name = "N", conflicts_with = "version")]
    pub beside: Vec<u64>,

    /// Run this by a shell for what happens to it: see docs/volume.md
    #[arg(long, value_name = "COMMAND")]
    pub hook: Option<String>,

    /// Bytes a second at most of a rebuild that begins by itself
    #[arg(long, value_name = "SIZE")]
    pub rebuild_rate: Option<Bytes>,

    /// How long a member may take to answer
    #[arg(long, value_name = "SPAN", default_value = "5s")]
    pub patience: Span,

    /// Name for `rotproof ctl`
    #[arg(long, default_value = "volume")]
    pub name: String,

    /// Where its control socket is; default: by its name
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    #[command(flatten)]
    pub metrics: MetricsArgs,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print one line of JSON when it is ready
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume rebuild` and `scrub`.
#[derive(Clone, Debug, Args)]
pub struct UpkeepArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Bytes a second at most
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Bytes>,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume replace`.
#[derive(Clone, Debug, Args)]
pub struct ReplaceArgs {
    /// The members that are there, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Which member, by its number in `status`
    #[arg(long, value_name = "N")]
    pub member: usize,

    /// The device that takes its place
    #[arg(long, value_name = "DEVICE")]
    pub with: PathBuf,

    /// Bytes a second at most
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Bytes>,

    /// Permit destroying what that device holds
    #[arg(long)]
    pub overwrite: bool,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume versions`.
#[derive(Clone, Debug, Args)]
pub struct VersionsArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Give this version up
    #[arg(long, value_name = "N")]
    pub delete: Option<u64>,

    /// Have who serves the volume offer this version too
    #[arg(long, value_name = "N", conflicts_with = "delete")]
    pub beside: Option<u64>,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume capture`.
#[derive(Clone, Debug, Args)]
pub struct CaptureArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// What it is called, in at most 48 bytes
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name: String,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print its number as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume rollback`.
#[derive(Clone, Debug, Args)]
pub struct RollbackArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// The version, by its number in `versions`
    #[arg(long, value_name = "N")]
    pub to: u64,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume add`.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct AddArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// A device for one copy more, one for each mirror; may repeat
    #[arg(long, value_name = "DEVICE", required_unless_present = "spare", conflicts_with = "spare")]
    pub copy: Vec<PathBuf>,

    /// A device that waits to take the place of a member that fails
    #[arg(long, value_name = "DEVICE")]
    pub spare: Option<PathBuf>,

    /// Bytes a second at most, of filling a copy
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Bytes>,

    /// Permit destroying what the devices hold
    #[arg(long)]
    pub overwrite: bool,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume remove`.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct RemoveArgs {
    /// The members, in any order; those that go may be missing
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// A member of each mirror, by its number in `status`; may repeat
    #[arg(long, value_name = "N", required_unless_present = "spare", conflicts_with = "spare")]
    pub member: Vec<usize>,

    /// A spare, by its number in `status`
    #[arg(long, value_name = "N")]
    pub spare: Option<usize>,

    /// Open it without members that are missing and were used last: they are lost
    #[arg(long)]
    pub degraded: bool,

    /// Print the volume as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume grow`.
#[derive(Clone, Debug, Args)]
pub struct GrowArgs {
    /// The members, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// A device for further mirrors, one for each copy; may repeat
    #[arg(long, value_name = "DEVICE")]
    pub with: Vec<PathBuf>,

    /// Permit destroying what those devices hold
    #[arg(long)]
    pub overwrite: bool,

    /// Print the volume as JSON
    #[arg(long)]
    pub json: bool,
}

/// `rotproof volume matrix`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Two members of RAM, checksums and versions, in virtual time: nothing of yours
is touched, and the same seed finds the same. Beside it stand btrfs RAID-1 and
a ZFS mirror (zfs-fuse) on members of RAM, by real time: that needs root, and
takes about ten minutes each. docs/volume.md says what the letters mean.")]
pub struct MatrixArgs {
    /// Beside it the same faults below btrfs, zfs
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = peer)]
    pub beside: Vec<Peer>,

    /// Root of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Print every cell as JSON
    #[arg(long)]
    pub json: bool,
}

fn peer(word: &str) -> Result<Peer, String> {
    let found = Peer::ALL.into_iter().find(|peer| peer.word() == word);
    found.ok_or_else(|| format!("there are {}", Peer::ALL.map(Peer::word).join(", ")))
}

/// `rotproof volume destroy`.
#[derive(Clone, Debug, Args)]
pub struct DestroyArgs {
    /// Members of one volume
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,

    /// Yes, end it
    #[arg(long, required = true)]
    pub yes: bool,
}
