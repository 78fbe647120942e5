//! `rotproof ctl`: changes and shows the faults of a stack that is served.

use std::path::PathBuf;
use std::time::Duration;

use rotproof_block::{Error, ErrorKind};
use rotproof_fault::RuleEntry;
use rotproof_serve::control::{Action, Client};
use rotproof_serve::sockets;
use rotproof_spec::{Bytes, nearest};
use rotproof_trial::file::rules_of_arguments;
use serde_json::{Value, json};

use crate::args::{CtlArgs, CtlCommand};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint, visible};
use crate::table::{Align, Table, clip};
use crate::units::{counted, duration};

/// Records that are asked for at once.
const PAGE: u64 = 1000;

/// Asks the stack, and prints its answer.
pub fn ctl(args: &CtlArgs, output: Output) -> Result<Exit, CommandError> {
    // Mistakes in rules come first: they can be shown at their place.
    let action = action_of(&args.command)?;
    let mut client = connect(args)?;
    let answer = match &args.command {
        CtlCommand::List { all } => list(&mut client, *all)?,
        CtlCommand::Injections { rule, last } => injections(&mut client, rule.as_deref(), *last)?,
        _ => client.ask(&action)?,
    };
    if args.json {
        output.json(&answer);
    } else {
        output.result(render(&args.command, &answer, output.stdout_paint()));
    }
    Ok(Exit::Pass)
}

fn action_of(command: &CtlCommand) -> Result<Action, CommandError> {
    Ok(match command {
        CtlCommand::Status | CtlCommand::Injections { .. } => Action::Status {},
        CtlCommand::List { all } => Action::List { from: 0, removed: *all, targets: false },
        CtlCommand::Add { rules, file } => {
            let rules = rules_of_arguments(file.as_deref(), rules)
                .map_err(|mistakes| CommandError::Mistakes(vec![mistakes]))?;
            Action::Add { rules: rules.into_iter().map(RuleEntry).collect() }
        }
        CtlCommand::Pause { rules } => Action::Pause { rules: rules.clone() },
        CtlCommand::Resume { rules } => Action::Resume { rules: rules.clone() },
        CtlCommand::Remove { rules } => Action::Remove { rules: rules.clone() },
        CtlCommand::Release { rules } => {
            Action::Release { rules: (!rules.is_empty()).then(|| rules.clone()) }
        }
    })
}

