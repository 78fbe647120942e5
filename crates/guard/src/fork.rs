//! A process that forks while it uses a guard: the child is another process to whom the files belong too.
//!
//! What says that a process uses a file is its seat in the [`crate::arena`], and a lock on an opening of a file; a child shares
//! the openings of its parent. So the child's own seat is taken before there is a child: at no moment does a file look as if only
//! one of them used it.

use std::fs::File;

use crate::store::Core;

/// What the child is to have; see [`crate::store::Core::before_fork`].
pub struct ForChild {
    session: Option<(File, File)>,
    seat: Option<(File, u32)>,
}

impl Core {
    /// To be called before `fork`, while no other thread of this process uses the guard. The child calls
    /// [`crate::store::Core::in_child`] with what this gives; the parent drops it.
    ///
    /// If it fails, for want of descriptors or of seats, all files are shared as if the child did not use them: it must not.
    pub fn before_fork(&self) -> ForChild {
        let seat = self.arena.another_seat(self.shared()).ok();
        ForChild { seat, session: self.another_session_lock() }
    }

    /// To be called in the child, before it uses the guard.
    pub fn in_child(&self, given: ForChild) {
        if let Some((seats, seat)) = given.seat {
            self.arena.change_seat(seats, seat);
        }
        if let Some((alive, attach)) = given.session {
            self.replace_session_locks(alive, attach);
        }
        // What was counted before is its parent's.
        self.own_counts_from_now();
    }
}
