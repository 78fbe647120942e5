//! Which files there are: their names, the tree of directories, their sizes, whose they are.
//!
//! All of it is a function of the seed and the figures. It knows nothing of what happens to the files.

use super::draws::Draws;
use super::spec::{Figures, Personality, PersonalityKind};
use crate::content::Content;
use crate::stream::Share;

/// Streams of [`rotproof_block::hash::mix`] that belong to file sizes.
const SIZES: u64 = 0xf11e_517e;
/// Shape of the gamma distribution of file sizes (filebench).
const SHAPE: f64 = 1.5;

/// A personality on files, complete.
#[derive(Clone)]
pub struct FilePlan {
    pub(super) kind: PersonalityKind,
    pub(super) figures: Figures,
    pub(super) seed: u64,
    pub(super) content: Content,
    /// Levels of directories above the files.
    levels: u32,
}

impl FilePlan {
    /// The files of a personality that has been validated.
    pub fn new(personality: &Personality, seed: u64) -> Self {
        let figures = personality.figures();
        let width = u64::from(figures.directory_width);
        let (mut levels, mut reach) = (0, 1u64);
        while reach < u64::from(figures.files).div_ceil(width) {
            (levels, reach) = (levels + 1, reach.saturating_mul(width));
        }
        Self { kind: personality.kind, figures, seed, content: Content::new(seed), levels }
    }

    /// What its files are filled with.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The figures.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The number of the log among the files.
    pub(super) fn log(&self) -> u32 {
        self.figures.files
    }

    /// How many files and logs there are names for.
    pub fn names(&self) -> u32 {
        self.figures.files + u32::from(self.kind.has_log())
    }

    /// Where a file lies, below the folder of the load.
    pub fn path(&self, file: u32) -> String {
        if file >= self.figures.files {
            return "log".to_owned();
        }
        let mut path = self.directory_of(file);
        path.push_str(&format!("f{file}"));
        path
    }

    /// Where the directory that belongs to a file lies; for operations on directories.
    pub(super) fn directory_path(&self, file: u32) -> String {
        let mut path = self.directory_of(file);
        path.push_str(&format!("m{file}"));
        path
    }

    /// With a slash behind it; empty for the folder of the load itself.
    fn directory_of(&self, file: u32) -> String {
        self.leaf_path(file / self.figures.directory_width)
    }

    fn leaf_path(&self, leaf: u32) -> String {
        let mut path = String::new();
        for level in (0..self.levels).rev() {
            let digit = leaf / self.figures.directory_width.pow(level) % self.figures.directory_width;
            path.push_str(&format!("d{digit}/"));
        }
        path
    }

    /// All directories of the tree, each after the one that it is in.
    pub(super) fn directories(&self) -> Vec<String> {
        let leaves = self.figures.files.div_ceil(self.figures.directory_width);
        let mut all = std::collections::BTreeSet::new();
        if self.levels > 0 {
            for leaf in 0..leaves {
                let path = self.leaf_path(leaf);
                all.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
            }
        }
        all.into_iter().collect()
    }

    /// Bytes that a file has when it is written as a whole.
    pub fn size(&self, file: u32) -> u64 {
        if self.kind.slot_bytes().is_some() || self.kind == PersonalityKind::Metadata {
            return self.figures.file_size;
        }
        let mut draws = Draws::new(self.seed, SIZES, file.into());
        let size = draws.gamma(self.figures.file_size as f64, SHAPE).round() as u64;
        size.clamp(1, super::FILE_BYTES_MAX / 2)
    }

    /// Workers of a phase at the most: its threads, and the one that does what is done once, before and after them.
    pub fn workers(&self) -> u16 {
        u16::try_from(self.threads_max() + 1).unwrap_or(u16::MAX)
    }

    /// Threads of a phase at the most.
    pub(super) fn threads_max(&self) -> u32 {
        let of_run = match self.kind {
            // Readers, writers and the log writer.
            PersonalityKind::Oltp => self.figures.threads + self.figures.writers + 1,
            _ => self.figures.threads,
        };
        of_run.max(super::check::THREADS as u32)
    }

    /// Threads that have files of their own.
    pub(super) fn parts(&self) -> u32 {
        self.figures.threads
    }

    /// How many files a thread has.
    pub(super) fn part_len(&self, thread: u32) -> u32 {
        let threads = self.parts();
        self.figures.files / threads + u32::from(thread < self.figures.files % threads)
    }

    /// The file at a position of a thread's own. They are dealt out like cards, so that threads that go round their own
    /// at one pace go round all files in the order of their numbers.
    pub(super) fn file(&self, thread: u32, position: u32) -> u32 {
        thread + position * self.parts()
    }

    /// Whether the file at a position of a thread's own is there before the load begins: the share of them that is
    /// asked for, evenly spread.
    pub(super) fn is_preallocated(&self, thread: u32, position: u32) -> bool {
        if self.kind == PersonalityKind::Metadata {
            return false;
        }
        let share = Share::new(self.figures.preallocated);
        let len = self.part_len(thread);
        // Files that come and go: each thread needs one that is there and one that is not.
        if matches!(self.kind, PersonalityKind::Varmail | PersonalityKind::Fileserver) {
            match share.of(len.into()) {
                0 if position == 0 => return true,
                all if all == u64::from(len) && position == len - 1 => return false,
                _ => {}
            }
        }
        share.of(u64::from(position) + 1) > share.of(position.into())
    }

