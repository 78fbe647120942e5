//! The stage in a guest: the kernel of another release mounts the cell's device. Files are looked at and changed through a folder of this
//! machine, in which each request is carried out in the guest; making and checking file systems is done by the programs of this machine.
//!
//! A guest that a cell brings down or hangs is a finding, and takes nobody with it: the next mount gets another.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_crash_fs::{GuestScene, Mounting};
use rotproof_guest::{End, Question};
use rotproof_machine::Cancel;
use rotproof_machine::registry::Run;
use rotproof_subject::{FileSystem, MachineSpec};

use crate::files::{ATTRIBUTE, Said};
use crate::operation::{Operation, READ};
use crate::stage::{Answer, Helper, Stage, is_read_only, mount_options, perform_in};
use crate::tools;
use crate::tree::{Change, Look, Tree, worst};

/// See the head of the module.
pub(crate) struct GuestStage {
    scene: GuestScene,
    kind: FileSystem,
    /// What ends the guest that there is.
    killer: Arc<Mutex<Option<Killer>>>,
    /// Nobody waits for the cell any more, so no other guest is started.
    is_over: Arc<AtomicBool>,
    /// How the guest ended that mounted the device last, if it did so by itself.
    ended: Option<End>,
}

type Killer = Arc<dyn Fn() + Send + Sync>;

impl GuestStage {
    /// Serves `device` in the folder `name` of the run's scratch folder, for guests as `spec` has them.
    pub(crate) fn new(run: &Run, name: &str, device: Arc<dyn Device>, spec: &MachineSpec) -> Result<Self> {
        let kind = spec.file_system.kind;
        let scene = GuestScene::new(run, name, device, (spec, &Cancel::new()))?.with_attributes();
        Ok(Self { scene, kind, killer: Arc::default(), is_over: Arc::default(), ended: None })
    }

    fn root(&self) -> &Path {
        self.scene.mountpoint()
    }

    /// What the guest says of its files, in one message: file by file each block would be one.
    fn asked(&self, questions: Vec<Question>) -> Result<Said> {
        let gone = || Error::new(ErrorKind::Gone, "the guest is gone");
        let guest = self.scene.current().ok_or_else(gone)?;
        let answers = guest.look(&ATTRIBUTE.to_string_lossy(), &questions)?;
        Ok(Said::new(questions, answers))
    }

    /// Whether the guest has come to its end by itself; it is kept until the next mount.
    fn has_ended(&mut self) -> bool {
        if let Some(end) = self.scene.take_end() {
            self.ended = Some(end);
        }
        if self.ended.is_none() {
            self.ended = self.scene.current().and_then(|guest| guest.end());
        }
        self.ended.is_some()
    }

    /// What the guest's end answers for the device, if it has come to one: a panic or a hang is its kernel's. Of a process that is gone without
    /// a word, which anybody may have killed, nobody knows why.
    fn answer_of_end(&mut self) -> Result<Option<Look>> {
        self.has_ended();
        match &self.ended {
            Some(end @ End::Crash(_)) => Err(Error::new(ErrorKind::Gone, end.to_string())),
            other => Ok(other.as_ref().map(|end| Look::Failed(end.to_string()))),
        }
    }
}

impl Stage for GuestStage {
    fn make(&mut self) -> Result<()> {
        tools::make(self.kind, self.scene.device())
    }

    fn helper(&self) -> Helper {
        let (killer, is_over) = (Arc::clone(&self.killer), Arc::clone(&self.is_over));
        Box::new(move || {
            is_over.store(true, Ordering::SeqCst);
            let killer = killer.lock().clone()?;
            killer();
            Some("it ended once its guest was killed")
        })
    }

    fn end(self: Box<Self>) -> Vec<Error> {
        self.scene.end()
    }

    fn is_crashed(&mut self) -> bool {
        self.has_ended()
    }

    fn forget(&mut self) -> Result<()> {
        // With the last user of its disk a guest forgets what it has read of it, and this machine keeps nothing.
        self.ended = None;
        Ok(())
    }

