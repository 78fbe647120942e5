//! The files of a cluster of PostgreSQL 15: what each page of them is, by the catalog, the name of the file and what the page says itself.
//!
//! A file is a map of its own. The catalog says what a relation is (`pg_class`, by `pg_filenode.map`); where it cannot be read the first page of
//! a file does, and that is damage. Checksums are verified where the cluster has them; a page whose sum is wrong is damage, and still told by what
//! it says it is.

mod catalog;
mod control;
mod folder;
mod page;
mod wal;

use std::collections::BTreeMap;

use rotproof_block::{Error, ErrorKind, Result};

use crate::ReadOptions;
use crate::kind::Plain;
use crate::map::{Extent, FileSystemKind, Map, MapBuilder, Owner, Rank};
use crate::reader::bytes_at;
use crate::source::Source;

use catalog::{CLASS, Commits, Place, Relation, relation_map, relations};
use control::Control;
use page::{Method, PAGE_BYTES, Page, checksum, stored_checksum};

pub use folder::{DataDirectory, Folder};

const PAGE: u64 = PAGE_BYTES as u64;
/// The version that is read.
const VERSION: &[u8] = b"15";
/// Pages of a segment of a relation, where the control file does not say it.
const SEGMENT_PAGES: u64 = 131_072;
const CONTROL: &str = "global/pg_control";
const RELATION_MAP: &str = "pg_filenode.map";
/// Files of these are small; one that is larger is no such file.
const SMALL_BYTES_MAX: u64 = 1 << 16;

/// A file of a cluster, and what is in it.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// Its path in the data directory.
    pub path: String,
    /// What every byte of it is.
    pub map: Map,
}

/// A cluster: all its files.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Whether its pages have checksums, which were verified; `None` if nobody knows.
    pub has_checksums: Option<bool>,
    /// In the order of their paths.
    pub files: Vec<ClusterFile>,
}

impl Cluster {
    /// All files one behind the other, each from a multiple of a page on; owners lose their names, as files of several databases have equal numbers.
    pub fn joined(&self) -> Map {
        let mut size = 0;
        let mut places = Vec::new();
        for file in &self.files {
            places.push(size);
            size += file.map.size.next_multiple_of(PAGE);
        }
        let mut builder = MapBuilder::new(size);
        for (file, place) in self.files.iter().zip(places) {
            for extent in file.map.extents() {
                let bytes = extent.start + place..extent.end + place;
                builder.claim(Rank::Structure, Extent::new(bytes, extent.kind, extent.owner));
            }
            let end = place + file.map.size;
            if !end.is_multiple_of(PAGE) {
                let rest = end..end.next_multiple_of(PAGE);
                builder.claim(Rank::Structure, Extent::new(rest, Plain::Unused, Owner::NONE));
            }
        }
        builder.finish(FileSystemKind::Postgres, PAGE)
    }
}

/// What every page of a cluster's files is now.
///
/// Fails with [`ErrorKind::Missing`] where there is no cluster, and with [`ErrorKind::Unsupported`] where its version, or the size of its pages, is
/// another than what is read.
pub fn read_cluster(folder: &dyn Folder, options: ReadOptions) -> Result<Cluster> {
    read_cluster_files(folder, &|_| true, options)
}

/// The same of those files alone whose paths are wanted.
pub fn read_cluster_files(
    folder: &dyn Folder,
    is_wanted: &dyn Fn(&str) -> bool,
    options: ReadOptions,
) -> Result<Cluster> {
    let known = Known::read(folder)?;
    let files = known.paths.iter().filter(|path| is_wanted(path)).map(|path| {
        let map = known.read_file(folder, path, options)?;
        Ok(ClusterFile { path: path.clone(), map })
    });
    Ok(Cluster {
        has_checksums: known.control.as_ref().map(|control| control.has_checksums),
        files: files.collect::<Result<_>>()?,
    })
}

/// What every page of one file of a cluster is now, with what the other files say of it. Fails as [`read_cluster`], and where there is no such file.
pub fn read_cluster_file(folder: &dyn Folder, path: &str, options: ReadOptions) -> Result<Map> {
    Known::read(folder)?.read_file(folder, path, options)
}

