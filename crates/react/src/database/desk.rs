//! The files of a database in memory: what is stored in them, the one thing that is wrong with them, and a list of what was
//! asked of them while somebody wanted to know. [`super::mount`] shows them to programs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use parking_lot::Mutex;

/// What files hold at one moment, by their paths. A folder is a path that ends with `/`, and holds nothing.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) bytes: Range<u64>,
}

impl Place {
    pub(crate) fn meets(&self, file: &str, bytes: &Range<u64>) -> bool {
        self.file == file && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

/// What is wrong with a place from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// It holds this.
    Stored(Place, Vec<u8>),
    /// Reading it fails until some of it is rewritten.
    ReadError(Place),
    /// Writing it fails.
    WriteError(Place),
    /// Writes to it are acknowledged and not done.
    Lost(Place),
    /// Writes to it go to the second place.
    Misdirected(Place, Place),
}

/// Something that was asked of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileTouch {
    pub(crate) place: Place,
    pub(crate) is_write: bool,
}

/// An error of the device below, as a program is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// See the head of the module.
#[derive(Default)]
pub(crate) struct Desk(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    names: BTreeMap<String, u64>,
    /// Numbers are never given again, so that the kernel takes no file for one that was shown before.
    last: u64,
    harm: Option<Harm>,
    touches: Option<Vec<FileTouch>>,
    /// What files held when they were removed or cut to nothing.
    ended: Files,
    /// A write to this place is to come, and what the files hold before it when it has come.
    cut: Option<(Place, Option<Files>)>,
}

struct Node {
    name: String,
    bytes: Vec<u8>,
}

/// The number of the folder itself.
pub(crate) const ROOT: u64 = 1;

impl Desk {
    /// Shows these files from now on, with nothing wrong.
    pub(crate) fn show(&self, files: &Files) {
        let mut state = self.0.lock();
        let last = state.last.max(ROOT);
        *state = State { last, ..State::default() };
        for (name, bytes) in files {
            state.create(name, bytes.clone());
        }
    }

    /// Something is wrong from now on, and what is asked is noted.
    pub(crate) fn arm(&self, harm: Option<Harm>) {
        let mut state = self.0.lock();
        if let Some(Harm::Stored(place, bytes)) = &harm
            && let Some(node) = state.named(&place.file)
        {
            let (from, to) = (place.bytes.start as usize, place.bytes.end as usize);
            node.bytes[from..to].copy_from_slice(bytes);
        }
        state.harm = harm;
        state.touches = Some(Vec::new());
        state.ended.clear();
    }

    /// What was asked since it was armed, and no more from now on. What fails writes fails none any more; what is stored
    /// wrong, or cannot be read, stays so.
    pub(crate) fn rest(&self) -> Vec<FileTouch> {
        let mut state = self.0.lock();
        if matches!(state.harm, Some(Harm::WriteError(_) | Harm::Lost(_) | Harm::Misdirected(..))) {
            state.harm = None;
        }
        state.touches.take().unwrap_or_default()
    }

    /// What the files hold now.
    pub(crate) fn files(&self) -> Files {
        self.0.lock().files()
    }

    /// What files held that were removed or cut to nothing since it was armed.
    pub(crate) fn ended(&self) -> Files {
        self.0.lock().ended.clone()
    }

    /// The first write to this place from now on is one before which the power could be cut.
    pub(crate) fn cut_before(&self, place: Place) {
        self.0.lock().cut = Some((place, None));
    }

    /// What the files held before that write, if it has come.
    pub(crate) fn cut_off(&self) -> Option<Files> {
        self.0.lock().cut.take().and_then(|(_, files)| files)
    }

    /// The number of a file or a folder, and how long it is.
    pub(crate) fn look_up(&self, path: &str) -> Option<(u64, u64)> {
        let state = self.0.lock();
        let number = *state.names.get(path)?;
        Some((number, state.nodes[&number].bytes.len() as u64))
    }

    /// The path of a name in the folder of this number.
    pub(crate) fn path(&self, folder: u64, name: &str) -> Option<String> {
        match folder {
            ROOT => Some(name.to_owned()),
            _ => self.name(folder).map(|folder| folder + name),
        }
    }

    pub(crate) fn length(&self, number: u64) -> Option<u64> {
        self.0.lock().nodes.get(&number).map(|node| node.bytes.len() as u64)
    }

