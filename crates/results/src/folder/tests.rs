use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rotproof_machine::registry::Registry;

use tempfile::TempDir;

use super::*;

/// A registry, and a folder for results.
struct Spot {
    folder: TempDir,
    registry: Registry,
}

impl Spot {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let registry = Registry::at(&folder.path().join("registry")).expect("made");
        Self { folder, registry }
    }

    fn parent(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn create(&self) -> (Run, ResultsFolder) {
        let run = self.registry.begin().expect("begun");
        let made = ResultsFolder::create(&run, &self.parent(), ("a trial", 7), UNIX_EPOCH);
        (run, made.expect("a folder"))
    }

    /// What is in the folder for results.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.parent()).expect("it is there");
        let mut names: Vec<_> =
            names.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn it_is_hidden_and_closed_until_it_is_whole() {
    let place = Spot::new();
    let (run, folder) = place.create();
    assert_eq!(place.names(), [".a-trial-7-0.partial"]);
    assert_eq!(mode(&place.parent().join(".a-trial-7-0.partial")), 0o700);
    fs::write(folder.inside().join("run.json"), "{}").expect("written");
    folder.publish().expect("named");
    folder.publish().expect("the second time there is nothing to do");
    assert_eq!(folder.path(), place.parent().join("a-trial-7-0"));
    assert_eq!(fs::read(folder.path().join("run.json")).expect("it is there"), b"{}");
    let other = place.folder.path().join("other");
    fs::create_dir(&other).expect("made");
    assert_eq!(mode(folder.path()), mode(&other), "as the user's mask has it");
    drop(folder);
    assert!(run.finish().is_empty());
    let (run, second) = place.create();
    assert_eq!(second.path(), place.parent().join("a-trial-7-0-2"), "none is ever filled twice");
    let (other_run, third) = place.create();
    assert_eq!(third.path(), place.parent().join("a-trial-7-0-3"), "nor two at once");
    drop((second, third));
    assert_eq!(place.names(), ["a-trial-7-0"], "what is not whole goes");
    assert!(run.finish().is_empty() && other_run.finish().is_empty());
}

/// Who may write to the folder around it can rename it and put a link in its place at any moment.
#[test]
fn a_link_in_its_place_leads_nothing_elsewhere() {
    let place = Spot::new();
    let (run, folder) = place.create();
    let victim = place.folder.path().join("victim");
    fs::create_dir(&victim).expect("made");
    fs::write(victim.join("run.json"), "of somebody else").expect("written");
    let hidden = place.parent().join(".a-trial-7-0.partial");
    fs::rename(&hidden, place.parent().join("taken")).expect("renamed");
    symlink(&victim, &hidden).expect("linked");
    fs::write(folder.inside().join("run.json"), "{}").expect("written");
    assert_eq!(fs::read(victim.join("run.json")).expect("it is there"), b"of somebody else");
    assert_eq!(fs::read(place.parent().join("taken/run.json")).expect("it is there"), b"{}");
    let error = folder.publish().expect_err("what has its name now is another").to_string();
    assert!(error.contains("/taken"), "{error}");
    drop(folder);
    drop(run);
    assert_eq!(fs::read(victim.join("run.json")).expect("it is there"), b"of somebody else");
}

#[test]
fn a_folder_around_it_that_is_moved_away_takes_it_along() {
    let place = Spot::new();
    let (run, folder) = place.create();
    let (moved, victim) = (place.folder.path().join("moved"), place.folder.path().join("victim"));
    fs::rename(place.parent(), &moved).expect("renamed");
    fs::create_dir(&victim).expect("made");
    symlink(&victim, place.parent()).expect("linked");
    fs::write(folder.inside().join("run.json"), "{}").expect("written");
    folder.publish().expect("named");
    assert_eq!(fs::read_dir(&victim).expect("a folder").count(), 0);
    assert!(moved.join("a-trial-7-0/run.json").is_file());
    drop(folder);
    assert!(run.finish().is_empty());
}

/// It owns what it has planted there, and could fill it with links.
#[test]
fn what_another_user_has_put_in_its_place_is_refused() {
    let place = Spot::new();
    fs::create_dir(place.parent()).expect("made");
    let held = HeldFolder::open(&place.parent()).expect("opened");
    let (planted, link) = (place.parent().join("planted"), place.folder.path().join("link"));
    fs::create_dir(&planted).expect("made");
    symlink(place.parent(), &link).expect("linked");
    held.open_planted("planted").expect("as long as it is ours");
    HeldFolder::open(&link).expect("a link of this user's is as good as what it points to");
    // Without root there is nobody whose they could be.
    if std::os::unix::fs::chown(&planted, Some(65534), None).is_err() {
        return;
    }
    let error = held.open_planted("planted").expect_err("it is another's");
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("another user"), "{error}");
    std::os::unix::fs::lchown(&link, Some(65534), None).expect("root may");
    let error = HeldFolder::open(&link).expect_err("it is another's");
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("link"), "{error}");
}

#[test]
fn errors_tell_the_names_that_people_know() {
    let place = Spot::new();
    let (_run, folder) = place.create();
    let inner = folder.inside().join("run.json").display().to_string();
    let error = folder.told(Error::new(ErrorKind::NoSpace, format!("writing {inner}")));
    let wanted = format!("writing {}/run.json", place.parent().join("a-trial-7-0").display());
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::NoSpace, wanted));
}

#[test]
fn the_runs_of_a_repeated_trial_are_in_a_folder_that_is_closed_until_the_last() {
    let place = Spot::new();
    let repeated = RepeatedFolder::create(&place.parent(), ("a trial", 7)).expect("made");
    assert_eq!(mode(repeated.path()), 0o700);
    let run = place.registry.begin().expect("begun");
    let folder =
        ResultsFolder::create(&run, repeated.inside(), ("a trial", 7), UNIX_EPOCH).expect("a folder");
    folder.publish().expect("named");
    repeated.open_up().expect("opened");
    assert!(repeated.path().join("a-trial-7-0").is_dir());
    let other = place.folder.path().join("other");
    fs::create_dir(&other).expect("made");
    assert_eq!(mode(repeated.path()), mode(&other));
}
