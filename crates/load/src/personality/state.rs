//! What is known of one file that is written from front to back: whether it is there, in which version, how long.
//!
//! What was acknowledged must be there. After an error nobody knows how far an operation came, so what it was about
//! becomes doubtful: then a file may be there or not, may end anywhere between what is certain and what was tried, and
//! may hold zeros where nothing is certain. After a failed fsync that is everything since the last one that succeeded,
//! because the kernel may have thrown it away.

/// Whether a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    No,
    Yes,
    Doubtful,
}

/// What is known of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) existence: Existence,
    /// Counted from one; zero before the file was first made.
    pub(super) version: u32,
    /// Bytes from the front that hold what the version says.
    pub(super) sure: u64,
    /// The file ends not before and not behind.
    pub(super) size_min: u64,
    pub(super) size_max: u64,
    /// What was certain when an fsync last succeeded; none since the file was made.
    synced: Option<u64>,
}

impl FileState {
    pub(super) const MISSING: Self =
        Self { existence: Existence::No, version: 0, sure: 0, size_min: 0, size_max: 0, synced: None };

    /// Nothing is known.
    pub(super) const DOUBTFUL: Self = Self { existence: Existence::Doubtful, ..Self::MISSING };

    /// The size, if there is no doubt about it.
    pub(super) fn size(&self) -> Option<u64> {
        (self.size_min == self.size_max).then_some(self.size_max)
    }

    /// Made anew, or tried to be.
    pub(super) fn created(&mut self, has_succeeded: bool) {
        let was = self.existence;
        *self = Self { version: self.version + 1, ..Self::MISSING };
        self.existence = match (has_succeeded, was) {
            (true, _) => Existence::Yes,
            (false, _) => Existence::Doubtful,
        };
    }

    pub(super) fn deleted(&mut self, has_succeeded: bool) {
        self.existence = if has_succeeded { Existence::No } else { Existence::Doubtful };
        if has_succeeded {
            *self = Self { version: self.version, ..Self::MISSING };
        }
    }

    /// `len` bytes have been written from `offset` on, which is where the file ended.
    pub(super) fn appended(&mut self, offset: u64, len: u64, has_succeeded: bool) {
        let end = offset + len;
        if !has_succeeded {
            self.size_max = self.size_max.max(end);
            return;
        }
        if self.sure == offset {
            self.sure = end;
        }
        (self.size_min, self.size_max) = (end, end);
    }

    pub(super) fn synced(&mut self, has_succeeded: bool) {
        if has_succeeded {
            self.synced = Some(self.sure);
            return;
        }
        match self.synced {
            Some(synced) => self.sure = self.sure.min(synced),
            None => (self.sure, self.existence) = (0, Existence::Doubtful),
        }
        self.size_min = self.size_min.min(self.sure);
    }

    /// Somebody has looked: the file is there or not, which ends a doubt. Whether that is right.
    pub(super) fn seen(&mut self, is_there: bool) -> bool {
        match (self.existence, is_there) {
            (Existence::Yes, true) | (Existence::No, false) => true,
            (Existence::Doubtful, _) => {
                self.existence = if is_there { Existence::Yes } else { Existence::No };
                if !is_there {
                    *self = Self { version: self.version, ..Self::MISSING };
                }
                true
            }
            // What is lost may come back, and what is back may go.
            (Existence::Yes, false) | (Existence::No, true) => {
                self.existence = Existence::Doubtful;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(bytes: u64) -> FileState {
        let mut state = FileState::MISSING;
        state.created(true);
        state.appended(0, bytes, true);
        state
    }

    #[test]
    fn what_succeeds_is_certain() {
        let mut state = made(100);
        state.appended(100, 50, true);
        assert_eq!(
            (state.existence, state.version, state.sure, state.size()),
            (Existence::Yes, 1, 150, Some(150))
        );
        state.deleted(true);
        assert!(state.seen(false) && state.existence == Existence::No);
        state.created(true);
        assert_eq!((state.version, state.size()), (2, Some(0)));
    }

    #[test]
    fn a_failed_append_leaves_its_bytes_in_doubt() {
        let mut state = made(100);
        state.appended(100, 50, false);
        assert_eq!((state.sure, state.size_min, state.size_max, state.size()), (100, 100, 150, None));
        // The file is seen to end at 130, and is appended to there.
        state.appended(130, 10, true);
        assert_eq!((state.sure, state.size()), (100, Some(140)));
    }

    #[test]
    fn a_failed_fsync_leaves_everything_since_the_last_one_in_doubt() {
        let mut state = made(100);
        state.synced(true);
        state.appended(100, 50, true);
        state.synced(false);
        assert_eq!(
            (state.existence, state.sure, state.size_min, state.size_max),
            (Existence::Yes, 100, 100, 150)
        );
        let mut state = made(100);
        state.synced(false);
        assert_eq!((state.existence, state.sure, state.size_min), (Existence::Doubtful, 0, 0));
    }

    #[test]
    fn a_look_ends_a_doubt_and_contradicts_what_is_certain() {
        let mut state = made(100);
        state.deleted(false);
        assert!(state.seen(true) && state.existence == Existence::Yes && state.sure == 100);
        state.deleted(false);
        assert!(state.seen(false) && state.existence == Existence::No);
        assert!(!state.seen(true), "it was deleted");
        assert!(!made(1).seen(false), "it was made");
    }
}
