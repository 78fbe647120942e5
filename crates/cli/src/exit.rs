//! The exit codes. The table for users is in `docs/exit-codes.md`.

use rotproof_block::ErrorKind;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every expectation of every trial holds, or what was asked for is done.
    Pass = 0,
    /// At least one expectation does not hold.
    VerdictFailed = 1,
    /// The command line or a trial file makes no sense, or would destroy something that was not named.
    Usage = 2,
    /// This machine lacks something, or has lost it.
    Machine = 3,
    /// A defect of Rotproof.
    Internal = 4,
    /// Ended by SIGINT.
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What an error that ends the command means for the exit code.
    ///
    /// What the user can mend in the command or the trial file is 2; what must be mended on the machine is 3, and
    /// so is everything that the operating system or a real disk refuses to do. The rest can only be ours: requests
    /// out of range or misaligned are refused by the checks before a run.
    pub fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::Refused => Exit::Usage,
            ErrorKind::Missing
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::Unsupported
            | ErrorKind::Gone
            | ErrorKind::TimedOut
            | ErrorKind::Medium
            | ErrorKind::Os(_) => Exit::Machine,
            ErrorKind::Cancelled => Exit::Interrupted,
            _ => Exit::Internal,
        }
    }

    /// How a command ends that a signal has stopped.
    pub fn of_signal(signal: i32) -> Self {
        if signal == signal_hook::consts::SIGTERM { Exit::Terminated } else { Exit::Interrupted }
    }

    /// The exit of several trials: the gravest of theirs, which is the highest code.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.code() > self.code() { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_documentation() {
        let documentation = include_str!("../../../docs/exit-codes.md");
        for exit in [
            Exit::Pass,
            Exit::VerdictFailed,
            Exit::Usage,
            Exit::Machine,
            Exit::Internal,
            Exit::Interrupted,
            Exit::Terminated,
        ] {
            assert!(documentation.contains(&format!("\n| {} |", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn what_the_user_can_mend_is_2_what_the_machine_lacks_is_3_and_the_rest_is_ours() {
        assert_eq!(Exit::of_error(ErrorKind::Invalid), Exit::Usage);
        assert_eq!(Exit::of_error(ErrorKind::Refused), Exit::Usage);
        assert_eq!(Exit::of_error(ErrorKind::Missing), Exit::Machine);
        assert_eq!(Exit::of_error(ErrorKind::NoSpace), Exit::Machine);
        assert_eq!(Exit::of_error(ErrorKind::Stalled), Exit::Internal);
        assert_eq!(Exit::of_error(ErrorKind::Internal), Exit::Internal);
    }

    #[test]
    fn the_gravest_trial_decides() {
        assert_eq!(Exit::Pass.and(Exit::VerdictFailed), Exit::VerdictFailed);
        assert_eq!(Exit::Machine.and(Exit::VerdictFailed), Exit::Machine);
        assert_eq!(Exit::Terminated.and(Exit::Internal), Exit::Terminated);
        assert_eq!(Exit::of_signal(15), Exit::Terminated);
        assert_eq!(Exit::of_signal(2), Exit::Interrupted);
    }
}
