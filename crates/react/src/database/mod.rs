//! Databases: how SQLite, LMDB and PostgreSQL react when a page, a record of a journal or a frame of a log is bad.
//!
//! [`desk`] are files in memory with one thing wrong, [`mod@mount`] shows them to programs, which are not changed and are
//! started anew for every question; [`rows`] is what must be stored. What a database brings is an [`engine::Engine`]: [`sqlite`], [`lmdb`], [`postgres`].
//! [`scout`] finds what an operation meets, [`mod@act`] does a cell.

mod act;
mod desk;
mod engine;
mod lmdb;
mod mount;
mod postgres;
mod program;
mod rows;
mod scout;
mod sqlite;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use rotproof_block::Result;
use rotproof_kinds::Kind;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;

use crate::campaign::{Cells, Hands};
use crate::cell::{Cell, Done, Outcome};
use crate::judge::{is_met, judge};
use crate::operation::Operation;
use crate::system::Database;

use act::{Ended, act};
use desk::Desk;
use engine::{Bench, Engine, Sets};
use mount::Folder;
use scout::Scout;

/// Who answers, such as `SQLite 3.40.1`.
pub(crate) fn version(kind: Database) -> Result<String> {
    match kind {
        Database::Sqlite | Database::SqliteWal => sqlite::version(),
        Database::Lmdb => lmdb::version(),
        Database::Postgres | Database::PostgresChecksums => postgres::version(),
    }
}

fn engine(kind: Database) -> &'static dyn Engine {
    match kind {
        Database::Sqlite => &sqlite::Sqlite { is_wal: false },
        Database::SqliteWal => &sqlite::Sqlite { is_wal: true },
        Database::Lmdb => &lmdb::Lmdb,
        Database::Postgres => &postgres::Postgres { has_checksums: false },
        Database::PostgresChecksums => &postgres::Postgres { has_checksums: true },
    }
}

/// What all cells of a database are done with.
pub(crate) struct DatabaseCells {
    run: Run,
    engine: &'static dyn Engine,
    seed: u64,
    sets: Sets,
    scouts: BTreeMap<Operation, Scout>,
}

impl DatabaseCells {
    /// Makes the database, and goes through all operations with nothing wrong.
    pub(crate) fn new(
        run: &Run,
        kind: Database,
        operations: &[Operation],
        seed: u64,
        cancel: &Cancel,
    ) -> Result<Arc<Self>> {
        let engine = engine(kind);
        let bench = bench(run, engine, "react-files-first")?;
        let sets = engine.make(&bench)?;
        let mut scouts = BTreeMap::new();
        for &operation in operations {
            cancel.check()?;
            scouts.insert(operation, Scout::go(&bench, &sets, operation)?);
        }
        ended(bench)?;
        Ok(Arc::new(Self { run: run.clone(), engine, seed, sets, scouts }))
    }
}

fn bench(run: &Run, engine: &'static dyn Engine, name: &str) -> Result<Bench> {
    let desk = Arc::new(Desk::default());
    let folder = Folder::new(run, name, &desk, engine)?;
    Ok(Bench { engine, desk, folder })
}

fn ended(bench: Bench) -> Result<()> {
    match bench.folder.end().into_iter().next() {
        Some(error) => Err(error.while_doing("taking the files of the cells away")),
        None => Ok(()),
    }
}

impl Cells for Arc<DatabaseCells> {
    fn kinds(&self) -> Vec<(Kind, bool)> {
        self.scouts.values().flat_map(Scout::kinds).collect()
    }

    fn is_reached(&self, cell: &Cell) -> bool {
        !self.scouts[&cell.operation].aims(cell, &self.sets, self.seed).is_empty()
    }

    fn hands(&self, number: usize) -> Result<Box<dyn Hands>> {
        let bench = bench(&self.run, self.engine, &format!("react-files-{number}"))?;
        Ok(Box::new(DatabaseHands { cells: Arc::clone(self), bench }))
    }
}

/// A folder of its own in which cells are done.
struct DatabaseHands {
    cells: Arc<DatabaseCells>,
    bench: Bench,
}

impl Hands for DatabaseHands {
    fn do_cell(&mut self, cell: &Cell) -> Result<Done> {
        let began = Instant::now();
        let DatabaseCells { sets, scouts, seed, .. } = &*self.cells;
        let scout = &scouts[&cell.operation];
        let mut done =
            Done { cell: cell.clone(), harm: String::new(), outcome: Outcome::NotReached, milliseconds: 0 };
        for aim in scout.aims(cell, sets, *seed) {
            match act(&self.bench, sets, cell.operation, Some(aim.harm)) {
                Err(error) => done.outcome = Outcome::Unknown(error.to_string()),
                Ok(Ended::Hung(why)) => done.outcome = Outcome::Hung(why),
                Ok(Ended::Acted(acted)) => {
                    let [acted, usual] = scout.compared(cell.effect, &acted);
                    let targets = HashSet::from([aim.target as u64]);
                    if !is_met(cell.effect, &acted.touches, &targets) {
                        continue;
                    }
                    let about = (cell.effect, cell.operation);
                    done.outcome = Outcome::Reached(judge(about, &acted, &usual, &targets, &HashSet::new()));
                }
            }
            done.harm = aim.words;
            break;
        }
        done.milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(done)
    }

    fn end(self: Box<Self>) -> Result<()> {
        ended(self.bench)
    }
}
