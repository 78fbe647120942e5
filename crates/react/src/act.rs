//! One operation on one image with one thing wrong: what was answered, at once and after the next mount.

use std::collections::BTreeSet;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};

use crate::image::Image;
use crate::medium::{Harm, Medium, Touch};
use crate::operation::{Operation, before_crash, first_half, second_half};
use crate::stage::{Answer, Stage};
use crate::tree::{Change, Look, Tree};

/// What every cell of a file system begins with.
pub(crate) struct Sets {
    /// As it was when half of the files were there: what a stale block holds.
    pub(crate) early: Arc<Image>,
    pub(crate) clean: Arc<Image>,
    pub(crate) crashed: Arc<Image>,
    clean_tree: Tree,
    crashed_tree: Tree,
}

/// What an operation led to.
pub(crate) struct Acted {
    pub(crate) during: Answer,
    /// What was asked of the device meanwhile.
    pub(crate) touches: Vec<Touch>,
    pub(crate) is_stopped: bool,
    /// Whoever serves the file system has crashed.
    pub(crate) is_crashed: bool,
    pub(crate) words: Vec<String>,
    /// What the device holds right after it.
    pub(crate) image: Image,
    /// What the next mount, and looking at all files, brought.
    pub(crate) after: Look,
    pub(crate) is_stopped_after: bool,
    pub(crate) is_crashed_after: bool,
    pub(crate) words_after: Vec<String>,
}

pub(crate) fn must(look: Look, what: &str) -> Result<()> {
    match look {
        Look::Right => Ok(()),
        Look::Wrong(why) | Look::Failed(why) => {
            Err(Error::new(ErrorKind::Internal, format!("{what}, with nothing wrong: {why}")))
        }
    }
}

impl Sets {
    /// Makes a file system and its files on `medium`, and keeps what the device holds at several moments.
    pub(crate) fn make(stage: &mut dyn Stage, medium: &Medium) -> Result<Self> {
        stage.make()?;
        let mut tree = Tree::default();
        let fill = |stage: &mut dyn Stage, tree: &mut Tree, changes: Vec<Change>| -> Result<()> {
            must(stage.mount()?, "mounting it")?;
            for change in &changes {
                must(stage.change(change)?, "making files")?;
                tree.apply(change);
            }
            must(stage.sync(), "writing them")
        };
        fill(stage, &mut tree, first_half())?;
        must(stage.unmount()?, "unmounting it")?;
        let early = Arc::new(medium.image());
        fill(stage, &mut tree, second_half())?;
        must(stage.unmount()?, "unmounting it")?;
        let (clean, clean_tree) = (Arc::new(medium.image()), tree.clone());
        must(stage.mount()?, "mounting it")?;
        // An fsync first: what it leaves in a log of its own is there before the rest is committed, and once more after.
        for change in &before_crash() {
            must(stage.change(change)?, "making files")?;
            tree.apply(change);
        }
        must(stage.sync(), "writing them")?;
        for change in Operation::Fsync.before() {
            must(stage.change(&change)?, "writing a file")?;
            tree.apply(&change);
        }
        must(stage.perform(Operation::Fsync, &tree)?.look, "syncing a file")?;
        let crashed = Arc::new(medium.image());
        must(stage.unmount()?, "unmounting it")?;
        Ok(Self { early, clean, crashed, clean_tree, crashed_tree: tree })
    }

    pub(crate) fn before(&self, operation: Operation) -> &Arc<Image> {
        if operation == Operation::Recover { &self.crashed } else { &self.clean }
    }

    fn tree(&self, operation: Operation) -> &Tree {
        if operation == Operation::Recover { &self.crashed_tree } else { &self.clean_tree }
    }
}

/// Does it. Whatever comes of it, nothing is mounted in the end.
pub(crate) fn act(
    stage: &mut dyn Stage,
    medium: &Medium,
    sets: &Sets,
    (operation, harm): (Operation, Option<Harm>),
) -> Result<Acted> {
    let mut tree = sets.tree(operation).clone();
    medium.show(sets.before(operation));
    stage.forget()?;
    stage.words();
    if operation.is_on_mounted() {
        must(stage.mount()?, "mounting it")?;
        for change in operation.before() {
            must(stage.change(&change)?, "making changes")?;
            tree.apply(&change);
        }
        stage.words();
    }
    medium.arm(harm);
    let during = perform(stage, operation, &mut tree)?;
    let touches = medium.rest();
    let image = medium.image();
    let is_crashed = stage.is_crashed();
    let is_stopped = stage.is_read_only()?;
    let words = stage.words();
    // What a failed operation has left of the files that it concerns is not said anywhere.
    let is_vague = during.look != Look::Right;
    let concerned = operation.before().into_iter().chain(operation.changes());
    let paths: BTreeSet<String> = concerned
        .flat_map(|change| change.paths().into_iter().map(str::to_owned).collect::<Vec<_>>())
        .filter(|_| is_vague || is_stopped)
        .collect();
    let tree = tree.without(&paths);
    stage.unmount()?;
    stage.forget()?;
    let mut after = stage.mount()?;
    let mut is_stopped_after = false;
    let is_crashed_after;
    match after {
        Look::Right => {
            after = stage.look(&tree);
            is_stopped_after = stage.is_read_only()?;
            is_crashed_after = stage.is_crashed();
            stage.unmount()?;
        }
        Look::Wrong(why) | Look::Failed(why) => {
            is_crashed_after = stage.is_crashed();
            after = Look::Failed(format!("it cannot be mounted: {why}"));
        }
    }
    let words_after = stage.words();
    Ok(Acted {
        during,
        touches,
        is_stopped,
        is_crashed,
        words,
        image,
        after,
        is_stopped_after,
        is_crashed_after,
        words_after,
    })
}

fn perform(stage: &mut dyn Stage, operation: Operation, tree: &mut Tree) -> Result<Answer> {
    match operation {
        Operation::Mount | Operation::Recover => Ok(stage.mount()?.into()),
        Operation::Umount => Ok(stage.unmount()?.into()),
        Operation::Fsck => stage.check(),
        Operation::Write | Operation::Create | Operation::Unlink | Operation::Rename => {
            for change in operation.changes() {
                let look = stage.change(&change)?;
                if look != Look::Right {
                    return Ok(look.into());
                }
                tree.apply(&change);
            }
            Ok(stage.sync().into())
        }
        _ => stage.perform(operation, tree),
    }
}
