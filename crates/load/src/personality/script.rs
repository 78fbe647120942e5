//! What the threads of varmail, fileserver and webserver do: the operations of one loop after the other.
//!
//! A script goes by what the files would be if nothing ever failed, so it is a function of the seed, the thread and the
//! number of the loop, whatever becomes of its operations.

use super::draws::Draws;
use super::plan::FilePlan;
use super::spec::PersonalityKind;

/// Streams of [`rotproof_block::hash::mix`] that belong to the threads' draws.
const APPENDS: u64 = 0xa99e_4d5e;
/// Files that a web server reads for each entry of its log.
const READS_PER_LOG_ENTRY: u32 = 10;

/// One operation; the files of those without one are the file opened last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create(u32),
    Open(u32),
    Close,
    ReadWhole,
    /// As many bytes as the file is to have by its size.
    WriteWhole,
    Append(u64),
    Fsync,
    Delete(u32),
    Stat(u32),
    /// An entry of the common log.
    Log(u64),
}

/// The operations of one thread.
pub(super) struct Script<'a> {
    plan: &'a FilePlan,
    thread: u32,
    /// Which of the thread's own files are there, by position.
    is_there: Vec<bool>,
    /// Where the search for the next file that is there, or is not, begins: files are picked in rotation.
    there_next: u32,
    missing_next: u32,
    draws: Draws,
}

impl<'a> Script<'a> {
    pub(super) fn new(plan: &'a FilePlan, thread: u32) -> Self {
        let positions = 0..plan.part_len(thread);
        Self {
            plan,
            thread,
            is_there: positions.map(|position| plan.is_preallocated(thread, position)).collect(),
            there_next: 0,
            missing_next: 0,
            draws: Draws::new(plan.seed, APPENDS, thread.into()),
        }
    }

    /// Puts the operations of the next loop into `steps`, instead of what is there.
    pub(super) fn next_loop(&mut self, steps: &mut Vec<Step>) {
        steps.clear();
        match self.plan.kind {
            PersonalityKind::Varmail => {
                steps.extend([Step::Delete(self.delete()), Step::Create(self.create())]);
                steps.extend([Step::Append(self.append()), Step::Fsync, Step::Close]);
                steps.extend([Step::Open(self.pick()), Step::ReadWhole]);
                steps.extend([Step::Append(self.append()), Step::Fsync, Step::Close]);
                steps.extend([Step::Open(self.pick()), Step::ReadWhole, Step::Close]);
            }
            PersonalityKind::Fileserver => {
                steps.extend([Step::Create(self.create()), Step::WriteWhole, Step::Close]);
                steps.extend([Step::Open(self.pick()), Step::Append(self.append()), Step::Close]);
                steps.extend([Step::Open(self.pick()), Step::ReadWhole, Step::Close]);
                steps.extend([Step::Delete(self.delete()), Step::Stat(self.pick())]);
            }
            PersonalityKind::Webserver => {
                for _ in 0..READS_PER_LOG_ENTRY {
                    steps.extend([Step::Open(self.pick()), Step::ReadWhole, Step::Close]);
                }
                steps.push(Step::Log(self.append()));
            }
            PersonalityKind::Oltp | PersonalityKind::MailStore | PersonalityKind::Metadata => {}
        }
    }

    /// The next file that is there.
    fn pick(&mut self) -> u32 {
        let position = self.find(self.there_next, true);
        self.there_next = position + 1;
        self.plan.file(self.thread, position)
    }

    fn delete(&mut self) -> u32 {
        let position = self.find(self.there_next, true);
        self.there_next = position + 1;
        self.is_there[position as usize] = false;
        self.plan.file(self.thread, position)
    }

    fn create(&mut self) -> u32 {
        let position = self.find(self.missing_next, false);
        self.missing_next = position + 1;
        self.is_there[position as usize] = true;
        self.plan.file(self.thread, position)
    }

    /// The first position from `start` on, and then from the front, that is there or is not. The plan sees to it that
    /// there is one.
    fn find(&self, start: u32, is_there: bool) -> u32 {
        let count = self.is_there.len();
        let positions = (0..count).map(|step| (start as usize + step) % count);
        positions.into_iter().find(|&position| self.is_there[position] == is_there).unwrap_or(0) as u32
    }