/// A database, or what all databases share.
#[derive(Default)]
struct Database {
    relations: BTreeMap<u32, Relation>,
    /// Why nothing is known of it.
    damage: Option<String>,
}

/// What has to be known before a file can be read.
struct Known {
    paths: Vec<String>,
    control: Option<Control>,
    /// Why the control file cannot be believed.
    control_damage: Option<String>,
    /// Relations of each database by its number, 0 for those that are shared.
    databases: BTreeMap<u32, Database>,
}

/// A file that is small, whole.
fn small(folder: &dyn Folder, path: &str) -> Result<Vec<u8>> {
    let source = folder.open(path)?;
    if source.size() > SMALL_BYTES_MAX {
        return Err(Error::new(ErrorKind::Invalid, format!("{path} has {} bytes, too many", source.size())));
    }
    bytes_at(&*source, 0, source.size() as usize)
}

fn unsupported(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}; such clusters are not read"))
}

impl Known {
    fn read(folder: &dyn Folder) -> Result<Self> {
        let paths = folder.paths()?;
        let has = |path: &str| paths.binary_search_by(|other| other.as_str().cmp(path)).is_ok();
        if !has("PG_VERSION") {
            return Err(Error::new(ErrorKind::Missing, "there is no cluster of PostgreSQL: no PG_VERSION"));
        }
        let version = small(folder, "PG_VERSION")?;
        if version.trim_ascii_end() != VERSION {
            let told = String::from_utf8_lossy(version.trim_ascii_end()).into_owned();
            return Err(unsupported(format!("it is of PostgreSQL `{told}`, and not of 15")));
        }
        let parsed = match small(folder, CONTROL) {
            Ok(bytes) => Control::parse(&bytes),
            Err(error) => Err(error.to_string()),
        };
        if let Ok(control) = &parsed {
            let pages = [control.page_bytes, control.log_page_bytes];
            if pages != [PAGE_BYTES as u32, wal::PAGE_BYTES as u32] || control.segment_pages == 0 {
                return Err(unsupported(format!("its pages have {} and {} bytes", pages[0], pages[1])));
            }
        }
        let (control, control_damage) = match parsed {
            Ok(control) => (Some(control), None),
            Err(why) => (None, Some(why)),
        };
        let databases = read_catalogs(folder, &paths);
        Ok(Self { paths, control, control_damage, databases })
    }

    fn segment_pages(&self) -> u64 {
        self.control.as_ref().map_or(SEGMENT_PAGES, |control| control.segment_pages.into())
    }

    fn read_file(&self, folder: &dyn Folder, path: &str, options: ReadOptions) -> Result<Map> {
        let source = folder.open(path)?;
        let mut reader = Reader { known: self, source: &*source, builder: MapBuilder::new(source.size()) };
        reader.read(path);
        let Reader { mut builder, .. } = reader;
        if !options.names {
            builder.names.clear();
        }
        Ok(builder.finish(FileSystemKind::Postgres, PAGE))
    }
}

/// What `pg_class` of each database has.
fn read_catalogs(folder: &dyn Folder, paths: &[String]) -> BTreeMap<u32, Database> {
    let mut segments = BTreeMap::new();
    for path in paths {
        let number = path.strip_prefix("pg_xact/").and_then(|name| u64::from_str_radix(name, 16).ok());
        if let (Some(number), Ok(source)) = (number, folder.open(path)) {
            segments.insert(number, source);
        }
    }
    let commits = Commits { segments };
    let map_of = |path: &str| match small(folder, path) {
        Ok(bytes) => relation_map(&bytes),
        Err(error) => Err(error.to_string()),
    };
    let shared_map = map_of("global/pg_filenode.map");
    let no_map = BTreeMap::new();
    let mut shared = Database { damage: shared_map.as_ref().err().cloned(), ..Database::default() };
    let mut databases = BTreeMap::new();
    for path in paths.iter().filter(|path| path.ends_with(RELATION_MAP) && !path.starts_with("global/")) {
        let place = path.trim_end_matches(RELATION_MAP);
        let number = place.trim_end_matches('/').rsplit('/').next().and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        let mut database = Database::default();
        let found = map_of(path).and_then(|map| {
            let file = *map.get(&CLASS).ok_or("it does not say where pg_class is")?;
            for block in class_pages(folder, place, file)? {
                let Some(page) = Page::parse(&block) else { continue };
                let shared_map = shared_map.as_ref().unwrap_or(&no_map);
                for (Place { is_shared, file }, relation) in relations(&page, &commits, &map, shared_map) {
                    let of = if is_shared { &mut shared } else { &mut database };
                    of.relations.insert(file, relation);
                }
            }
            Ok(())
        });
        database.damage = found.err();
        databases.insert(number, database);
    }
    databases.insert(0, shared);
    databases
}

