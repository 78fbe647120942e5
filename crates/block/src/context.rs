//! What is known of a request beyond offset and length. Source: FISPDK's context that travels down the stack.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

use crate::Time;

/// Travels with every request, copied, never shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Number of the request within its origin; unique per queue.
    pub id: u64,
    /// The request this one was made from, or 0.
    pub parent: u64,
    /// When the request entered the stack.
    pub submitted: Time,
    /// Free-form mark of the application: a file name, a tenant. Code that makes requests for others takes it from the
    /// scope it runs in ([`Tag::current`]).
    pub tag: Tag,
    /// Which queue of the origin.
    pub queue: u16,
    /// Who made it.
    pub origin: Origin,
    /// In which part of a trial.
    pub phase: Phase,
}

impl Context {
    /// The context of a request that a layer makes from this one.
    #[must_use]
    pub fn child(self, id: u64) -> Self {
        Self { id, parent: self.id, ..self }
    }
}

/// Who made a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The user of the stack.
    #[default]
    Host,
    /// A redundancy layer filling a replacement.
    Rebuild,
    /// A background check of everything.
    Scrub,
    /// Synchronisation.
    Sync,
}

/// The part of a trial in which a request was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Making and mounting the subject. Faults sleep.
    #[default]
    Setup,
    /// Filling the target before the load.
    Prefill,
    /// The load itself.
    Run,
    /// Reading everything back.
    Check,
    /// The load goes on, but nothing fails any more.
    CoolDown,
}

impl Phase {
    /// All of them, by their number.
    pub const ALL: [Phase; 5] = [Phase::Setup, Phase::Prefill, Phase::Run, Phase::Check, Phase::CoolDown];

    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Prefill => "prefill",
            Self::Run => "run",
            Self::Check => "check",
            Self::CoolDown => "cool_down",
        }
    }

    /// The phase with this word. `recovery` is what results and trial files of before 2026-11 call the cool-down.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = current_phase_word(word);
        Self::ALL.into_iter().find(|phase| phase.word() == word)
    }

    /// The phase with this number, if there is one.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The word of today for a phase: results of before 2026-11 call the cool-down `recovery`. Any other word is as it was.
pub fn current_phase_word(word: &str) -> &str {
    if word == "recovery" { Phase::CoolDown.word() } else { word }
}

/// An interned string: four bytes on the path, compared by number. Tag 0 is "no tag".
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tag(u32);

#[derive(Default)]
struct Interner {
    numbers: HashMap<&'static str, u32>,
    names: Vec<&'static str>,
}

static INTERNER: LazyLock<RwLock<Interner>> = LazyLock::new(RwLock::default);

impl Tag {
    /// No tag.
    pub const NONE: Tag = Tag(0);

    /// The tag for `name`; the same name always gives the same tag. The name is kept for the life of the process,
    /// so tags are for sets that are bounded (file names of a run), not for values.
    pub fn intern(name: &str) -> Self {
        if name.is_empty() {
            return Self::NONE;
        }
        if let Some(&number) =
            INTERNER.read().unwrap_or_else(std::sync::PoisonError::into_inner).numbers.get(name)
        {
            return Self(number);
        }
        let mut interner = INTERNER.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&number) = interner.numbers.get(name) {
            return Self(number);
        }
        let name: &'static str = Box::leak(name.into());
        interner.names.push(name);
        let number = u32::try_from(interner.names.len()).expect("fewer than 2^32 tags fit in memory");
        interner.numbers.insert(name, number);
        Self(number)
    }

    /// Its number: 0 for [`Tag::NONE`], the others from 1 in the order in which they were interned.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The name, empty for [`Tag::NONE`].
    pub fn name(self) -> &'static str {
        if self == Self::NONE {
            return "";
        }
        INTERNER.read().unwrap_or_else(std::sync::PoisonError::into_inner).names[self.0 as usize - 1]
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:?})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_tag() {
        let a = Tag::intern("focal.img");
        assert_eq!(a, Tag::intern("focal.img"));
        assert_ne!(a, Tag::intern("bionic.img"));
        assert_eq!(a.name(), "focal.img");
        assert_eq!(Tag::intern(""), Tag::NONE);
        assert_eq!(Tag::NONE.name(), "");
    }

    #[test]
    fn a_child_names_its_parent_and_keeps_the_rest() {
        let parent =
            Context { id: 7, tag: Tag::intern("x"), queue: 3, phase: Phase::Run, ..Context::default() };
        let child = parent.child(8);
        assert_eq!(
            (child.id, child.parent, child.queue, child.phase, child.tag),
            (8, 7, 3, Phase::Run, parent.tag)
        );
    }
}
