//! Cells of a file system: what they begin with, and workers that do them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rotproof_block::Result;
use rotproof_kinds::Kind;
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;

use crate::act::Sets;
use crate::campaign::{Cells, Hands};
use crate::cell::{Cell, Done};
use crate::operation::Operation;
use crate::scout::Scout;
use crate::system::System;
use crate::worker::Worker;

/// What all cells of a file system are done with.
pub(crate) struct FileSystemCells {
    run: Run,
    system: System,
    seed: u64,
    sets: Arc<Sets>,
    scouts: Arc<BTreeMap<Operation, Scout>>,
    /// On whose device they were gone through first.
    first: RefCell<Option<Worker>>,
}

impl FileSystemCells {
    /// Makes the file system, and goes through all operations with nothing wrong.
    pub(crate) fn new(
        run: &Run,
        system: System,
        operations: &[Operation],
        seed: u64,
        cancel: &Cancel,
    ) -> Result<Self> {
        let mut first = Worker::new(run, system, 0, system.device_bytes());
        let (mut stage, medium) = first.stage()?;
        let sets = Arc::new(Sets::make(&mut *stage, &medium)?);
        let mut scouts = BTreeMap::new();
        for &operation in operations {
            cancel.check()?;
            scouts.insert(operation, Scout::go(&mut *stage, &medium, &sets, operation)?);
        }
        first.keep((stage, medium));
        let first = RefCell::new(Some(first));
        Ok(Self { run: run.clone(), system, seed, sets, scouts: Arc::new(scouts), first })
    }
}

impl Cells for FileSystemCells {
    fn kinds(&self) -> Vec<(Kind, bool)> {
        self.scouts.values().flat_map(Scout::kinds).collect()
    }

    fn is_reached(&self, cell: &Cell) -> bool {
        !self.scouts[&cell.operation].aims(cell, &self.sets, self.seed).is_empty()
    }

    fn hands(&self, number: usize) -> Result<Box<dyn Hands>> {
        let first = if number == 0 { self.first.take() } else { None };
        let worker =
            first.unwrap_or_else(|| Worker::new(&self.run, self.system, number, self.system.device_bytes()));
        let (sets, scouts) = (Arc::clone(&self.sets), Arc::clone(&self.scouts));
        Ok(Box::new(FileSystemHands { worker, sets, scouts, seed: self.seed }))
    }
}

struct FileSystemHands {
    worker: Worker,
    sets: Arc<Sets>,
    scouts: Arc<BTreeMap<Operation, Scout>>,
    seed: u64,
}

impl Hands for FileSystemHands {
    fn do_cell(&mut self, cell: &Cell) -> Result<Done> {
        self.worker.do_cell(cell, &self.sets, &self.scouts[&cell.operation], self.seed)
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.worker.end()
    }
}