    pub(crate) fn name(&self, number: u64) -> Option<String> {
        self.0.lock().nodes.get(&number).map(|node| node.name.clone())
    }

    /// All names in a folder with their numbers; those of folders end with `/`.
    pub(crate) fn names(&self, folder: u64) -> Vec<(String, u64)> {
        let state = self.0.lock();
        let before = match folder {
            ROOT => "",
            _ => state.nodes.get(&folder).map_or("/", |node| &node.name),
        };
        let paths = state.names.range(before.to_owned()..).take_while(|(path, _)| path.starts_with(before));
        let names = paths.filter_map(|(path, &number)| {
            let name = &path[before.len()..];
            let is_here = !name.is_empty() && !name.trim_end_matches('/').contains('/');
            is_here.then(|| (name.to_owned(), number))
        });
        names.collect()
    }

    /// Gives a file, or a folder with all that is in it, another path; what had that is gone. Whether it was there.
    pub(crate) fn rename(&self, from: &str, to: &str) -> bool {
        let mut state = self.0.lock();
        if !state.names.contains_key(from) {
            return false;
        }
        if let Some(number) = state.names.remove(to) {
            state.unlinked(number);
        }
        let is_moved = |path: &String| path == from || from.ends_with('/') && path.starts_with(from);
        let moved: Vec<String> = state.names.keys().filter(|path| is_moved(path)).cloned().collect();
        for path in moved {
            let Some(number) = state.names.remove(&path) else { continue };
            let path = format!("{to}{}", &path[from.len()..]);
            if let Some(node) = state.nodes.get_mut(&number) {
                node.name.clone_from(&path);
            }
            state.names.insert(path, number);
        }
        true
    }

    /// Gives a file a further path, by which it is known from then on.
    pub(crate) fn link(&self, number: u64, path: &str) -> Option<u64> {
        let mut state = self.0.lock();
        let node = state.nodes.get_mut(&number)?;
        node.name = path.to_owned();
        let length = node.bytes.len() as u64;
        state.names.insert(path.to_owned(), number);
        Some(length)
    }

    /// Makes an empty file, if it is not there.
    pub(crate) fn create(&self, name: &str) -> (u64, u64) {
        match self.look_up(name) {
            Some(found) => found,
            None => (self.0.lock().create(name, Vec::new()), 0),
        }
    }

    /// Takes a name away; whoever has the file open keeps it. Whether it was there.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let mut state = self.0.lock();
        let Some(number) = state.names.remove(name) else { return false };
        state.unlinked(number);
        true
    }

    pub(crate) fn set_length(&self, number: u64, length: u64) -> Option<()> {
        let mut state = self.0.lock();
        if length == 0 {
            state.end(number);
        }
        let node = state.nodes.get_mut(&number)?;
        node.bytes.resize(usize::try_from(length).ok()?, 0);
        Some(())
    }

    /// `None` if there is no such file. What lies beyond its end is not there.
    pub(crate) fn read(&self, number: u64, bytes: Range<u64>) -> Option<Result<Vec<u8>, Unreadable>> {
        let mut state = self.0.lock();
        let node = state.nodes.get(&number)?;
        let length = node.bytes.len() as u64;
        let (from, to) = (bytes.start.min(length), bytes.end.min(length));
        let (name, read) = (node.name.clone(), node.bytes[from as usize..to as usize].to_vec());
        if from < to {
            state.note(&name, from..to, false);
        }
        Some(match &state.harm {
            Some(Harm::ReadError(place)) if place.meets(&name, &(from..to)) => Err(Unreadable),
            _ => Ok(read),
        })
    }

    /// `None` if there is no such file.
    pub(crate) fn write(&self, number: u64, offset: u64, data: &[u8]) -> Option<Result<(), Unreadable>> {
        let mut state = self.0.lock();
        let name = state.nodes.get(&number)?.name.clone();
        let bytes = offset..offset + data.len() as u64;
        state.note(&name, bytes.clone(), true);
        state.cut_at(&name, &bytes);
        let harm = state.harm.clone();
        let old = state.nodes.get_mut(&number)?;
        let end = bytes.end as usize;
        let mut keep = None;
        match &harm {
            Some(Harm::WriteError(place)) if place.meets(&name, &bytes) => return Some(Err(Unreadable)),
            Some(Harm::Lost(place) | Harm::Misdirected(place, _)) if place.meets(&name, &bytes) => {
                // The file grows all the same: that is not written where its data are.
                let kept = place.bytes.start.max(bytes.start)..place.bytes.end.min(bytes.end);
                let length = old.bytes.len().max(end);
                old.bytes.resize(length, 0);
                keep = Some((kept.clone(), old.bytes[kept.start as usize..kept.end as usize].to_vec()));
            }
            _ => {}
        }
        if old.bytes.len() < end {
            old.bytes.resize(end, 0);
        }
        old.bytes[offset as usize..end].copy_from_slice(data);
        if let Some((kept, held)) = keep {
            old.bytes[kept.start as usize..kept.end as usize].copy_from_slice(&held);
            if let Some(Harm::Misdirected(place, other)) = &harm {
                let sent = &data[(kept.start - offset) as usize..(kept.end - offset) as usize];
                state.divert(kept.start - place.bytes.start, sent, other);
            }
        }
        if matches!(&harm, Some(Harm::ReadError(place)) if place.meets(&name, &bytes)) {
            state.harm = None;
        }
        Some(Ok(()))
    }
}