    /// Bytes that are written before the load begins.
    pub fn preallocated_bytes(&self) -> u64 {
        (0..self.parts())
            .flat_map(|thread| (0..self.part_len(thread)).map(move |position| (thread, position)))
            .filter(|&(thread, position)| self.is_preallocated(thread, position))
            .map(|(thread, position)| self.size(self.file(thread, position)))
            .sum()
    }

    /// Bytes that the files may come to take, with what is appended to them and the log.
    pub fn room_bytes(&self) -> u64 {
        let figures = &self.figures;
        let files: u64 = match self.kind {
            PersonalityKind::Metadata => u64::from(figures.files) * figures.file_size.next_multiple_of(4096),
            PersonalityKind::MailStore => (0..figures.files).map(|_| self.slots() * 8192).sum(),
            // Each file is appended to about once before it is deleted, and takes whole blocks.
            _ => (0..figures.files)
                .map(|file| (self.size(file) + figures.append / 2).next_multiple_of(4096))
                .sum(),
        };
        files + if self.kind.has_log() { figures.log_size } else { 0 }
    }

    /// Pieces of a file that are read and written in place; a mailbox has room for a quarter more than it has first.
    pub(super) fn slots(&self) -> u64 {
        let Some(slot) = self.kind.slot_bytes() else { return 0 };
        let first = self.figures.file_size / slot;
        if self.kind == PersonalityKind::MailStore { first + first.div_ceil(4) } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> FilePlan {
        FilePlan::new(&text.parse().expect(text), 1)
    }

    #[test]
    fn sizes_have_the_mean_and_the_deviation_of_the_published_distribution() {
        for (text, mean) in [("varmail", 16384.0), ("webserver", 16384.0), ("fileserver", 131_072.0)] {
            let plan = plan(text);
            let sizes: Vec<f64> = (0..plan.figures.files).map(|file| plan.size(file) as f64).collect();
            let count = sizes.len() as f64;
            let found = sizes.iter().sum::<f64>() / count;
            let deviation = (sizes.iter().map(|size| (size - found).powi(2)).sum::<f64>() / count).sqrt();
            let expected = mean / SHAPE.sqrt();
            assert!((found - mean).abs() < 5.0 * expected / count.sqrt(), "{text}: {found}");
            assert!((deviation / expected - 1.0).abs() < 0.15, "{text}: {deviation}");
        }
        assert!((0..10).all(|file| plan("oltp").size(file) == 10 << 20), "fixed");
    }

    #[test]
    fn the_depth_of_the_tree_is_the_logarithm_of_the_files_to_the_width() {
        // log(1000) / log(1000000) = 0.5; log(1000) / log(20) = 2.3; log(10000) / log(20) = 3.07.
        for (text, depth, first, last) in [
            ("varmail", 1, "f0", "f999"),
            ("webserver", 3, "d0/d0/f0", "d2/d9/f999"),
            ("fileserver", 4, "d0/d0/d0/f0", "d1/d4/d19/f9999"),
        ] {
            let plan = plan(text);
            assert_eq!((plan.path(0).as_str(), plan.path(plan.figures.files - 1).as_str()), (first, last));
            let figures = plan.figures;
            let logarithm = f64::from(figures.files).ln() / f64::from(figures.directory_width).ln();
            assert_eq!(plan.path(0).split('/').count() as f64, logarithm.ceil());
            assert_eq!(plan.path(0).split('/').count(), depth, "{text}");
            let mut entries = std::collections::HashMap::<String, u32>::new();
            for path in plan.directories().into_iter().chain((0..figures.files).map(|file| plan.path(file))) {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                *entries.entry(parent.to_owned()).or_default() += 1;
            }
            assert!(entries.values().all(|&count| count <= figures.directory_width), "{text}");
        }
    }

    #[test]
    fn every_file_is_of_one_thread_and_the_share_that_is_asked_for_is_there_first() {
        for text in ["varmail", "fileserver:files=101,threads=50", "webserver", "varmail:files=8,threads=4"] {
            let plan = plan(text);
            let (mut seen, mut there) = (std::collections::HashSet::new(), 0);
            for thread in 0..plan.parts() {
                let own: Vec<bool> = (0..plan.part_len(thread))
                    .map(|position| {
                        assert!(seen.insert(plan.file(thread, position)));
                        plan.is_preallocated(thread, position)
                    })
                    .collect();
                assert!(own.iter().any(|&there| there), "{text}");
                assert!(plan.figures.preallocated >= 1.0 || own.iter().any(|&there| !there), "{text}");
                there += own.iter().filter(|&&there| there).count();
            }
            assert_eq!(seen.len(), plan.figures.files as usize);
            let share = there as f64 / seen.len() as f64;
            assert!(
                share <= plan.figures.preallocated && share > plan.figures.preallocated - 0.31,
                "{text}: {share}"
            );
        }
    }
}