/// All pages of `pg_class` in the folder `place`.
fn class_pages(folder: &dyn Folder, place: &str, file: u32) -> std::result::Result<Vec<Vec<u8>>, String> {
    let source = folder.open(&format!("{place}{file}")).map_err(|error| error.to_string())?;
    let pages = source.size() / PAGE;
    (0..pages)
        .map(|block| bytes_at(&*source, block * PAGE, PAGE_BYTES).map_err(|error| error.to_string()))
        .collect()
}

/// A file of a relation, by its name.
#[derive(Debug, PartialEq, Eq)]
struct RelationFile<'a> {
    /// 0 in `global`.
    database: u32,
    file: u32,
    /// Empty for the relation itself.
    fork: &'a str,
    segment: u64,
}

/// `None` of a file that belongs to no relation.
fn relation_file(path: &str) -> Option<RelationFile<'_>> {
    let (folder, name) = path.rsplit_once('/')?;
    let database = match folder.split('/').collect::<Vec<_>>()[..] {
        ["global"] => 0,
        ["base", database] | ["pg_tblspc", _, _, database] => database.parse().ok()?,
        _ => return None,
    };
    // Temporary relations have the number of their session in front.
    let name = name.strip_prefix('t').and_then(|rest| rest.split_once('_')).map_or(name, |(_, rest)| rest);
    let (name, segment) = match name.split_once('.') {
        Some((name, segment)) => (name, segment.parse().ok()?),
        None => (name, 0),
    };
    let (file, fork) = name.split_once('_').unwrap_or((name, ""));
    matches!(fork, "" | "fsm" | "vm" | "init").then_some(())?;
    Some(RelationFile { database, file: file.parse().ok()?, fork, segment })
}

struct Reader<'a> {
    known: &'a Known,
    source: &'a dyn Source,
    builder: MapBuilder,
}

