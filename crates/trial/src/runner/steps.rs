//! What a trial does, step by step: the steps of each trial as a plan, and how the runner carries each of them out.
//!
//! Every step stands here once, for whatever the load is; what a load does in it is its own ([`Driven`]).

use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Phase, Result};
use rotproof_results::NO_REMOUNT;
use rotproof_subject::{Attached, Prepared};

use super::blocks::Blocks;
use super::external::Programs;
use super::files::Files;
use super::{Conductor, Loaded, crash};
use crate::file::{Stop, TrialFile};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Brings the subject up, from what is on the stack.
    Attach,
    /// Makes what the load works on, with the faults disabled.
    Make,
    /// From now on a power loss may come: everything that was made so far is durable, and the recordings say so.
    Settle,
    /// Wakes the rules.
    Arm,
    /// Runs the load through what comes before its run, where a trial is only to be looked at.
    Prefill,
    /// Runs the load through all of its phases but the check.
    Load,
    /// Takes the subject down.
    Stop(Stop),
    /// Whatever has lost its power gets it back.
    PowerOn,
    /// Opens again what the load worked on, and reads back what it wrote.
    Check,
}

/// The steps of a trial, in their order.
pub(super) fn steps_of(trial: &TrialFile) -> Vec<Step> {
    let mut steps = vec![Step::Attach, Step::Make, Step::Settle, Step::Arm, Step::Load];
    steps.extend([Step::Stop(trial.stop), Step::PowerOn, Step::Attach]);
    // A command that nobody looks after has nothing to read back.
    steps.extend(
        trial.load.command.as_ref().is_none_or(|command| command.check.is_some()).then_some(Step::Check),
    );
    steps
}

