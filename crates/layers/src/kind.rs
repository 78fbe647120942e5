//! What every kind of device says of itself, so that a new one is its own file and a line in the list ([`DeviceSpec`]).
//!
//! [`DeviceSpec`]: crate::DeviceSpec

use std::sync::Arc;

use rotproof_block::{Device, Result};
use rotproof_spec::{Path, Problems};

use crate::open::Opening;
use crate::stack_spec::Legs;

/// What a kind of device stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Nothing: it is a leaf.
    Alone,
    /// The device before it in its list.
    OnOne,
    /// Several stacks, which its options describe; like a leaf it begins a list.
    OnSeveral,
}

/// Where a byte of a device lies on one of those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// There.
    At(u64),
    /// On another of them.
    Elsewhere,
    /// Nobody can say.
    Anywhere,
}

/// A kind of device: the type of its options, with all that a description needs to know of it.
pub trait Kind: Sized {
    /// The word it is written with.
    const WORD: &'static str;
    /// How it is written with what it needs.
    const EXAMPLE: &'static str;
    /// What it is, in a few words.
    const SUMMARY: &'static str;
    /// What it stands on.
    const STANDS: Stands;
    /// Why a list may have only one of it, if so.
    const ONCE: Option<&'static str> = None;
    /// Whether several blocks of it may lie in one block below.
    const SHARES_BLOCKS: bool = false;

    /// Whether it keeps everything more than once, so that nobody may see what becomes of one copy.
    const KEEPS_COPIES: bool = false;

    /// Whether it keeps in memory what a loss of power takes, and would not notice one.
    const OUTLIVES_POWER: bool = false;

    /// What the word alone means; `None` if it needs options.
    fn bare() -> Option<Self> {
        None
    }

    /// Whether a word alone says it all, so that it is written so.
    fn is_bare(&self) -> bool {
        false
    }

    /// The stacks that it stands on, of a kind that stands on several.
    fn legs(&self) -> Option<&Legs> {
        None
    }

    /// Its size in bytes over devices of these sizes, as far as that is known.
    fn size(&self, below: &[Option<u64>]) -> Option<u64> {
        below.first().copied().flatten()
    }

    /// Where on it the byte at `offset` of the device number `leg` below is to be seen, over devices of these sizes; `None`
    /// if that is nowhere for good.
    fn up(&self, leg: usize, offset: u64, below: &[u64]) -> Option<u64> {
        let _ = (leg, below);
        Some(offset)
    }

    /// Where on the device number `leg` below the byte at `offset` of it lies, over devices of these sizes.
    fn down(&self, leg: usize, offset: u64, below: &[u64]) -> Below {
        let _ = (leg, below);
        if self.keeps_places() && Self::STANDS == Stands::OnOne { Below::At(offset) } else { Below::Anywhere }
    }

    /// Whether [`Kind::up`] knows of every byte.
    fn keeps_places(&self) -> bool {
        true
    }

    /// Reports what makes no sense in its options, over devices of these sizes. `path` is where the options stand.
    fn validate(&self, below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        let _ = (below, path, problems);
    }

    /// What it is, in a line.
    fn describe(&self) -> String;

    /// Opens it over `below`, which it owns from then on.
    fn open(&self, below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>>;
}
