//! `rotproof volume`: devices that keep copies and checksums, and remember together what they are.

mod args;
mod show;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rotproof_block::leaf::{FileDevice, FileOptions};
use rotproof_block::runtime::RuntimeOptions;
use rotproof_block::{Error, ErrorKind, Runtime};
use rotproof_machine::{Claim, Filled, Use};
use rotproof_serve::{NbdServing, ServeOptions};
use rotproof_trial::file::{Overrides, TrialFile};
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::mirror::Pace;
use rotproof_volume::volume::{Candidate, Upkeep, Volume, VolumeOptions, forget, inspect, read_record};
use serde_json::json;

pub use args::VolumeArgs;
use args::{
    Checksum, CreateArgs, DestroyArgs, ReplaceArgs, ServeVolumeArgs, StatusArgs, UpkeepArgs, VolumeVerb,
};

use crate::exit::Exit;
use crate::fail::Failure;
use crate::output::Output;
use crate::units::bytes;

/// How long a member may take to answer while nobody else uses the volume.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls the verb.
pub fn volume(args: &VolumeArgs, output: Output) -> Result<Exit, Failure> {
    match &args.verb {
        VolumeVerb::Create(args) => create(args, output),
        VolumeVerb::Serve(args) => serve(args, output),
        VolumeVerb::Status(args) => status(args, output),
        VolumeVerb::Rebuild(args) => rebuild(args, output),
        VolumeVerb::Scrub(args) => scrub(args, output),
        VolumeVerb::Replace(args) => replace(args, output),
        VolumeVerb::Destroy(args) => destroy(args, output),
    }
}

fn runtime() -> Result<Runtime, Error> {
    Runtime::uring(RuntimeOptions::new(0))
}

/// The right to use these alone, for as long as it is kept.
fn claim(paths: &[PathBuf], overwrite: bool) -> Result<Vec<Claim>, Error> {
    paths.iter().map(|path| Claim::of_path(path, &Use::fill(Filled::ByClients, overwrite))).collect()
}

fn candidates(paths: &[PathBuf], read_only: bool) -> Result<Vec<Candidate>, Error> {
    paths.iter().map(|path| candidate(path, read_only)).collect()
}

fn candidate(path: &Path, read_only: bool) -> Result<Candidate, Error> {
    let options = FileOptions { direct: true, read_only, ..FileOptions::default() };
    let device = FileDevice::open(path, options)?;
    Ok(Candidate { name: path.display().to_string(), device })
}

/// A number that no other volume or member has.
fn identity() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::from_io(error, "drawing a number from /dev/urandom"))?;
    Ok(u128::from_le_bytes(bytes))
}

fn kind_of(checksum: Checksum) -> Option<ChecksumKind> {
    match checksum {
        Checksum::Crc32c => Some(ChecksumKind::Crc32c),
        Checksum::Xxh3 => Some(ChecksumKind::Xxh3),
        Checksum::Blake3 => Some(ChecksumKind::Blake3),
        Checksum::None => None,
    }
}