impl State {
    fn create(&mut self, name: &str, bytes: Vec<u8>) -> u64 {
        self.last = self.last.max(ROOT) + 1;
        self.nodes.insert(self.last, Node { name: name.to_owned(), bytes });
        self.names.insert(name.to_owned(), self.last);
        self.last
    }

    fn named(&mut self, name: &str) -> Option<&mut Node> {
        let number = self.names.get(name)?;
        self.nodes.get_mut(number)
    }

    fn note(&mut self, file: &str, bytes: Range<u64>, is_write: bool) {
        if let Some(touches) = &mut self.touches {
            touches.push(FileTouch { place: Place { file: file.to_owned(), bytes }, is_write });
        }
    }

    fn files(&self) -> Files {
        self.names.iter().map(|(name, number)| (name.clone(), self.nodes[number].bytes.clone())).collect()
    }

    fn cut_at(&mut self, file: &str, bytes: &Range<u64>) {
        if matches!(&self.cut, Some((place, None)) if place.meets(file, bytes)) {
            let files = self.files();
            if let Some((_, cut)) = &mut self.cut {
                *cut = Some(files);
            }
        }
    }

    /// A name of it is gone; it may have another.
    fn unlinked(&mut self, number: u64) {
        if !self.names.values().any(|&other| other == number) {
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        if let Some(node) = self.nodes.get(&number).filter(|node| !node.bytes.is_empty()) {
            self.ended.insert(node.name.clone(), node.bytes.clone());
        }
    }

    /// Stores `sent` in another place, so far behind its beginning; what does not fit there is gone.
    fn divert(&mut self, behind: u64, sent: &[u8], other: &Place) {
        let Some(node) = self.named(&other.file) else { return };
        let from = (other.bytes.start + behind) as usize;
        let to = (from + sent.len()).min(other.bytes.end as usize).min(node.bytes.len());
        if from < to {
            node.bytes[from..to].copy_from_slice(&sent[..to - from]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bytes: Range<u64>) -> Place {
        Place { file: "a".into(), bytes }
    }

    /// A file of three pieces of four bytes.
    fn desk(harm: Harm) -> (Desk, u64) {
        let desk = Desk::default();
        desk.show(&Files::from([("a".to_owned(), b"aaaabbbbcccc".to_vec())]));
        desk.arm(Some(harm));
        let number = desk.look_up("a").expect("there").0;
        (desk, number)
    }

    #[test]
    fn every_harm_does_what_it_says_and_no_more() {
        let (stored, number) = desk(Harm::Stored(place(4..8), b"xxxx".to_vec()));
        assert_eq!(stored.read(number, 0..20), Some(Ok(b"aaaaxxxxcccc".to_vec())));
        assert_eq!(stored.rest(), [FileTouch { place: place(0..12), is_write: false }]);
        assert_eq!(stored.files()["a"], b"aaaaxxxxcccc", "what is stored wrong stays");

        let (unreadable, number) = desk(Harm::ReadError(place(4..8)));
        assert_eq!(unreadable.read(number, 0..4), Some(Ok(b"aaaa".to_vec())));
        assert_eq!(unreadable.read(number, 7..9), Some(Err(Unreadable)));
        unreadable.rest();
        assert_eq!(unreadable.read(number, 7..9), Some(Err(Unreadable)), "until it is rewritten");
        assert_eq!(unreadable.write(number, 4, b"yyyy"), Some(Ok(())));
        assert_eq!(unreadable.read(number, 4..8), Some(Ok(b"yyyy".to_vec())));

        let (failing, number) = desk(Harm::WriteError(place(4..8)));
        assert_eq!(failing.write(number, 6, b"yyyy"), Some(Err(Unreadable)));
        assert_eq!(failing.write(number, 8, b"yyyy"), Some(Ok(())));
        failing.rest();
        assert_eq!(failing.write(number, 4, b"zzzz"), Some(Ok(())));
        assert_eq!(failing.files()["a"], b"aaaazzzzyyyy");

        let (losing, number) = desk(Harm::Lost(place(4..16)));
        assert_eq!(losing.write(number, 2, b"yyyy"), Some(Ok(())));
        assert_eq!(losing.write(number, 12, b"yyyy"), Some(Ok(())));
        assert_eq!(losing.files()["a"], b"aayybbbbcccc\0\0\0\0", "only the place; the file grows");

        let (straying, number) = desk(Harm::Misdirected(place(8..12), place(0..3)));
        assert_eq!(straying.write(number, 9, b"yyy"), Some(Ok(())));
        assert_eq!(straying.files()["a"], b"ayyabbbbcccc", "as far as there is room");
    }

    #[test]
    fn folders_have_names_of_their_own_and_take_what_is_in_them_along() {
        let desk = Desk::default();
        let files =
            ["a/", "a/b/", "a/b/c", "a/d", "e"].map(|path| (path.to_owned(), path.as_bytes().to_vec()));
        desk.show(&Files::from(files));
        let names = |folder| desk.names(folder).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let number = |path: &str| desk.look_up(path).map(|(number, _)| number);
        assert_eq!(names(ROOT), ["a/", "e"]);
        assert_eq!(names(number("a/").expect("there")), ["b/", "d"]);
        assert_eq!(desk.path(number("a/b/").expect("there"), "f").as_deref(), Some("a/b/f"));
        let moved = number("a/b/c");
        assert!(desk.rename("a/b/", "g/") && !desk.rename("a/b/", "h/"));
        assert_eq!((number("g/c"), number("a/b/c")), (moved, None));
        assert!(desk.rename("a/d", "e"), "in the place of another");
        assert_eq!(
            (&*desk.ended()["e"], names(ROOT)),
            (&b"e"[..], vec!["a/".into(), "e".into(), "g/".into()])
        );
        let file = number("e").expect("there");
        assert_eq!((desk.link(file, "a/x"), desk.name(file).as_deref()), (Some(3), Some("a/x")));
        assert!(desk.remove("e") && number("a/x") == Some(file));
    }

    #[test]
    fn the_power_is_cut_before_the_first_write_to_a_place() {
        let desk = Desk::default();
        desk.show(&Files::from([("a".to_owned(), b"aaaabbbb".to_vec())]));
        desk.cut_before(place(4..8));
        let number = desk.look_up("a").expect("there").0;
        for (offset, data) in [(0, b"x"), (4, b"y"), (5, b"z")] {
            assert_eq!(desk.write(number, offset, data), Some(Ok(())));
        }
        assert_eq!(desk.cut_off(), Some(Files::from([("a".to_owned(), b"xaaabbbb".to_vec())])));
        assert_eq!((desk.cut_off(), &*desk.files()["a"]), (None, &b"xaaayzbb"[..]));
        desk.cut_before(place(0..1));
        assert_eq!(desk.cut_off(), None, "nobody came");
    }

    #[test]
    fn a_file_that_ends_is_remembered_and_another_of_its_name_is_another() {
        let (desk, number) = desk(Harm::WriteError(place(0..1)));
        assert!(desk.remove("a") && !desk.remove("a"));
        assert_eq!(desk.ended()["a"], b"aaaabbbbcccc");
        assert!(desk.create("a").0 > number && desk.look_up("a").is_some());
        let (second, _) = desk.create("b");
        desk.write(second, 0, b"1");
        desk.set_length(second, 0);
        assert_eq!((desk.ended()["b"].as_slice(), desk.length(second)), (&b"1"[..], Some(0)));
        desk.show(&Files::new());
        assert!(desk.create("a").0 > second, "numbers are never given again");
    }
}
