//! `rotproof volume`: devices that keep copies and checksums, and remember together what they are.

mod access;
mod args;
mod matrix;
mod serve;
mod shape;
mod show;

use std::path::{Path, PathBuf};

use rotproof_block::{Error, ErrorKind};
use rotproof_serve::volume::{VolumeTask, identity, refuse_member, status_json};
use rotproof_spec::Bytes;
use rotproof_volume::checksum::ChecksumKind;
use rotproof_volume::member::VersionsPolicy;
use rotproof_volume::volume::{Inspection, Volume, VolumeOptions, Without, forget, inspect};
use serde_json::{Value, json};

use access::{candidates, claim, on_record, perform, runtime, server_of, with_volume};
pub use args::VolumeArgs;
use args::{
    CaptureArgs, Checksum, CreateArgs, DestroyArgs, ReplaceArgs, RollbackArgs, StatusArgs, VersionsArgs,
    VolumeVerb,
};

use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Calls the verb.
pub fn volume(args: &VolumeArgs, output: Output) -> Result<Exit, CommandError> {
    match &args.verb {
        VolumeVerb::Create(args) => create(args, output),
        VolumeVerb::Serve(args) => serve::serve(args, output),
        VolumeVerb::Status(args) => status(args, output),
        VolumeVerb::Rebuild(args) => {
            let task = VolumeTask::Rebuild { rate: rate(args.rate) };
            Ok(conclude(&perform(&args.members, without(args.degraded), task, output)?, args.json, output))
        }
        VolumeVerb::Scrub(args) => {
            let task = VolumeTask::Scrub { rate: rate(args.rate) };
            Ok(conclude(&perform(&args.members, without(args.degraded), task, output)?, args.json, output))
        }
        VolumeVerb::Replace(args) => replace(args, output),
        VolumeVerb::Versions(args) => versions(args, output),
        VolumeVerb::Capture(args) => capture(args, output),
        VolumeVerb::Rollback(args) => rollback(args, output),
        VolumeVerb::Add(args) => shape::add(args, output),
        VolumeVerb::Remove(args) => shape::remove(args, output),
        VolumeVerb::Grow(args) => shape::grow(args, output),
        VolumeVerb::Matrix(args) => matrix::matrix(args, output),
        VolumeVerb::Destroy(args) => destroy(args, output),
    }
}

fn rate(rate: Option<Bytes>) -> Option<u64> {
    rate.map(|rate| rate.0)
}

/// Whom a volume may be opened without.
fn without(degraded: bool) -> Without {
    if degraded { Without::Anybody } else { Without::Nobody }
}

/// The same path for another process, which may be in another folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn kind_of(checksum: Checksum) -> Option<ChecksumKind> {
    match checksum {
        Checksum::Crc32c => Some(ChecksumKind::Crc32c),
        Checksum::Xxh3 => Some(ChecksumKind::Xxh3),
        Checksum::Blake3 => Some(ChecksumKind::Blake3),
        Checksum::None => None,
    }
}

fn create(args: &CreateArgs, output: Output) -> Result<Exit, CommandError> {
    let chunk_bytes = u32::try_from(args.chunk.0)
        .ok()
        .filter(|chunk| chunk.is_power_of_two() && (4096..=64 << 20).contains(chunk))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format!("a chunk of {}; write a power of two from 4KiB to 64MiB", args.chunk),
            )
        })?;
    let every_ms = args.every.map_or(0, |every| every.0.as_millis().try_into().unwrap_or(u64::MAX));
    if args.every.is_some() && every_ms == 0 {
        return Err(Error::new(ErrorKind::Invalid, "a version each 0 s; give a time such as 60s").into());
    }
    let policy = VersionsPolicy { reserve_percent: args.reserve, every_ms, keep: args.keep };
    let options = VolumeOptions {
        ways: args.copies,
        chunk_bytes,
        checksum: kind_of(args.checksum),
        versions: args.versions.then_some(policy),
    };
    let _claims = claim(&args.members, args.overwrite)?;
    let (runtime, members) = (runtime()?, candidates(&args.members, false)?);
    if !args.overwrite {
        for member in &members {
            runtime.block_on(refuse_member(member, &runtime))??;
        }
    }
    runtime.block_on(Volume::create(&members, options, identity()?, &runtime))??;
    show_status(&runtime.block_on(inspect(members, &runtime))??, args.json, output);
    Ok(Exit::Pass)
}

fn status(args: &StatusArgs, output: Output) -> Result<Exit, CommandError> {
    let found = on_record(&args.members, &runtime()?)?;
    match server_of(&found) {
        // Who has it open knows more than is on record.
        Some(server) if args.json => output.json(&server.status),
        Some(server) => output.result(show::status(&server.status, output.stdout_paint())),
        None => show_status(&found, args.json, output),
    }
    Ok(Exit::Pass)
}