/// A device that is a member of a volume holds data of somebody's, whatever else there is to see.
fn refuse_members(candidates: &[Candidate], overwrite: bool, runtime: &Runtime) -> Result<(), Error> {
    if overwrite {
        return Ok(());
    }
    for candidate in candidates {
        // One of a later version is one as well.
        match runtime.block_on(read_record(candidate, runtime))? {
            Ok(None) => {}
            Ok(Some(record)) => {
                let message = format!(
                    "{} is a member of the volume {:032x}; --overwrite permits to destroy what it holds",
                    candidate.name, record.volume
                );
                return Err(Error::new(ErrorKind::Refused, message));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn create(args: &CreateArgs, output: Output) -> Result<Exit, Failure> {
    let chunk_bytes = u32::try_from(args.chunk.0)
        .ok()
        .filter(|chunk| chunk.is_power_of_two() && (4096..=64 << 20).contains(chunk))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format!("a chunk of {}; write a power of two from 4KiB to 64MiB", args.chunk),
            )
        })?;
    let options = VolumeOptions { ways: args.copies, chunk_bytes, checksum: kind_of(args.checksum) };
    let _claims = claim(&args.members, args.overwrite)?;
    let (runtime, members) = (runtime()?, candidates(&args.members, false)?);
    refuse_members(&members, args.overwrite, &runtime)?;
    runtime.block_on(Volume::create(&members, options, identity()?, &runtime))??;
    show_status(members, &runtime, args.json, output)
}

fn status(args: &StatusArgs, output: Output) -> Result<Exit, Failure> {
    show_status(candidates(&args.members, true)?, &runtime()?, args.json, output)
}

fn show_status(
    members: Vec<Candidate>,
    runtime: &Runtime,
    json: bool,
    output: Output,
) -> Result<Exit, Failure> {
    let found = runtime.block_on(inspect(members, runtime))??;
    if json {
        output.json(&show::status_json(&found));
    } else {
        output.result(show::status(&found, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

/// Opens a volume that nobody else uses, has something done to it, and closes it.
fn with_volume(
    members: &[PathBuf],
    runtime: &Runtime,
    output: Output,
    work: impl AsyncFnOnce(&Volume) -> Result<Upkeep, Error>,
) -> Result<Upkeep, Failure> {
    let _claims = claim(members, true)?;
    let members = candidates(members, false)?;
    let upkeep = runtime.block_on(async {
        // Nothing is written before it is clear that these are a volume.
        inspect(members.clone(), runtime).await?;
        let volume: Arc<Volume> = Volume::open(members, PATIENCE, runtime).await?;
        for note in volume.notes() {
            output.note(note);
        }
        let upkeep = work(&volume).await?;
        volume.close(runtime).await?;
        Ok::<_, Error>(upkeep)
    })??;
    Ok(upkeep)
}

fn pace(rate: Option<rotproof_spec::Bytes>) -> Pace {
    Pace { bytes_per_second: rate.map(|rate| rate.0) }
}

/// Tells how far it has come, each tenth.
fn progress(output: Output) -> impl FnMut(u64, u64) {
    let mut told = 0;
    move |done, total| {
        let tenth = (done * 10).checked_div(total).unwrap_or(10);
        if tenth > told && tenth < 10 {
            told = tenth;
            output.note(format_args!("  {} of {}", bytes(done), bytes(total)));
        }
    }
}

fn rebuild(args: &UpkeepArgs, output: Output) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    let upkeep = with_volume(&args.members, &runtime, output, async |volume| {
        volume.rebuild(&runtime, pace(args.rate), progress(output)).await
    })?;
    Ok(conclude(&upkeep, args.json, output))
}

fn scrub(args: &UpkeepArgs, output: Output) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    let upkeep = with_volume(&args.members, &runtime, output, async |volume| {
        volume.scrub(&runtime, pace(args.rate), progress(output)).await
    })?;
    Ok(conclude(&upkeep, args.json, output))
}

fn replace(args: &ReplaceArgs, output: Output) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    if args.members.contains(&args.with) {
        let message = format!(
            "{} is a member; give the device that takes a place by --with alone",
            args.with.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let _claim = Claim::of_path(&args.with, &Use::fill(Filled::ByClients, args.overwrite))?;
    let with = candidate(&args.with, false)?;
    refuse_members(std::slice::from_ref(&with), args.overwrite, &runtime)?;
    let id = identity()?;
    let upkeep = with_volume(&args.members, &runtime, output, async |volume| {
        volume.replace(args.member, &with, id, &runtime).await?;
        volume.rebuild(&runtime, pace(args.rate), progress(output)).await
    })?;
    Ok(conclude(&upkeep, args.json, output))
}

/// Says what came of it; what is left undone is no success.
fn conclude(upkeep: &Upkeep, json: bool, output: Output) -> Exit {
    if json {
        output.json(&show::upkeep_json(upkeep));
    } else {
        output.result(show::upkeep(upkeep, output.stdout_paint()));
    }
    if upkeep.left_bytes > 0 || upkeep.differing_bytes > 0 { Exit::VerdictFailed } else { Exit::Pass }
}

fn destroy(args: &DestroyArgs, output: Output) -> Result<Exit, Failure> {
    let _claims = claim(&args.members, true)?;
    let (runtime, members) = (runtime()?, candidates(&args.members, false)?);
    runtime
        .block_on(async {
            // Only members of one volume: anything else was named by mistake.
            let found = inspect(members.clone(), &runtime).await?;
            for member in &members {
                forget(member, &runtime).await?;
            }
            output.result(format_args!("{:032x} is no more", found.status.id));
            Ok::<_, Error>(Exit::Pass)
        })?
        .map_err(Failure::from)
}

fn serve(args: &ServeVolumeArgs, output: Output) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    let found = runtime.block_on(inspect(candidates(&args.members, true)?, &runtime))??;
    for note in &found.notes {
        output.note(note);
    }
    let present: Vec<&String> =
        found.status.members.iter().filter_map(|member| member.name.as_ref()).collect();
    let legs: Vec<_> = present.iter().map(|path| json!([{ "file": { "path": path } }])).collect();
    let checksum = found.options.checksum.map_or("none", ChecksumKind::word);
    let description = json!({
        "stack": [{ "volume": {
            "of": legs,
            "copies": found.options.ways,
            "chunk": found.options.chunk_bytes,
            "checksum": checksum,
            "patience": args.patience,
            "degraded": present.len() < found.status.members.len(),
        } }]
    });
    let file =
        TrialFile::parse_to_serve(&args.name, description.to_string().as_bytes(), &Overrides::default())
            .map_err(|mistakes| Failure::Mistakes(vec![mistakes]))?;
    let options = ServeOptions {
        name: args.name.clone(),
        exports: args.exports.clone(),
        nbd: NbdServing { listen: args.listen.clone(), tls: None },
        recover: None,
        socket: args.socket.clone(),
        ledger: None,
        // They are members of a volume, and that is what is served.
        overwrite: true,
    };
    crate::serve::serve_file(&file, options, args.json, output, None)
}