impl Reader<'_> {
    fn claim(&mut self, from: u64, to: u64, kind: Plain, owner: Owner) {
        if from < to {
            self.builder.claim(Rank::Structure, Extent::new(from..to, kind, owner));
        }
    }

    fn all(&mut self, kind: Plain) {
        self.claim(0, self.source.size(), kind, Owner::NONE);
    }

    fn read(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or(path);
        if let Some(file) = relation_file(path) {
            return self.read_relation(&file);
        }
        match path.rsplit_once('/').map_or("", |(folder, _)| folder) {
            _ if name == "PG_VERSION" => self.all(Plain::PgVersion),
            _ if path == CONTROL => {
                if let Some(why) = &self.known.control_damage {
                    self.builder.damaged(0, why.clone());
                }
                self.all(Plain::PgControl);
            }
            _ if name == RELATION_MAP => {
                let size = self.source.size().min(SMALL_BYTES_MAX) as usize;
                let found = bytes_at(self.source, 0, size).map_err(|error| error.to_string());
                if let Err(why) = found.and_then(|bytes| relation_map(&bytes)) {
                    self.builder.damaged(0, why);
                }
                self.all(Plain::PgRelationMap);
            }
            "pg_wal" => self.read_log(name),
            "pg_xact" => self.all(Plain::PgTransactions),
            "pg_multixact/offsets" | "pg_multixact/members" => self.all(Plain::PgMultixact),
            "pg_subtrans" | "pg_commit_ts" | "pg_serial" | "pg_notify" => self.all(Plain::PgOtherPages),
            _ => self.all(Plain::PgOther),
        }
    }

    /// A page, and whether it can be read.
    fn page(&mut self, at: u64) -> Option<Vec<u8>> {
        match bytes_at(self.source, at, PAGE_BYTES) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.builder.damaged(at, error.to_string());
                None
            }
        }
    }

    /// What is left of a file that is no whole number of pages.
    fn rest(&mut self) {
        let size = self.source.size();
        if !size.is_multiple_of(PAGE) {
            self.builder.damaged(size - size % PAGE, "it ends within a page");
        }
    }

    fn read_relation(&mut self, file: &RelationFile<'_>) {
        let known = self.known;
        let database = known.databases.get(&file.database);
        let relation = database.and_then(|database| database.relations.get(&file.file));
        if let Some(why) = database.and_then(|database| database.damage.as_ref()) {
            self.builder.damaged(0, format!("the catalog says nothing of it: {why}"));
        }
        let owner = Owner { inode: None, tree: Some(file.file.into()) };
        if let Some(relation) = relation {
            self.builder.names.insert(owner, relation.name.clone());
        }
        let first = file.segment.saturating_mul(known.segment_pages());
        let mut method = relation.map(|relation| relation.method);
        // Without the catalog it is as old as the numbers of its files say.
        let is_catalog = relation.map_or(file.file < 16_384, |relation| relation.is_catalog);
        let is_toast = relation.is_some_and(|relation| relation.is_toast);
        for index in 0..self.source.size() / PAGE {
            let at = index * PAGE;
            let Some(bytes) = self.page(at) else { continue };
            if bytes.iter().all(|&byte| byte == 0) {
                self.claim(at, at + PAGE, Plain::Unused, owner);
                continue;
            }
            let block = first.saturating_add(index);
            if known.control.as_ref().is_some_and(|control| control.has_checksums) {
                let (has, should) = (stored_checksum(&bytes), checksum(&bytes, block as u32));
                if has != should {
                    self.builder.damaged(at, format!("its checksum is {has}, and should be {should}"));
                }
            }
            let Some(page) = Page::parse(&bytes) else {
                self.builder.damaged(at, "it should be a page, and its header is none");
                continue;
            };
            let of = match file.fork {
                "fsm" | "vm" => Method::Heap,
                _ => *method.get_or_insert_with(|| Method::guessed(&page)),
            };
            let kind = match page.kind(of, block) {
                Ok(kind) => kind,
                Err(why) => {
                    self.builder.damaged(at, why);
                    continue;
                }
            };
            let kind = match (file.fork, kind) {
                ("fsm", _) => Plain::PgFreeSpaceMap,
                ("vm", _) => Plain::PgVisibilityMap,
                (_, Plain::Free) => Plain::Free,
                _ if is_catalog && of.is_index() => Plain::PgCatalogIndex,
                _ if is_catalog => Plain::PgCatalog,
                (_, Plain::PgHeap) if is_toast => Plain::PgToast,
                (_, kind) => kind,
            };
            self.claim(at, at + PAGE, kind, owner);
        }
        self.rest();
    }

    fn read_log(&mut self, name: &str) {
        let control = self.known.control.as_ref();
        let segment_bytes = control.map_or(self.source.size(), |control| control.log_segment_bytes.into());
        let Some(begin) = wal::begins_at(name, segment_bytes) else {
            return self.all(Plain::PgOther);
        };
        let redo = control.map(|control| control.redo);
        for at in (0..self.source.size() / PAGE).map(|index| index * PAGE) {
            let Some(bytes) = self.page(at) else { continue };
            self.claim(at, at + PAGE, wal::kind(&bytes, begin.saturating_add(at), redo), Owner::NONE);
        }
        self.rest();
    }
}

#[cfg(test)]
mod tests;
