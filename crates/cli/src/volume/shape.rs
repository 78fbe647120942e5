//! `rotproof volume add`, `remove` and `grow`.

use std::path::PathBuf;

use rotproof_block::{Error, ErrorKind, Runtime};
use rotproof_machine::Claim;
use rotproof_serve::volume::{VolumeTask, identity, member_to_fill};
use rotproof_volume::volume::{self, Candidate, Without, inspect};

use super::access::{Server, candidates, claim, on_record, perform, runtime, server_of};
use super::args::{AddArgs, GrowArgs, RemoveArgs};
use super::{absolute, conclude, rate, show, show_status, without};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::units::bytes;

/// Devices that are to become members, none of them one already.
fn to_fill(
    members: &[PathBuf],
    paths: &[PathBuf],
    overwrite: bool,
    runtime: &Runtime,
) -> Result<Vec<(Candidate, Claim)>, Error> {
    let mut devices = Vec::new();
    for path in paths {
        if members.contains(path) {
            let message = format!("{} is a member already", path.display());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        devices.push(runtime.block_on(member_to_fill(path, overwrite, runtime))??);
    }
    Ok(devices)
}

/// Shows a volume as its server sees it.
fn show_served(mut server: Server, json: bool, output: Output) -> Result<Exit, CommandError> {
    let status = server.look()?;
    match json {
        true => output.json(&status),
        false => output.result(show::status(&status, output.stdout_paint())),
    }
    Ok(Exit::Pass)
}

pub fn add(args: &AddArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(spare) = &args.spare {
        let task = VolumeTask::AddSpare { device: absolute(spare), overwrite: args.overwrite };
        let done = perform(&args.members, without(args.degraded), task, output)?;
        match args.json {
            true => output.json(&done),
            false => output.result(format_args!(
                "{} waits as spare {}; give it with the members from now on",
                spare.display(),
                done["spare"]
            )),
        }
        return Ok(Exit::Pass);
    }
    let runtime = runtime()?;
    if let Some(mut server) = server_of(&on_record(&args.members, &runtime)?) {
        let devices = args.copy.iter().map(|path| absolute(path)).collect();
        let task = VolumeTask::AddCopy { devices, overwrite: args.overwrite, rate: rate(args.rate) };
        return Ok(conclude(&server.perform(task, output)?, args.json, output));
    }
    {
        let _claims = claim(&args.members, true)?;
        let devices = to_fill(&args.members, &args.copy, args.overwrite, &runtime)?;
        let new: Vec<Candidate> = devices.iter().map(|(candidate, _)| candidate.clone()).collect();
        let members = candidates(&args.members, false)?;
        runtime.block_on(volume::add_copy(&members, &new, identity()?, &runtime))??;
    }
    // From here on it is a rebuild like any other, and goes on where it is given up.
    let members = [&args.members[..], &args.copy[..]].concat();
    let done = perform(&members, Without::Nobody, VolumeTask::Rebuild { rate: rate(args.rate) }, output)?;
    Ok(conclude(&done, args.json, output))
}

pub fn remove(args: &RemoveArgs, output: Output) -> Result<Exit, CommandError> {
    if let Some(spare) = args.spare {
        perform(&args.members, without(args.degraded), VolumeTask::RemoveSpare { spare }, output)?;
    }
    let runtime = runtime()?;
    let mut rest = args.members.clone();
    if args.spare.is_none() {
        let found = on_record(&args.members, &runtime)?;
        if let Some(mut server) = server_of(&found) {
            server.perform(VolumeTask::RemoveCopy { members: args.member.clone() }, output)?;
            return show_served(server, args.json, output);
        }
        let _claims = claim(&args.members, true)?;
        let members = candidates(&args.members, false)?;
        runtime.block_on(volume::remove_copy(&members, &args.member, &runtime))??;
        let gone = args.member.iter().filter_map(|member| found.status.members.get(*member)?.name.clone());
        let gone: Vec<String> = gone.collect();
        rest.retain(|path| !gone.contains(&path.display().to_string()));
    } else {
        // The spare is no part of it any more.
        let spares: Vec<PathBuf> = rest.clone();
        rest.clear();
        for path in spares {
            let one = candidates(std::slice::from_ref(&path), true)?.remove(0);
            if runtime.block_on(volume::read_record(&one, &runtime))??.is_some() {
                rest.push(path);
            }
        }
    }
    let found = runtime.block_on(inspect(candidates(&rest, true)?, &runtime))??;
    show_status(&found, args.json, output);
    Ok(Exit::Pass)
}

pub fn grow(args: &GrowArgs, output: Output) -> Result<Exit, CommandError> {
    let runtime = runtime()?;
    if let Some(mut server) = server_of(&on_record(&args.members, &runtime)?) {
        let with = args.with.iter().map(|path| absolute(path)).collect();
        let done = server.perform(VolumeTask::Grow { with, overwrite: args.overwrite }, output)?;
        let number = |key: &str| bytes(done[key].as_u64().unwrap_or(0));
        output.note(format_args!("grown from {} to {}", number("before_bytes"), number("after_bytes")));
        if let Some(note) = done["note"].as_str() {
            output.note(format_args!("its users could not be told: {note}"));
        }
        return show_served(server, args.json, output);
    }
    let _claims = claim(&args.members, true)?;
    let devices = to_fill(&args.members, &args.with, args.overwrite, &runtime)?;
    let new: Vec<Candidate> = devices.iter().map(|(candidate, _)| candidate.clone()).collect();
    let members = candidates(&args.members, false)?;
    let grown = runtime.block_on(volume::grow(&members, &new, identity()?, &runtime))??;
    let (before, after) = (bytes(grown.before_bytes), bytes(grown.after_bytes));
    output.note(format_args!("grown from {before} to {after}"));
    let all = [&members[..], &new[..]].concat();
    let found = runtime.block_on(inspect(all, &runtime))??;
    show_status(&found, args.json, output);
    Ok(Exit::Pass)
}