    fn append(&mut self) -> u64 {
        1 + self.draws.below(self.plan.figures.append)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn steps(text: &str, loops: u64) -> Vec<Vec<Step>> {
        let plan = FilePlan::new(&text.parse().expect(text), 1);
        let mut all = Vec::new();
        for thread in 0..plan.parts() {
            let mut script = Script::new(&plan, thread);
            let mut own = Vec::new();
            for _ in 0..loops {
                let mut steps = Vec::new();
                script.next_loop(&mut steps);
                own.extend(steps);
            }
            all.push(own);
        }
        all
    }

    fn word(step: &Step) -> &'static str {
        match step {
            Step::Create(_) => "create",
            Step::Open(_) => "open",
            Step::Close => "close",
            Step::ReadWhole => "read",
            Step::WriteWhole => "write",
            Step::Append(_) => "append",
            Step::Fsync => "fsync",
            Step::Delete(_) => "delete",
            Step::Stat(_) => "stat",
            Step::Log(_) => "log",
        }
    }

    /// The flowops of filebench's workload files, in their order.
    #[test]
    fn a_loop_has_the_operations_of_filebench_in_their_order() {
        let read = ["open", "read", "close"];
        let webserver: Vec<&str> = read.repeat(10).into_iter().chain(["log"]).collect();
        for (text, wanted) in [
            (
                "varmail",
                &[
                    "delete", "create", "append", "fsync", "close", "open", "read", "append", "fsync",
                    "close", "open", "read", "close",
                ][..],
            ),
            (
                "fileserver",
                &[
                    "create", "write", "close", "open", "append", "close", "open", "read", "close", "delete",
                    "stat",
                ],
            ),
            ("webserver", &webserver),
        ] {
            for own in steps(text, 3) {
                for one in own.chunks(wanted.len()) {
                    assert_eq!(one.iter().map(word).collect::<Vec<_>>(), wanted, "{text}");
                }
            }
        }
    }

    #[test]
    fn only_files_that_are_there_are_used_and_only_missing_ones_created() {
        for text in ["varmail", "fileserver", "fileserver:files=4,threads=2", "varmail:preallocated=100%"] {
            let plan = FilePlan::new(&text.parse().expect(text), 1);
            for (thread, own) in (0..).zip(steps(text, 60)) {
                let mut there: HashMap<u32, bool> = (0..plan.part_len(thread))
                    .map(|position| (plan.file(thread, position), plan.is_preallocated(thread, position)))
                    .collect();
                for step in own {
                    match step {
                        Step::Create(file) => assert_eq!(there.insert(file, true), Some(false), "{text}"),
                        Step::Delete(file) => assert_eq!(there.insert(file, false), Some(true), "{text}"),
                        Step::Open(file) | Step::Stat(file) => assert!(there[&file], "{text}"),
                        _ => {}
                    }
                }
            }
        }
    }

    #[test]
    fn files_are_picked_in_rotation() {
        let plan = FilePlan::new(&"webserver".parse().expect("known"), 1);
        for (thread, own) in (0..).zip(steps("webserver", 4)) {
            let opened: Vec<u32> = own
                .iter()
                .filter_map(|step| if let Step::Open(file) = step { Some(*file) } else { None })
                .collect();
            let rotation: Vec<u32> = (0..40).map(|k| plan.file(thread, k % plan.part_len(thread))).collect();
            assert_eq!(opened, rotation);
        }
    }

    #[test]
    fn appends_are_uniform_from_one_byte_to_the_largest() {
        let appends: Vec<u64> = steps("varmail", 1500)
            .into_iter()
            .flatten()
            .filter_map(|step| if let Step::Append(bytes) = step { Some(bytes) } else { None })
            .collect();
        assert!(appends.iter().all(|bytes| (1..=16384).contains(bytes)));
        let mut classes = [0u32; 16];
        for bytes in &appends {
            classes[((bytes - 1) / 1024) as usize] += 1;
        }
        let expected = appends.len() as f64 / 16.0;
        let chi_square: f64 =
            classes.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        // 15 degrees of freedom: above 44.3 with probability 1e-4.
        assert!(chi_square < 44.3, "{classes:?}: {chi_square}");
    }

    #[test]
    fn a_script_is_a_function_of_seed_and_thread() {
        assert_eq!(steps("varmail", 20), steps("varmail", 20));
        let threads = steps("varmail", 20);
        assert_ne!(threads[0], threads[1]);
    }
}
