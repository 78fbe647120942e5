//! `rotproof volume serve`.

use rotproof_serve::{NbdServing, ServeOptions};
use rotproof_trial::file::{Overrides, TrialFile};
use serde_json::json;

use super::access::{on_record, runtime};
use super::args::ServeVolumeArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Serves a volume, or a version of it, until it is interrupted.
pub fn serve(args: &ServeVolumeArgs, output: Output) -> Result<Exit, CommandError> {
    let found = on_record(&args.members, &runtime()?)?;
    for note in &found.notes {
        output.note(note);
    }
    let members = found.status.members.iter().filter_map(|member| member.name.as_ref());
    let present = members.chain(found.status.spares.iter().flatten());
    let legs: Vec<_> = present.map(|path| json!([{ "file": { "path": path } }])).collect();
    let mut description = json!({
        "stack": [{ "volume": { "of": legs, "existing": true, "patience": args.patience, "degraded": args.degraded } }]
    });
    if let Some(version) = args.version {
        description["stack"][0]["volume"]["version"] = version.into();
    }
    let file =
        TrialFile::parse_to_serve(&args.name, description.to_string().as_bytes(), &Overrides::default())
            .map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
    let options = ServeOptions {
        name: args.name.clone(),
        exports: args.exports.clone(),
        nbd: NbdServing { listen: args.listen.clone(), tls: None },
        recover: None,
        socket: args.socket.clone(),
        ledger: None,
        // They are members of a volume, and that is what is served.
        overwrite: true,
        hook: args.hook.clone(),
        rebuild_rate: args.rebuild_rate.map(|rate| rate.0),
        beside: args.beside.clone(),
    };
    crate::serve::serve_file(&file, options, args.json, output, Some(&args.metrics))
}