    fn mount(&mut self) -> Result<Look> {
        if self.is_over.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::TimedOut, "the cell took too long"));
        }
        *self.killer.lock() = None;
        self.scene.start()?;
        if let Some(guest) = self.scene.current().cloned() {
            *self.killer.lock() = Some(Arc::new(move || guest.kill()));
        }
        let mounted = self.scene.mount(&mount_options(self.kind));
        if let Some(look) = self.answer_of_end()? {
            return Ok(look);
        }
        match mounted {
            Ok(()) => Ok(Look::Right),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Missing) => Err(error),
            Err(error) => Ok(Look::Failed(error.to_string())),
        }
    }

    fn unmount(&mut self) -> Result<Look> {
        let unmounted = self.scene.unmount();
        if let Some(look) = self.answer_of_end()? {
            return Ok(look);
        }
        unmounted.map(|()| Look::Right)
    }

    fn change(&mut self, change: &Change) -> Result<Look> {
        Ok(match change.perform(self.root()) {
            Ok(()) => Look::Right,
            Err(error) => Look::of(&change.paths().join(" to "), &error),
        })
    }

    fn sync(&mut self) -> Look {
        match self.scene.current().map(|guest| guest.sync_file_system()) {
            Some(Ok(())) => Look::Right,
            Some(Err(error)) => Look::Failed(format!("syncfs: {error}")),
            None => Look::Failed("syncfs: the guest is gone".into()),
        }
    }

    fn perform(&mut self, operation: Operation, tree: &Tree) -> Result<Answer> {
        if operation != Operation::Read {
            return perform_in(self.root(), operation, tree);
        }
        let questions = READ.iter().flat_map(|path| tree.questions_about(path)).collect();
        Ok(match self.asked(questions) {
            Ok(said) => worst(READ.map(|path| tree.look_at(&said, path))).into(),
            Err(error) => Look::Failed(error.to_string()).into(),
        })
    }

    fn look(&mut self, tree: &Tree) -> Look {
        match self.asked(tree.questions()) {
            Ok(said) => tree.look(&said),
            Err(error) => Look::Failed(error.to_string()),
        }
    }

    fn check(&mut self) -> Result<Answer> {
        tools::check(self.kind, self.scene.device())
    }

    fn is_read_only(&mut self) -> Result<bool> {
        if self.answer_of_end()?.is_some() {
            return Ok(false);
        }
        let options = self.scene.current().map_or(Ok(None), |guest| guest.mount_options())?;
        Ok(options.is_some_and(|options| is_read_only(&options)))
    }

    fn words(&mut self) -> Vec<String> {
        self.scene.kernel_words().iter().map(|line| without_time(line).to_owned()).collect()
    }
}

/// A line of a console without the time at its beginning, in brackets, whose spaces differ with it.
fn without_time(line: &str) -> &str {
    let rest = line.trim_start().strip_prefix('[').and_then(|line| line.split_once("] "));
    match rest {
        Some((time, rest)) if time.trim().parse::<f64>().is_ok() => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use rotproof_machine::registry::Registry;
    use rotproof_subject::MachineKind;

    use super::*;
    use crate::medium::Medium;
    use crate::system::machine;

    /// A guest that ends in the middle of a cell is seen to have ended, its files hold nobody, and the next mount has another.
    #[test]
    fn a_guest_that_ends_is_told_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(&folder.path().join("registry")).expect("a registry");
        let run = registry.begin().expect("begun");
        let device = Medium::new(64 << 20) as Arc<dyn Device>;
        let spec = machine(MachineKind::Uml, FileSystem::Ext4);
        let mut stage = Box::new(GuestStage::new(&run, "cell", device, &spec).expect("served"));
        stage.make().expect("made");
        // As each cell, on a thread of its own: the guest outlives it.
        let mounted = std::thread::spawn(move || {
            let look = stage.mount().expect("mounted");
            (stage, look)
        });
        let (mut stage, look) = mounted.join().expect("no panic");
        assert_eq!(look, Look::Right);
        let mut tree = Tree::default();
        for change in [
            Change::Folder("folder".into()),
            Change::Write("folder/file".into(), vec![0, 2], 5),
            Change::Attribute("folder/file".into()),
            Change::Link("link".into(), "some/where".into()),
        ] {
            assert_eq!(stage.change(&change).expect("done"), Look::Right, "{change:?}");
            tree.apply(&change);
        }
        assert_eq!(stage.sync(), Look::Right);
        // By all at once, and file by file.
        assert_eq!(stage.look(&tree), Look::Right);
        assert_eq!(tree.look(&crate::files::Here(stage.root())), Look::Right);
        let other = Change::Write("folder/file".into(), vec![2], 6);
        tree.apply(&other);
        assert!(matches!(stage.look(&tree), Look::Wrong(why) if why == "folder/file holds something else"));
        assert!(!stage.is_crashed() && !stage.is_read_only().expect("asked"));
        // Killed by somebody: nobody can say that the file system did it.
        stage.scene.current().expect("it runs").kill();
        assert!(!matches!(stage.look(&tree), Look::Right));
        assert!(stage.is_read_only().expect_err("nobody knows").to_string().contains("crashed"));
        assert!(stage.unmount().expect_err("nobody knows").to_string().contains("crashed"));
        stage.forget().expect("nothing to forget");
        // A panic is the word of its kernel.
        assert_eq!(stage.mount().expect("mounted"), Look::Right);
        assert!(stage.scene.current().expect("it runs").set("/proc/sysrq-trigger", "c").is_err());
        assert!(stage.is_crashed() && !stage.is_read_only().expect("gone"));
        assert!(matches!(stage.unmount().expect("gone"), Look::Failed(why) if why.contains("panicked")));
        stage.forget().expect("nothing to forget");
        assert_eq!(stage.mount().expect("mounted"), Look::Right);
        assert!(!stage.is_crashed());
        assert!(
            matches!(stage.look(&tree), Look::Wrong(_)),
            "what was synced is there, and not what was not done"
        );
        assert_eq!(stage.unmount().expect("unmounted"), Look::Right);
        assert!(stage.end().is_empty());
        assert!(run.finish().is_empty());
    }

    #[test]
    fn lines_are_compared_without_their_time() {
        assert_eq!(without_time("[    1.204000] EXT4-fs (ubda): mounted"), "EXT4-fs (ubda): mounted");
        assert_eq!(without_time("[12345.204000] EXT4-fs (ubda): mounted"), "EXT4-fs (ubda): mounted");
        assert_eq!(without_time("[ubda] what is this"), "[ubda] what is this");
        assert_eq!(without_time("no time"), "no time");
    }
}
