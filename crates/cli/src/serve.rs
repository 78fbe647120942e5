//! `rotproof serve`: offers a stack to other programs until it is interrupted.

use rotproof_block::{Error, ErrorKind};
use rotproof_serve::{ExportKind, NbdServing, Ready, ServeOptions, Served, TlsServing, name_of};
use rotproof_spec::Bytes;
use rotproof_trial::file::{Overrides, TrialFile};
use serde_json::{Value, json};

use crate::args::ServeArgs;
use crate::clean::tell_stuck;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::metrics::MetricsArgs;
use crate::output::{Output, Paint};
use crate::signals::cancel_on_signals;
use crate::table::clip;
use crate::units::counted;

/// Serves, says where, and takes everything away again when a signal comes.
pub fn serve(args: &ServeArgs, output: Output) -> Result<Exit, CommandError> {
    let overrides = Overrides { seed: args.seed, faults: args.faults.clone(), values: args.values.clone() };
    let file = TrialFile::open_to_serve(&args.file, &overrides)
        .map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
    let options = ServeOptions {
        name: args.name.clone().unwrap_or_else(|| name_of(&file.name)),
        exports: without_repeats(&args.exports),
        nbd: nbd_serving(args)?,
        recover: args.recover,
        socket: args.socket.clone(),
        ledger: args.ledger.clone(),
        overwrite: args.overwrite,
        hook: None,
        rebuild_rate: None,
        beside: Vec::new(),
    };
    serve_file(&file, options, args.json, output, Some(&args.metrics))
}

/// Serves what a file describes.
pub fn serve_file(
    file: &TrialFile,
    options: ServeOptions,
    json: bool,
    output: Output,
    metrics: Option<&MetricsArgs>,
) -> Result<Exit, CommandError> {
    let cancel = cancel_on_signals()?;
    tell_stuck(output);
    let mut served = Served::begin(file, &options)?;
    let figures = served.figures();
    let _metrics = metrics.map(|metrics| metrics.serve(output, move || figures.page())).transpose()?;
    for address in options.nbd.open_to_strangers() {
        let name = &options.name;
        output.note(format_args!(
            "{name}: {} whoever reaches {address} can read and write it; --tls DIR --tls-verify-clients keeps strangers out",
            output.stderr_paint().notable("note:")
        ));
    }
    if json {
        output.result(ready_json(served.ready())?);
    } else {
        output.result(render(served.ready(), output.stdout_paint()));
    }
    let paint = output.stderr_paint();
    let name = options.name;
    let outcome = served.until_cancelled(&cancel, |text| {
        output.note(format_args!("{name}: {} {text}", paint.notable("note:")));
    });
    let is_over = served.is_over();
    let failures = served.end();
    if let Some(error) = joined(&failures) {
        return Err(error.into());
    }
    outcome?;
    let Some(signal) = cancel.signal() else {
        if is_over {
            output
                .note(format_args!("{name}: the volume was destroyed; everything it had created is removed"));
            return Ok(Exit::Pass);
        }
        return Err(Error::new(ErrorKind::Internal, "it ended though nobody had asked").into());
    };
    output.note(format_args!("{name}: interrupted; everything it had created is removed"));
    Ok(Exit::of_signal(signal))
}

fn nbd_serving(args: &ServeArgs) -> Result<NbdServing, CommandError> {
    if !args.exports.contains(&ExportKind::Nbd) && (args.tls.is_some() || !args.listen.is_empty()) {
        let message =
            "`--listen` and `--tls` are about NBD, which the stack is not offered by; add `--as nbd`";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    if !args.exports.contains(&ExportKind::Ublk) && args.recover.is_some() {
        let message =
            "`--recover` is about a ublk device, as which the stack is not offered; add `--as ublk`";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let tls = args.tls.as_ref();
    Ok(NbdServing {
        listen: args.listen.clone(),
        tls: tls.map(|folder| TlsServing {
            // It is printed for clients, who may be in another folder.
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
            verify_clients: args.tls_verify_clients,
        }),
    })
}

fn without_repeats(kinds: &[ExportKind]) -> Vec<ExportKind> {
    let mut seen = Vec::new();
    for &kind in kinds {
        if !seen.contains(&kind) {
            seen.push(kind);
        }
    }
    seen
}

/// One line, so that a script can wait for it.
fn ready_json(ready: &Ready) -> Result<Value, CommandError> {
    let mut object = serde_json::to_value(ready)
        .map_err(|error| Error::new(ErrorKind::Internal, "writing what is ready as JSON").caused_by(error))?;
    object["ready"] = json!(true);
    Ok(object)
}

fn render(ready: &Ready, paint: Paint) -> String {
    let mut lines = vec![
        format!(
            "{}  {}, blocks of {}, {}",
            paint.bold(clip(&ready.name, 48)),
            Bytes(ready.size_bytes),
            Bytes(ready.block_size_bytes.into()),
            counted(ready.rules as u64, "rule")
        ),
        String::new(),
    ];
    // Addresses and commands are never cut: they are there to be pasted.
    for export in &ready.exports {
        let of = export.device.as_ref().map_or(String::new(), |device| format!("{device}: "));
        lines.push(format!("  {:8} {of}{}", export.kind.word(), export.address));
        lines.extend(export.commands.iter().map(|command| format!("           {}", paint.dim(command))));
    }
    lines.push(format!("  {:8} rotproof ctl --name {} list", "control", ready.name));
    lines.extend([String::new(), paint.dim("Ctrl-C ends it and takes all of this away.").to_string()]);
    lines.join("\n")
}

/// All that went wrong at the end, as one error.
fn joined(failures: &[Error]) -> Option<Error> {
    let kind = failures.first()?.kind();
    let list: Vec<String> = failures.iter().map(Error::to_string).collect();
    let message =
        format!("not everything could be removed: {}; `rotproof clean` tries again", list.join("; "));
    Some(Error::new(kind, message))
}