/// A load as the steps drive it: of blocks, of files, or programs.
pub(super) trait Driven {
    /// Opens or makes what it works on; programs prepare it.
    fn make(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()>;

    /// Wakes the rules, with what it knows of what they aim at.
    fn arm(&mut self, conductor: &mut Conductor<'_>) -> Result<()>;

    /// The phases of [`Step::Load`].
    fn phases(&self) -> &'static [Phase];

    /// Runs one phase to its end, and keeps what it finds. Fails with [`rotproof_block::ErrorKind::Cancelled`] where it was asked
    /// to stop.
    fn run(&mut self, phase: Phase, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()>;

    /// Lets go of everything that it has open on the subject.
    fn close(&mut self, conductor: &mut Conductor<'_>);

    /// Opens it again, once the subject is back.
    fn open(&mut self, conductor: &mut Conductor<'_>, subject: &dyn Prepared) -> Result<()>;

    /// Whether it has done something that is worth keeping, though it was interrupted.
    fn has_begun(&self) -> bool;

    /// What it found out.
    fn end(self: Box<Self>, is_interrupted: bool) -> Loaded;
}

/// The load that the trial describes.
pub(super) fn load_of(trial: &TrialFile, conductor: &Conductor<'_>) -> Result<Box<dyn Driven>> {
    Ok(match (&trial.load.command, &trial.load.personality) {
        (Some(command), _) => Box::new(Programs::new(command.clone(), conductor)?),
        (None, Some(personality)) => Box::new(Files::new(personality, conductor)?),
        (None, None) => Box::new(Blocks::new(conductor)),
    })
}

impl Conductor<'_> {
    /// Carries out the whole plan.
    pub(super) fn conduct(&mut self, subject: &mut dyn Prepared) -> Result<Loaded> {
        let mut load = load_of(self.trial, self)?;
        let steps = steps_of(self.trial).into_iter();
        let ended = steps.enumerate().try_for_each(|(number, step)| {
            let is_first = number == 0;
            self.carry_out(step, is_first, load.as_mut(), subject)
        });
        let is_interrupted = match ended {
            // What was done up to there is kept.
            Err(_) if self.options.cancel.is_cancelled() && load.has_begun() => true,
            ended => ended.map(|()| false)?,
        };
        let mut loaded = load.end(is_interrupted);
        loaded.noticed.splice(..0, std::mem::take(&mut self.noticed));
        Ok(loaded)
    }

    /// Carries out these steps with the load of the trial, which is let go of then.
    pub(super) fn carry_out_all(&mut self, steps: &[Step], subject: &mut dyn Prepared) -> Result<()> {
        let mut load = load_of(self.trial, self)?;
        let mut steps = steps.iter().enumerate();
        steps.try_for_each(|(number, &step)| self.carry_out(step, number == 0, load.as_mut(), subject))
    }

    fn carry_out(
        &mut self,
        step: Step,
        is_first: bool,
        load: &mut dyn Driven,
        subject: &mut dyn Prepared,
    ) -> Result<()> {
        match step {
            Step::Attach => match subject.attach()? {
                Attached::Up => self.tell_probes_of(subject),
                Attached::Refused(error) if is_first => return Err(error),
                // The check then finds every file lost, which is what a user of this file system would find.
                Attached::Refused(error) => self.noticed.push(format!("{NO_REMOUNT}: {error}")),
            },
            Step::Make => load.make(self, subject)?,
            Step::Settle => self.crashes_begin(subject)?,
            Step::Arm => {
                if self.trial.stop == Stop::KillWithPower {
                    self.kill_with_power(subject)?;
                }
                load.arm(self)?;
            }
            Step::Load | Step::Prefill => {
                let comes_before = |phase: &&Phase| step == Step::Load || **phase == Phase::Prefill;
                for &phase in load.phases().iter().filter(comes_before) {
                    load.run(phase, self, subject)?;
                    self.options.cancel.check()?;
                }
            }
            Step::Stop(stop) => {
                self.options.monitor.begin("remount", None);
                match stop {
                    Stop::Unmount => {
                        load.close(self);
                        // Only a fault in its own memory, which is not meant where there is a machine's, excuses a guard that had
                        // to be killed.
                        let is_hit = !self.plan.on_memory.is_empty() && subject.memory().is_none();
                        let is_excused = subject.guard().is_none() || is_hit;
                        let mut reported = subject.detach()?;
                        let hung = reported.iter().position(|error| error.kind() == ErrorKind::TimedOut);
                        if let Some(hung) = hung.filter(|_| !is_excused) {
                            return Err(reported.swap_remove(hung));
                        }
                        self.noticed.extend(reported.iter().map(|error| format!("unmount: {error}")));
                    }
                    Stop::Kill | Stop::KillWithPower => {
                        // First, so that not even what closing a file would write gets there.
                        subject.abort();
                        load.close(self);
                        subject.kill()?;
                    }
                }
            }
            Step::PowerOn => {
                self.stack.sites.restore_power();
            }
            Step::Check => {
                load.open(self, subject)?;
                load.run(Phase::Check, self, subject)?;
            }
        }
        Ok(())
    }

    /// Has the subject killed by the request with which the power goes, before anybody has an answer to that. Nothing is recorded
    /// behind it.
    fn kill_with_power(&self, subject: &dyn Prepared) -> Result<()> {
        let axe = subject.axe().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "this subject cannot be killed in the middle of a request")
        })?;
        let recorders: Vec<_> =
            self.stack.recordings().iter().map(|recording| Arc::clone(&recording.recorder)).collect();
        self.stack.sites.when_power_goes(Box::new(move || {
            axe();
            for recorder in &recorders {
                recorder.mark(recorder.time_ns(), crash::KILLED);
                // Whatever cannot be written is told at the end of the run.
                recorder.stop();
            }
        }));
        Ok(())
    }

    /// Everything that was made so far is durable, and from now on a power loss may come.
    fn crashes_begin(&self, subject: &dyn Prepared) -> Result<()> {
        if self.stack.recordings().is_empty() {
            return Ok(());
        }
        subject.sync()?;
        // Also where something in between only says that it has flushed: the disk below had long been at rest.
        for recording in self.stack.recordings().iter().filter(|_| self.trial.crash.is_some()) {
            crash::settle(recording, self.trial.runtime)?;
        }
        self.stack.mark(rotproof_crash_fs::BEGINS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Overrides;

    fn steps(yaml: &str) -> Vec<Step> {
        let yaml = format!("stack: [memory: {{ size: 512MiB }}]\n{yaml}");
        steps_of(&TrialFile::parse("t.yaml", yaml.as_bytes(), &Overrides::default()).expect("a trial"))
    }

    #[test]
    fn a_plan_ends_the_subject_as_the_trial_says_and_checks_what_can_be_checked() {
        let made = [Step::Attach, Step::Make, Step::Settle, Step::Arm, Step::Load];
        let ended = |stop| [made.as_slice(), &[Step::Stop(stop), Step::PowerOn, Step::Attach]].concat();
        let checked = |stop| [ended(stop).as_slice(), &[Step::Check]].concat();
        assert_eq!(steps(""), checked(Stop::Unmount));
        assert_eq!(steps("subject: xfs\nstop: kill"), checked(Stop::Kill));
        assert_eq!(steps("subject: ext4\nload: { personality: varmail }"), checked(Stop::Unmount));
        assert_eq!(steps("subject: ext4\nload: { command: { run: 'true' } }"), ended(Stop::Unmount));
        let with_check = "subject: ext4\nload: { command: { run: 'true', check: 'true' } }";
        assert_eq!(steps(with_check), checked(Stop::Unmount));
    }
}
