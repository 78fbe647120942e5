//! What passes by the engine while a rule waits to choose from it, and the choice. Nothing is looked at once every rule
//! knows what it aims at.

use rotproof_block::{ContentHash, Operation};

use crate::content_counts::ContentCounts;
use crate::geometry::Header;
use crate::seen::{By, SeenBlock};
use crate::zeros::zeros_hash;

/// What has been written.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    contents: ContentCounts,
    last_place: Option<u64>,
    last_content: Option<ContentHash>,
}

/// What of it some rule waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Which block was written last.
    pub(crate) places: bool,
    /// What the block written last holds.
    pub(crate) contents: bool,
    /// How often each content was written.
    pub(crate) counts: bool,
}

impl Wanted {
    /// What rules want that wait for these.
    pub(crate) fn of(waiting: impl IntoIterator<Item = SeenBlock>) -> Self {
        let mut wanted = Self::default();
        for block in waiting {
            match block {
                SeenBlock::MostDuplicated { .. } | SeenBlock::Unique { .. } => wanted.counts = true,
                SeenBlock::LastWritten { by: By::Place } => wanted.places = true,
                SeenBlock::LastWritten { by: By::Content } => wanted.contents = true,
                SeenBlock::NextWritten { .. } => {}
            }
        }
        wanted
    }
}

/// What a rule has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Place(u64),
    Content(ContentHash),
}

impl Statistics {
    /// Begins anew with what nobody wanted, or nobody wants any more, but remembers what rules have chosen: so that what
    /// is counted is counted from when the first rule wanted it.
    pub(crate) fn restart(&mut self, old: Wanted, new: Wanted) {
        if old.places != new.places {
            self.last_place = None;
        }
        if old.contents != new.contents {
            self.last_content = None;
        }
        if old.counts != new.counts {
            self.contents.restart();
        }
    }

    /// What a rule chooses when `header` comes, which is not counted yet; `None` if there is nothing to choose from.
    pub(crate) fn choose(&mut self, block: SeenBlock, header: &Header, payload: &[u8]) -> Option<Choice> {
        let choice = match block {
            SeenBlock::MostDuplicated { apart } => Choice::Content(self.contents.most_duplicated(apart)?),
            SeenBlock::Unique { apart } => Choice::Content(self.contents.unique(apart)?),
            SeenBlock::LastWritten { by: By::Place } => Choice::Place(self.last_place?),
            SeenBlock::LastWritten { by: By::Content } => Choice::Content(self.last_content?),
            SeenBlock::NextWritten { .. } if !is_write(header) => return None,
            SeenBlock::NextWritten { by: By::Place } => Choice::Place(header.blocks().next()?),
            SeenBlock::NextWritten { by: By::Content } => {
                Choice::Content(content_of(header, payload, header.full_blocks().next()?))
            }
        };
        if let Choice::Content(content) = choice {
            self.contents.choose(content);
        }
        Some(choice)
    }

    /// Counts a request.
    pub(crate) fn add(&mut self, header: &Header, payload: &[u8], wanted: Wanted) {
        if !is_write(header) {
            return;
        }
        let blocks = header.full_blocks();
        if wanted.places {
            self.last_place = header.blocks().last().or(self.last_place);
        }
        if wanted.contents
            && let Some(last) = blocks.clone().last()
        {
            self.last_content = Some(content_of(header, payload, last));
        }
        if wanted.counts && header.operation == Operation::WriteZeroes {
            self.contents.add(zeros_hash(), blocks.end - blocks.start);
        } else if wanted.counts {
            for block in blocks {
                self.contents.add(content_of(header, payload, block), 1);
            }
        }
    }
}

fn is_write(header: &Header) -> bool {
    matches!(header.operation, Operation::Write { .. } | Operation::WriteZeroes)
}

/// The content of a whole block of a write.
fn content_of(header: &Header, payload: &[u8], block: u64) -> ContentHash {
    if header.operation == Operation::WriteZeroes {
        return zeros_hash();
    }
    ContentHash::of(&payload[header.in_buffer(block)])
}
