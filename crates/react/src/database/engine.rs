//! What every database brings for its cells: how it is made, asked and looked at, by programs that are started anew each time.

use std::collections::HashSet;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_kinds::{Map, Plain, ReadOptions, detect, read};

use super::desk::{Desk, Files};
use super::mount::Folder;
use super::program::Ran;
use super::rows::Rows;
use crate::operation::Operation;
use crate::tree::Look;

/// A database with a table of [`Rows`].
pub(crate) trait Engine: Send + Sync {
    /// Makes it, and keeps what its files hold at several moments.
    fn make(&self, bench: &Bench) -> Result<Sets>;
    /// Does an operation on what holds these rows.
    fn perform(&self, bench: &Bench, operation: Operation, rows: &Rows) -> Result<Ran>;
    /// What [`Engine::perform`] must answer.
    fn expected(&self, sets: &Sets, operation: Operation, rows: &Rows) -> String;
    /// Has everything handed out that is stored.
    fn look(&self, bench: &Bench) -> Result<Ran>;
    /// What [`Engine::look`] must answer.
    fn all(&self, rows: &Rows) -> String;
    /// Whether a file is made anew with every start, so that nothing is kept of it.
    fn is_passing(&self, name: &str) -> bool;
    /// Whether a file is read through a shared mapping, for which the kernel must keep its pages.
    fn is_mapped(&self, name: &str) -> bool;
    /// Whose the files are, by user and group: who is not root needs its own.
    fn user(&self) -> (u32, u32) {
        (0, 0)
    }
    /// Pages with rows: what a misdirected write damages.
    fn victim(&self) -> Plain;
    /// What files are made of, as far as they are among those that were touched.
    fn maps(&self, files: &Files, touched: &HashSet<&str>) -> Result<Vec<(String, Map)>> {
        let known =
            files.iter().filter(|(name, bytes)| touched.contains(name.as_str()) && detect(*bytes).is_some());
        known.map(|(name, bytes)| Ok((name.clone(), read(bytes, ReadOptions::default())?))).collect()
    }
}

/// Where a program works on files, and what it must find there.
pub(crate) struct Bench {
    pub(crate) engine: &'static dyn Engine,
    pub(crate) desk: Arc<Desk>,
    pub(crate) folder: Folder,
}

impl Bench {
    /// What is there now, but for what is made anew from that.
    pub(crate) fn files(&self) -> Files {
        let mut files = self.desk.files();
        files.retain(|name, _| !self.engine.is_passing(name));
        files
    }
}

/// What every cell begins with.
pub(crate) struct Sets {
    /// When half of the rows were there: what is stale later.
    pub(crate) early: Files,
    pub(crate) clean: Files,
    pub(crate) clean_rows: Rows,
    /// What the power leaves that is cut in the middle of a transaction.
    pub(crate) crashed: Files,
    pub(crate) crashed_rows: Rows,
    /// What a question about the files themselves is answered, where no rows say that.
    pub(crate) figures: String,
}

impl Sets {
    pub(crate) fn before(&self, operation: Operation) -> &Files {
        if operation == Operation::Recover { &self.crashed } else { &self.clean }
    }

    pub(crate) fn rows(&self, operation: Operation) -> &Rows {
        if operation == Operation::Recover { &self.crashed_rows } else { &self.clean_rows }
    }
}

/// The answer of what must succeed, because nothing is wrong yet.
pub(crate) fn succeeded(ran: Ran) -> Result<String> {
    match ran.code {
        Some(0) => Ok(ran.answer),
        _ => {
            let what = format!("making a database, with nothing wrong: {}", ran.words.join("; "));
            Err(Error::new(ErrorKind::Internal, what))
        }
    }
}

/// What an operation led to.
pub(crate) struct DatabaseActed {
    pub(crate) during: Look,
    pub(crate) is_stopped: bool,
    pub(crate) is_crashed: bool,
    pub(crate) words: Vec<String>,
    pub(crate) touches: Vec<super::desk::FileTouch>,
    /// What the files hold right after it, and what those held that ended meanwhile.
    pub(crate) files: Files,
    pub(crate) after: Look,
    pub(crate) is_stopped_after: bool,
    pub(crate) is_crashed_after: bool,
    pub(crate) words_after: Vec<String>,
}