/// Connects to the stack that is meant: by its socket, by its name, or the only one.
fn connect(args: &CtlArgs) -> Result<Client, Error> {
    if let Some(socket) = &args.socket {
        return Client::connect(socket);
    }
    let found = sockets();
    if let Some(name) = &args.name {
        let Some((_, socket)) = found.iter().find(|(known, _)| known == name) else {
            let names = found.iter().map(|(known, _)| known.as_str());
            let what = match nearest(name, names) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "`rotproof serve` says what it is called".into(),
            };
            return Err(Error::new(ErrorKind::Missing, format!("nothing is served as {name}; {what}")));
        };
        return Client::connect(socket);
    }
    let mut living: Vec<(String, Client)> = found.into_iter().filter_map(living).collect();
    match living.len() {
        0 => Err(Error::new(
            ErrorKind::Missing,
            "nothing is served; begin with `rotproof serve STACK.yaml`, or give its --socket",
        )),
        1 => Ok(living.remove(0).1),
        _ => {
            let names: Vec<&str> = living.iter().map(|(name, _)| name.as_str()).collect();
            let message =
                format!("several stacks are served; say which one with --name: {}", names.join(", "));
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

/// One that answers; those that were killed do not.
fn living((name, socket): (String, PathBuf)) -> Option<(String, Client)> {
    Client::connect(&socket).ok().map(|client| (name, client))
}

/// All pages as one.
fn list(client: &mut Client, removed: bool) -> Result<Value, Error> {
    let mut rules = Vec::new();
    let mut from = 0;
    loop {
        let mut page = client.ask(&Action::List { from, removed, targets: false })?;
        if let Value::Array(some) = page["rules"].take() {
            rules.extend(some);
        }
        match page["next"].as_u64() {
            Some(next) if next > from => from = next,
            _ => return Ok(json!({ "rules": rules })),
        }
    }
}

/// The last records, of all rules or of one, the oldest first. From the end of the ledger backwards.
fn injections(client: &mut Client, rule: Option<&str>, last: usize) -> Result<Value, Error> {
    let mut ask = |from: Option<u64>, count: u64| {
        client.ask(&Action::Injections { from, count, rule: rule.map(str::to_owned) })
    };
    let total = ask(None, 0)?["total"].as_u64().unwrap_or(0);
    let (mut end, mut found) = (total, Vec::new());
    while end > 0 && found.len() < last {
        let begin = end.saturating_sub(PAGE);
        let mut page = ask(Some(begin), end - begin)?;
        if let Value::Array(injections) = page["injections"].take() {
            found.splice(0..0, injections);
        }
        end = begin;
    }
    let surplus = found.len().saturating_sub(last);
    found.drain(..surplus);
    Ok(json!({ "total": total, "injections": found }))
}

fn render(command: &CtlCommand, answer: &Value, paint: Paint) -> String {
    match command {
        CtlCommand::Status => render_status(answer, paint),
        CtlCommand::List { .. } => render_list(answer, paint),
        CtlCommand::Injections { .. } => render_injections(answer, paint),
        CtlCommand::Add { .. } => format!("added {}", names(answer)),
        CtlCommand::Pause { .. } => format!("paused {}", names(answer)),
        CtlCommand::Resume { .. } => format!("resumed {}", names(answer)),
        CtlCommand::Remove { .. } => format!("removed {}", names(answer)),
        CtlCommand::Release { .. } => {
            format!("released {}", counted(answer["released"].as_u64().unwrap_or(0), "request"))
        }
    }
}

fn names(answer: &Value) -> String {
    let names: Vec<String> = elements(&answer["names"]).iter().map(text).collect();
    names.join(", ")
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as a person writes it, without what a terminal would obey; nothing for one that is not there.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.chars().map(visible).collect(),
        other => other.to_string(),
    }
}

fn render_status(answer: &Value, paint: Paint) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let rules = &answer["rules"];
    let mut lines = vec![
        format!(
            "{}  {}, blocks of {}, process {}, up {}",
            paint.bold(text(&answer["name"])),
            Bytes(number(&answer["size_bytes"])),
            Bytes(number(&answer["block_size_bytes"])),
            number(&answer["pid"]),
            duration(Duration::from_secs(number(&answer["seconds"]))),
        ),
        String::new(),
    ];
    for export in elements(&answer["exports"]) {
        lines.push(format!("  {:10} {}", text(&export["as"]), text(&export["address"])));
    }
    lines.push(format!(
        "  {:10} {} active, {} paused, {} removed",
        "rules",
        number(&rules["active"]),
        number(&rules["paused"]),
        number(&rules["removed"])
    ));
    lines.push(format!("  {:10} {}", "injections", number(&answer["injections"])));
    lines.push(format!("  {:10} {}", "hanging", number(&answer["hanging"])));
    lines.join("\n")
}

fn render_list(answer: &Value, paint: Paint) -> String {
    let rules = elements(&answer["rules"]);
    if rules.is_empty() {
        return "No rules: the stack does nothing wrong.".into();
    }
    let hang = rules.iter().any(|rule| rule["hanging"].as_u64() > Some(0));
    let mut columns = vec![
        ("name", Align::Left),
        ("state", Align::Left),
        ("matches", Align::Right),
        ("hits", Align::Right),
    ];
    if hang {
        columns.push(("hanging", Align::Right));
    }
    columns.push(("rule", Align::Left));
    let mut table = Table::new(&columns);
    for rule in rules {
        let mut cells: Vec<String> =
            ["name", "state", "matches", "hits"].map(|key| clip(&text(&rule[key]), 24)).into();
        if hang {
            cells.push(text(&rule["hanging"]));
        }
        cells.push(text(&rule["short"]));
        table.row(cells);
    }
    table.render(paint)
}

fn render_injections(answer: &Value, paint: Paint) -> String {
    let injections = elements(&answer["injections"]);
    let total = answer["total"].as_u64().unwrap_or(0);
    if injections.is_empty() {
        return format!("No injections to show, of {total} in all.");
    }
    let mut table = Table::new(&[
        ("number", Align::Right),
        ("second", Align::Right),
        ("rule", Align::Left),
        ("operation", Align::Left),
        ("offset", Align::Right),
        ("bytes", Align::Right),
        ("effect", Align::Left),
    ]);
    for injection in injections {
        let seconds = injection["time_ns"].as_u64().unwrap_or(0) as f64 / 1e9;
        table.row([
            text(&injection["sequence"]),
            format!("{seconds:.3}"),
            clip(&text(&injection["name"]), 24),
            text(&injection["operation"]),
            text(&injection["offset"]),
            text(&injection["length"]),
            text(&injection["effect"]),
        ]);
    }
    format!("{}\n\n{} of {total}.", table.render(paint), injections.len())
}
