//! Transactions in redb, for `examples/crash/redb.yaml`.
//!
//! `redb_bank load COUNT` commits one after the other and marks each that was acknowledged; `redb_bank load COUNT none` does so with
//! `Durability::None`, which promises nothing. `redb_bank check` opens what a crash has left: nothing that was acknowledged may be
//! missing, and nothing half done.

use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

const NOTES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("notes");
const ACCOUNTS: TableDefinition<'_, u64, i64> = TableDefinition::new("accounts");
const ACCOUNT_COUNT: u64 = 40;

/// What transaction `number` writes: of many lengths, so that pages are split and freed.
fn note(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + (number as usize * 37) % 400)
}

fn database() -> PathBuf {
    PathBuf::from(env::var_os("ROTPROOF_TARGET").unwrap_or_else(|| ".".into())).join("bank.redb")
}

/// A mark is in the recording when this returns.
fn mark(socket: Option<&mut UnixStream>, text: &str) -> Result<(), Box<dyn Error>> {
    if let Some(socket) = socket {
        socket.write_all(format!("{text}\n").as_bytes())?;
        let mut answer = [0; 3];
        socket.read_exact(&mut answer)?;
    }
    Ok(())
}

fn load(count: u64, durability: Durability) -> Result<(), Box<dyn Error>> {
    let mut socket = env::var_os("ROTPROOF_MARK_SOCKET").map(UnixStream::connect).transpose()?;
    let database = Database::create(database())?;
    for number in 1..=count {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut notes = transaction.open_table(NOTES)?;
            notes.insert(number, note(number).as_slice())?;
            // Every tenth goes again, and its pages with it.
            if number > 10 && number.is_multiple_of(10) {
                notes.remove(number - 10)?;
            }
            let mut accounts = transaction.open_table(ACCOUNTS)?;
            for (account, amount) in [(number % ACCOUNT_COUNT, -7), ((number * 7 + 1) % ACCOUNT_COUNT, 7)] {
                let balance = accounts.get(account)?.map_or(0, |balance| balance.value());
                accounts.insert(account, balance + amount)?;
            }
        }
        transaction.commit()?;
        mark(socket.as_mut(), &format!("transaction {number} acknowledged"))?;
    }
    Ok(())
}

/// The number of the last transaction that was acknowledged before the crash; 0 if none was.
fn acknowledged() -> Result<u64, Box<dyn Error>> {
    let marks = std::fs::read_to_string(env::var("ROTPROOF_MARKS")?)?;
    let number = |line: &str| line.strip_prefix("transaction ")?.split(' ').next()?.parse().ok();
    Ok(marks.lines().filter_map(number).max().unwrap_or(0))
}

fn check() -> Result<(), Box<dyn Error>> {
    let acknowledged = acknowledged()?;
    let path = database();
    if acknowledged == 0 {
        // It may be there or not, whole or not: nobody had been told anything.
        return Ok(());
    }
    let mut database = Database::open(path)?;
    if !database.check_integrity()? {
        return Err("the database had to be repaired after it had been opened".into());
    }
    let transaction = database.begin_read()?;
    let notes = transaction.open_table(NOTES).map_err(|error| {
        format!("transaction {acknowledged} was acknowledged, and of it nothing is there: {error}")
    })?;
    let last = notes.last()?.map_or(0, |(number, _)| number.value());
    if !(acknowledged..=acknowledged + 1).contains(&last) {
        return Err(format!("transaction {acknowledged} was acknowledged, and the last is {last}").into());
    }
    for number in 1..=last {
        let is_gone = number.is_multiple_of(10) && number + 10 <= last;
        let found = notes.get(number)?;
        let is_right = found.as_ref().map(|found| found.value().to_vec()) == (!is_gone).then(|| note(number));
        if !is_right {
            return Err(format!("note {number} is not as transaction {last} had left it").into());
        }
    }
    let accounts = transaction.open_table(ACCOUNTS)?;
    let mut sum = 0;
    for entry in accounts.iter()? {
        sum += entry?.1.value();
    }
    if sum != 0 {
        return Err(format!("the balance of all accounts is {sum} and not 0").into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["load", count] => load(count.parse()?, Durability::Immediate),
        ["load", count, "none"] => load(count.parse()?, Durability::None),
        ["check"] => check(),
        _ => Err("say load COUNT, load COUNT none, or check".into()),
    }
}
