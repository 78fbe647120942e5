//! `rotproof completions` and `rotproof man`: what shells and man(1) know of the command line, from the command line as it is.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use rotproof_block::Error;

use crate::args::{Cli, CompletionShell, CompletionsArgs, ManArgs};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, output: Output) -> Exit {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), "rotproof", &mut text);
    output.result(String::from_utf8_lossy(&text).trim_end());
    Exit::Pass
}

/// Writes a page for the command and one for each verb, `rotproof-run.1` and so on.
pub fn man(args: &ManArgs) -> Result<Exit, CommandError> {
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| Error::from_io(error, format!("making {}", args.folder.display())))?;
    let mut command = Cli::command();
    command.build();
    write(&args.folder, &command, "rotproof")?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let name = format!("rotproof-{}", verb.get_name());
        // Every verb is a page, which is called as people look for it.
        write(&args.folder, &verb.clone().display_name(name.clone()), &name)?;
    }
    Ok(Exit::Pass)
}

fn write(folder: &Path, command: &clap::Command, name: &str) -> Result<(), Error> {
    let path = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    Man::new(command.clone())
        .title(name.to_uppercase())
        .manual("Rotproof")
        .source(format!("rotproof {}", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .and_then(|()| std::fs::write(&path, &text))
        .map_err(|error| Error::from_io(error, format!("writing {}", path.display())))
}