fn show_status(found: &Inspection, json: bool, output: Output) {
    let status = status_json(&found.status, &found.options, found.is_open, &found.notes, None, None);
    if json {
        output.json(&status);
    } else {
        output.result(show::status(&status, output.stdout_paint()));
    }
}

fn replace(args: &ReplaceArgs, output: Output) -> Result<Exit, CommandError> {
    if args.members.contains(&args.with) {
        let message = format!(
            "{} is a member; give the device that takes a place by --with alone",
            args.with.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let task = VolumeTask::Replace {
        member: args.member,
        with: absolute(&args.with),
        overwrite: args.overwrite,
        rate: rate(args.rate),
    };
    // Who is replaced is given up.
    let without = if args.degraded { Without::Anybody } else { Without::Member(args.member) };
    Ok(conclude(&perform(&args.members, without, task, output)?, args.json, output))
}

fn versions(args: &VersionsArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(version) = args.beside {
        return beside(args, version, output);
    }
    if let Some(version) = args.delete {
        let done = perform(&args.members, without(args.degraded), VolumeTask::Delete { version }, output)?;
        match args.json {
            true => output.json(&done),
            false => output.result(format_args!("version {version} is no more")),
        }
        return Ok(Exit::Pass);
    }
    let runtime = runtime()?;
    let found = on_record(&args.members, &runtime)?;
    let status = match server_of(&found) {
        Some(server) => server.status,
        None => with_volume(&args.members, without(args.degraded), &runtime, output, async |volume, _| {
            let (status, report) = (volume.status(), volume.versions_report());
            Ok(status_json(&status, &volume.options(), true, &[], None, report))
        })?,
    };
    if status["versions"].is_null() {
        let context = "the volume keeps no versions; that is said when it is made: `create --versions`";
        return Err(Error::new(ErrorKind::Unsupported, context).into());
    }
    if args.json {
        output.json(&json!({ "versions": status["versions"], "room": status["room"] }));
    } else {
        output.result(show::versions(&status, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

/// Has the server of a volume offer a version too.
fn beside(args: &VersionsArgs, version: u64, output: Output) -> Result<Exit, CommandError> {
    let found = on_record(&args.members, &runtime()?)?;
    let Some(mut server) = server_of(&found) else {
        let message =
            "nobody serves the volume: say `volume serve --beside N`, or `--version N` for the version alone";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    };
    let done = server.perform(VolumeTask::Beside { version }, output)?;
    if args.json {
        output.json(&done);
        return Ok(Exit::Pass);
    }
    for export in done["exports"].as_array().into_iter().flatten() {
        let word = |key: &str| export[key].as_str().unwrap_or_default().to_owned();
        output.result(format_args!("{}  {}", word("as"), word("address")));
    }
    Ok(Exit::Pass)
}

fn capture(args: &CaptureArgs, output: Output) -> Result<Exit, CommandError> {
    let done = perform(
        &args.members,
        without(args.degraded),
        VolumeTask::Capture { name: args.name.clone() },
        output,
    )?;
    match args.json {
        true => output.json(&done),
        false => output.result(format_args!("version {} is captured", done["version"])),
    }
    Ok(Exit::Pass)
}

fn rollback(args: &RollbackArgs, output: Output) -> Result<Exit, CommandError> {
    let done =
        perform(&args.members, without(args.degraded), VolumeTask::Rollback { version: args.to }, output)?;
    match args.json {
        true => output.json(&done),
        false => output.result(format_args!(
            "the volume is as in version {}; `rollback --to {}` undoes it",
            args.to, done["undo"]
        )),
    }
    Ok(Exit::Pass)
}

/// Says what came of it; what is left undone is no success.
fn conclude(upkeep: &Value, json: bool, output: Output) -> Exit {
    if json {
        output.json(upkeep);
    } else {
        output.result(show::upkeep(upkeep, output.stdout_paint()));
    }
    let is_left = |key: &str| upkeep[key].as_u64().unwrap_or(0) > 0;
    if is_left("left_bytes") || is_left("differing_bytes") { Exit::VerdictFailed } else { Exit::Pass }
}

fn destroy(args: &DestroyArgs, output: Output) -> Result<Exit, CommandError> {
    let runtime = runtime()?;
    let found = on_record(&args.members, &runtime)?;
    if let Some(mut server) = server_of(&found) {
        server.perform(VolumeTask::Destroy {}, output)?;
        output.result(format_args!("{:032x} is no more", found.status.id));
        return Ok(Exit::Pass);
    }
    let _claims = claim(&args.members, true)?;
    let members = candidates(&args.members, false)?;
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
        .map_err(CommandError::from)
}
