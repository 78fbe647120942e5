//! The rotproof command: reads the command line, calls the verb, prints, and ends with the exit code that says the
//! same. How anything works is known below, in the `trial` crate.

#[cfg(test)]
mod architecture_tests;
mod args;
mod check;
mod clean;
mod client;
mod content;
mod course;
mod crash;
mod ctl;
mod exit;
mod fail;
mod figures;
mod fsync_failure;
mod guard;
mod hung;
mod import;
mod load;
mod machine;
mod manual;
mod map;
mod mappings;
mod mark;
mod memory;
mod metrics;
mod model;
mod output;
mod plan;
mod power_loss;
mod probe;
mod progress;
mod react;
mod report;
mod run;
mod schema;
mod serve;
mod signals;
mod snippet;
mod table;
mod trace;
mod trials;
mod units;
mod verdict;
mod version;
mod volume;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, ColorChoice, Command};
use crate::exit::Exit;
use crate::fail::{CommandError, DEFECT, error_json};
use crate::output::Output;

fn main() -> ExitCode {
    memory::prepare();
    let asked = Asked::of_command_line();
    let output = Output::new(asked.color);
    quieten_panics(output);
    signals::survive_file_size_limit();
    let exit = catch_unwind(AssertUnwindSafe(|| {
        let (cli, output) = match parse() {
            Ok((cli, notes)) => {
                let output = Output::new(cli.color);
                for note in notes {
                    output.note(verdict::wrapped(&format!("note: {note}")).join("\n"));
                }
                (cli, output)
            }
            Err(error) => return usage_error(&error, output, asked.json),
        };
        call(&cli.command, output).unwrap_or_else(|failure| {
            failure.report(output, asked.json);
            failure.exit()
        })
    }))
    .unwrap_or_else(|_| {
        // The hook has told what and where.
        if asked.json {
            output.json(&error_json("internal", "a panic; standard error tells more", Exit::Internal));
        }
        Exit::Internal
    });
    ExitCode::from(memory::exit_of(exit).code())
}

fn call(command: &Command, output: Output) -> Result<Exit, CommandError> {
    match command {
        Command::Run(args) => run::run(args, output),
        Command::Serve(args) => serve::serve(args, output),
        Command::Ctl(args) => ctl::ctl(args, output),
        Command::Report(args) => report::report(args, output),
        Command::Check(args) => check::check(args, output),
        Command::Load(args) => load::load(args, output),
        Command::Client => client::client(),
        Command::HoldMappings => mappings::hold(),
        Command::Import(args) => import::import(args, output),
        Command::Trace(args) => trace::trace(args, output),
        Command::Map(args) => map::map(args, output),
        Command::Model(args) => model::model(args, output),
        Command::Content(args) => content::content(args, output),
        Command::Schema(args) => schema::schema(args, output),
        Command::Probe(args) => probe::probe(args, output),
        Command::Mark(args) => mark::mark(args),
        Command::Crash(args) => crash::crash(args, output),
        Command::Guard(args) => guard::guard(args, output),
        Command::Fsync(args) => fsync_failure::fsync_failure(args, output),
        Command::React(args) => react::react(args, output),
        Command::Volume(args) => volume::volume(args, output),
        Command::Clean(args) => clean::clean(args, output),
        Command::Completions(args) => Ok(manual::completions(args, output)),
        Command::Man(args) => manual::man(args),
    }
}

/// What was asked, and what people should know of how it was understood.
fn parse() -> Result<(Cli, Vec<String>), clap::Error> {
    let mut command = Cli::command();
    let (words, notes) = load::translated(std::env::args_os().collect())
        .map_err(|why| command.error(clap::error::ErrorKind::InvalidValue, why))?;
    let matches = command.try_get_matches_from(words)?;
    Ok((Cli::from_arg_matches(&matches)?, notes))
}

/// What must be known even where the command line cannot be read: how to say so.
struct Asked {
    json: bool,
    color: ColorChoice,
}

impl Asked {
    fn of_command_line() -> Self {
        let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
        let follows = |value: &str| {
            words.iter().any(|word| *word == *format!("--color={value}"))
                || words.windows(2).any(|pair| pair[0] == "--color" && *pair[1] == *value)
        };
        let color = if follows("always") {
            ColorChoice::Always
        } else if follows("never") {
            ColorChoice::Never
        } else {
            ColorChoice::Auto
        };
        Self { json: words.iter().any(|word| word == "--json"), color }
    }
}

/// Help and version go to standard output, a mistake to standard error.
fn usage_error(error: &clap::Error, output: Output, json: bool) -> Exit {
    let text = error.render();
    let show = |is_colored| if is_colored { text.ansi().to_string() } else { text.to_string() };
    if !error.use_stderr() {
        output.result(show(output.stdout_paint().is_on()).trim_end());
        return Exit::Pass;
    }
    output.note(show(output.stderr_paint().is_on()).trim_end());
    if json {
        output.json(&error_json("usage", text.to_string().trim_end(), Exit::Usage));
    }
    Exit::Usage
}

/// One line instead of a page, and what to do; the page with `RUST_BACKTRACE`.
fn quieten_panics(output: Output) {
    let full = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            full(panic);
        } else {
            let message = panic.payload_as_str().unwrap_or("no message");
            let place = panic
                .location()
                .map_or(String::new(), |place| format!(" ({}:{})", place.file(), place.line()));
            output.note(format_args!("{} {message}{place}", output.stderr_paint().bad("internal error:")));
        }
        output.note(if memory::is_short() { memory::ADVICE } else { DEFECT });
    }));
}
