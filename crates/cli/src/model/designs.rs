//! Which designs on which machine: words or path files.

use std::path::Path as FilePath;

use rotproof_block::{Error, ErrorKind};
use rotproof_design::path_file;
use rotproof_model::systems::{self, Configuration};
use rotproof_model::{Checksum, Goal, Path};
use rotproof_spec::nearest;
use serde_json::{Value, json};

use crate::fail::CommandError;

use super::args::MachineArgs;
use super::text;

/// Error rates and what to call them.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its rates.
    pub rates: Configuration,
}

/// The machine of a command; the consumer's where none is named.
pub fn machine(args: &MachineArgs) -> Result<Machine, CommandError> {
    let word = args.machine.as_deref().unwrap_or("consumer");
    let mut rates = Configuration::from_word(word).ok_or_else(|| {
        let known = Configuration::WORDS;
        let meant = nearest(word, known).map(|word| format!("; did you mean {word}?")).unwrap_or_default();
        Error::new(
            ErrorKind::Invalid,
            format!("there is no machine `{word}`{meant}; one of {}", known.join(", ")),
        )
    })?;
    let mut name = word.to_owned();
    if args.memory.is_some() || args.disk.is_some() {
        name = if args.machine.is_some() { format!("{word}, changed") } else { "this machine".to_owned() };
    }
    rates.memory = args.memory.map_or(rates.memory, |rate| rate.0);
    rates.disk = args.disk.map_or(rates.disk, |rate| rate.0);
    Ok(Machine { name, rates })
}

/// All known machines, or the one that is named.
pub fn machines(args: &MachineArgs) -> Result<Vec<Machine>, CommandError> {
    if args.machine.is_some() || args.memory.is_some() || args.disk.is_some() {
        return Ok(vec![machine(args)?]);
    }
    let of_word =
        |word: &str| Some(Machine { name: word.to_owned(), rates: Configuration::from_word(word)? });
    Ok(Configuration::WORDS.into_iter().filter_map(of_word).collect())
}

/// The designs with these names; `default` where there are none. Mistakes of all path files are told at once.
pub fn open(names: &[String], default: &[&str], goal: Goal) -> Result<Vec<Path>, CommandError> {
    let default: Vec<String> = default.iter().map(|&word| word.to_owned()).collect();
    let names = if names.is_empty() { &default } else { names };
    let (mut designs, mut mistakes) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(design) = of_word(name, goal) {
            designs.push(design);
        } else if looks_like_a_file(name) {
            // Rates of the machine are put in later, so that one design serves several machines.
            let consumer = Configuration::from_word("consumer");
            let consumer =
                consumer.ok_or_else(|| Error::new(ErrorKind::Internal, "the consumer's machine"))?;
            match path_file::open(FilePath::new(name), consumer) {
                Ok(design) => designs.push(design),
                Err(diagnostics) => mistakes.push(diagnostics),
            }
        } else {
            return Err(unknown(name));
        }
    }
    if mistakes.is_empty() { Ok(designs) } else { Err(CommandError::Mistakes(mistakes)) }
}

fn of_word(word: &str, goal: Goal) -> Option<Path> {
    systems::from_word(word, goal).or_else(|| {
        let checksum = Checksum::from_word(word.strip_prefix("e2e-")?)?;
        Some(systems::e2e(checksum))
    })
}

fn looks_like_a_file(name: &str) -> bool {
    name.contains('/') || FilePath::new(name).extension().is_some()
}

fn unknown(name: &str) -> CommandError {
    let known: Vec<String> = systems::WORDS
        .iter()
        .map(|&word| word.to_owned())
        .chain(Checksum::WORDS.iter().skip(2).map(|word| format!("e2e-{word}")))
        .collect();
    let words = known.iter().map(String::as_str);
    let meant = nearest(name, words).map(|word| format!("; did you mean {word}?")).unwrap_or_default();
    let known = known.join(", ");
    Error::new(
        ErrorKind::Invalid,
        format!("there is no system `{name}`{meant} (known: {known}; or a path file such as examples/paths/zfs.yaml)"),
    )
    .into()
}

/// A machine for programs.
pub fn machine_json(machine: &Machine) -> Value {
    json!({
        "name": machine.name,
        "memory_errors_per_second_and_bit": text::uncertain_json(machine.rates.memory),
        "memory_index": rotproof_model::index_of(machine.rates.memory.value()),
        "disk_errors_per_bit": text::uncertain_json(machine.rates.disk),
        "disk_index": rotproof_model::index_of(machine.rates.disk.value()),
    })
}
