//! Clusters of PostgreSQL against what the server says of them: `pg_class` and `pageinspect` of every page of every relation, `pg_checksums` of
//! sums, `pg_waldump` and `pg_controldata` of the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rotproof_kinds::{Cluster, DataDirectory, Map, ReadOptions, read_cluster};
use tempfile::TempDir;

/// A cluster of a test's own, with its server stopped when it goes.
pub struct Server {
    folder: TempDir,
    programs: PathBuf,
}

/// Tables and indexes with every kind of page that can be had.
const CONTENT: &str = "
    CREATE EXTENSION pageinspect;
    CREATE TABLE item(id int PRIMARY KEY, name text, body text, place point, words int[], number serial);
    ALTER TABLE item ALTER body SET STORAGE EXTERNAL;
    INSERT INTO item SELECT i, md5(i::text) || repeat('-name', 40), repeat(md5(i::text), CASE WHEN i % 40 = 0 THEN 200 ELSE 2 END),
        point(i % 977, i % 613), ARRAY[i % 3, i % 500, i] FROM generate_series(1, 12000) i;
    CREATE INDEX item_name ON item(name);
    CREATE INDEX item_hash ON item USING hash(name);
    CREATE INDEX item_gist ON item USING gist(place);
    CREATE INDEX item_gin ON item USING gin(words);
    CREATE INDEX item_spgist ON item USING spgist(name);
    CREATE INDEX item_brin ON item USING brin(id);
    DELETE FROM item WHERE id BETWEEN 2000 AND 6000;
    VACUUM item;
    INSERT INTO item SELECT i, 'late', 'late', point(i, i), ARRAY[i] FROM generate_series(20000, 20050) i;
    CREATE UNLOGGED TABLE loose(id int PRIMARY KEY);
    CHECKPOINT;";

impl Server {
    pub fn new(options: &[&str]) -> Self {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("the package postgresql is needed");
        let programs =
            versions.map(|entry| entry.expect("an entry").path().join("bin")).max().expect("a version");
        let server = Self { folder: tempfile::tempdir().expect("a folder"), programs };
        let owner = Command::new("chown").args(["postgres", server.path()]).status().expect("chown starts");
        assert!(owner.success());
        let data = server.data();
        let mut arguments =
            vec!["-D", &data, "-A", "trust", "-U", "postgres", "--no-sync", "--wal-segsize=1"];
        arguments.extend(options);
        server.run("initdb", &arguments);
        server.start();
        server
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("UTF-8")
    }

    fn data(&self) -> String {
        format!("{}/data", self.path())
    }

    /// A program of PostgreSQL's, as the user that it wants to be.
    fn tried(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("setpriv")
            .args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"])
            .arg(self.programs.join(program))
            .args(arguments)
            .current_dir(self.folder.path())
            .env("LC_ALL", "C")
            .output()
            .expect("setpriv starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("UTF-8"))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let (is_good, text) = self.tried(program, arguments);
        assert!(is_good, "{program} {arguments:?}: {text}");
        text
    }

    fn start(&self) {
        let options =
            format!("-h '' -k {} -c fsync=off -c autovacuum=off -c full_page_writes=on", self.path());
        let (data, log) = (self.data(), format!("{}/log", self.path()));
        let (is_good, _) =
            self.tried("pg_ctl", &["-D", &data, "-o", &options, "-l", &log, "-w", "-s", "start"]);
        assert!(is_good, "{}", fs::read_to_string(&log).unwrap_or_default());
    }

    pub fn stop(&self, how: &str) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", how, "-w", "-s", "stop"]);
    }

    /// What the server answers, a line each row.
    pub fn sql(&self, text: &str) -> Vec<String> {
        let mut arguments = vec!["-h", self.path(), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-qAt"];
        // Each is a transaction of its own; none has the sign in a text.
        text.split(';').for_each(|statement| arguments.extend(["-c", statement]));
        self.run("psql", &arguments).lines().map(str::to_owned).collect()
    }

    pub fn cluster(&self) -> Cluster {
        let (directory, _) = DataDirectory::around(Path::new(&self.data())).expect("a data directory");
        read_cluster(&directory, ReadOptions { names: true }).expect("read")
    }

    /// A file of it, by its path.
    pub fn file(&self, path: &str) -> PathBuf {
        Path::new(&self.data()).join(path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped.
        self.tried("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-s", "stop"]);
    }
}

fn damages(cluster: &Cluster) -> Vec<(&str, u64)> {
    let all = cluster.files.iter().flat_map(|file| file.map.damages.iter().map(move |damage| (file, damage)));
    all.map(|(file, damage)| (file.path.as_str(), damage.offset)).collect()
}

/// Kinds of the pages of a file.
fn words(map: &Map) -> Vec<&'static str> {
    let pages = map.extents().iter().flat_map(|extent| {
        std::iter::repeat_n(extent.kind.word(), (extent.length() / map.block_bytes) as usize)
    });
    pages.collect()
}

/// Questions about every page of an index: `%` is its name, the first page is number `from`, and what is answered of a page is its word.
const ASKED: [(&str, u32, &str); 5] = [
    ("btree", 1, "SELECT CASE type WHEN 'l' THEN 'btree_leaf' WHEN 'r' THEN 'btree_root' WHEN 'i' THEN 'btree_internal' ELSE 'free' END
        FROM generate_series(1, pg_relation_size('%') / 8192 - 1) n, LATERAL bt_page_stats('%', n) ORDER BY n"),
    ("hash", 0, "SELECT CASE type WHEN 'new' THEN 'unused' WHEN 'unused' THEN 'free' WHEN 'metapage' THEN 'hash_meta' ELSE 'hash_' || type END
        FROM generate_series(0, pg_relation_size('%') / 8192 - 1) n,
        LATERAL (SELECT CASE get_byte(get_raw_page('%', 'main', n), 18) WHEN 0 THEN 'new' ELSE hash_page_type(get_raw_page('%', 'main', n)) END) t(type) ORDER BY n"),
    ("gin", 0, "SELECT CASE WHEN 'meta' = ANY(flags) THEN 'gin_meta' WHEN 'deleted' = ANY(flags) THEN 'free' WHEN 'list' = ANY(flags) THEN 'gin_pending'
        ELSE 'gin_' || CASE WHEN 'data' = ANY(flags) THEN 'posting_' ELSE '' END || CASE WHEN 'leaf' = ANY(flags) THEN 'leaf' ELSE 'internal' END END
        FROM generate_series(0, pg_relation_size('%') / 8192 - 1) n, LATERAL gin_page_opaque_info(get_raw_page('%', 'main', n)) ORDER BY n"),
    ("gist", 0, "SELECT CASE WHEN 'deleted' = ANY(flags) THEN 'free' WHEN 'leaf' = ANY(flags) THEN 'gist_leaf' ELSE 'gist_internal' END
        FROM generate_series(0, pg_relation_size('%') / 8192 - 1) n, LATERAL gist_page_opaque_info(get_raw_page('%', 'main', n)) ORDER BY n"),
    ("brin", 0, "SELECT 'brin_' || brin_page_type(get_raw_page('%', 'main', n)) FROM generate_series(0, pg_relation_size('%') / 8192 - 1) n ORDER BY n"),
];

#[test]
fn every_page_is_what_the_server_says_it_is() {
    let server = Server::new(&["--data-checksums"]);
    server.sql(CONTENT);
    // What the server has of relations and their files.
    let rows = server.sql(
        "SELECT c.oid < 16384, c.relname, c.relkind, coalesce(a.amname, ''), pg_relation_filepath(c.oid), fork, pg_relation_size(c.oid, fork) / 8192
         FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam, (VALUES ('main'), ('fsm'), ('vm'), ('init')) f(fork)
         WHERE pg_relation_filepath(c.oid) IS NOT NULL AND pg_relation_size(c.oid, fork) > 0",
    );
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (method, first, question) in ASKED {
        let indexes = rows.iter().map(|row| row.split('|').collect::<Vec<_>>());
        for row in indexes.filter(|row| row[3] == method && row[5] == "main" && row[0] == "f") {
            let name = if row[1].starts_with("pg_toast") {
                format!("pg_toast.{}", row[1])
            } else {
                row[1].to_owned()
            };
            let mut pages = vec!["btree_meta".to_owned(); first as usize];
            pages.extend(server.sql(&question.replace('%', &name)));
            expected.insert(row[4].to_owned(), pages);
        }
    }
    server.stop("fast");
    let cluster = server.cluster();
    assert_eq!(cluster.has_checksums, Some(true));
    assert_eq!(damages(&cluster), []);
    let files: BTreeMap<&str, &Map> =
        cluster.files.iter().map(|file| (file.path.as_str(), &file.map)).collect();
    let mut seen = BTreeSet::new();
    for row in &rows {
        let [is_catalog, name, kind, method, path, fork, pages] = row.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("{row}")
        };
        let path = if fork == "main" { path.to_owned() } else { format!("{path}_{fork}") };
        let map = files[&*path];
        let words = words(map);
        assert_eq!(words.len(), pages.parse::<usize>().expect("a number"), "{path}");
        assert!(map.extents().iter().all(|extent| map.name(extent.owner) == Some(name)), "{path}");
        let single = match (fork, is_catalog, kind) {
            ("fsm", ..) => "fsm_page",
            ("vm", ..) => "vm_page",
            (_, "t", "i") => "catalog_index_page",
            (_, "t", _) => "catalog_page",
            (_, _, "t") => "toast_page",
            (_, _, "S") => "sequence_page",
            (_, _, "r") => "heap_page",
            _ => "",
        };
        match expected.get(&path) {
            Some(expected) => assert_eq!(&words, expected, "{name}: {method}"),
            None if !single.is_empty() => assert!(
                words.iter().all(|&word| word == single || matches!(word, "unused" | "free")),
                "{name}: {words:?}"
            ),
            // The server has no words for them.
            None if method == "spgist" => {
                assert_eq!(words[0], "spgist_meta");
                assert!(
                    words[1..].iter().all(|word| matches!(*word, "spgist_leaf" | "spgist_inner")),
                    "{words:?}"
                );
            }
            None => assert_eq!((fork, &words[..1]), ("init", &["btree_meta"][..]), "{name}"),
        }
        seen.extend(words);
    }
    for word in [
        "heap_page",
        "toast_page",
        "catalog_page",
        "catalog_index_page",
        "sequence_page",
        "fsm_page",
        "vm_page",
        "btree_meta",
        "btree_root",
        "btree_internal",
        "btree_leaf",
        "hash_meta",
        "hash_bucket",
        "hash_bitmap",
        "gist_internal",
        "gist_leaf",
        "gin_meta",
        "gin_internal",
        "gin_leaf",
        "gin_posting_leaf",
        "gin_pending",
        "spgist_meta",
        "spgist_inner",
        "spgist_leaf",
        "brin_meta",
        "brin_revmap",
        "brin_regular",
    ] {
        assert!(seen.contains(word), "{word}: {seen:?}");
    }
    for (path, word) in [
        ("global/pg_control", "control_file"),
        ("global/pg_filenode.map", "relation_map"),
        ("base/1/PG_VERSION", "version_file"),
        ("pg_xact/0000", "transaction_status"),
        ("pg_multixact/offsets/0000", "multixact"),
        ("postgresql.conf", "other_file"),
    ] {
        assert_eq!(files[path].extents()[0].kind.word(), word, "{path}");
    }
}

/// Flips a bit of a page of each kind, and counts what `pg_checksums` finds.
#[test]
fn a_wrong_checksum_is_found_where_pg_checksums_finds_it() {
    for (options, has_checksums) in [(&["--data-checksums"][..], true), (&[], false)] {
        let server = Server::new(options);
        server.sql("CREATE TABLE t AS SELECT i, repeat('x', 100) v FROM generate_series(1, 5000) i; CREATE INDEX t_i ON t(i); CHECKPOINT");
        let paths = server.sql("SELECT pg_relation_filepath('t') UNION ALL SELECT pg_relation_filepath('t_i') UNION ALL SELECT pg_relation_filepath('pg_proc')");
        server.stop("fast");
        assert_eq!(
            (damages(&server.cluster()), server.cluster().has_checksums),
            (vec![], Some(has_checksums))
        );
        for (path, at) in paths.iter().zip([3 * 8192 + 4000, 2 * 8192 + 6000, 5 * 8192 + 7000]) {
            let file = server.file(path);
            let mut bytes = fs::read(&file).expect("readable");
            bytes[at] ^= 8;
            fs::write(&file, bytes).expect("written");
        }
        let cluster = server.cluster();
        let found = damages(&cluster);
        let (is_good, text) = server.tried("pg_checksums", &["--check", "-D", &server.data()]);
        assert!(!is_good);
        match has_checksums {
            true => {
                assert!(text.contains("Bad checksums:  3"), "{text}");
                let expected: BTreeSet<(&str, u64)> =
                    paths.iter().map(String::as_str).zip([3 * 8192, 2 * 8192, 5 * 8192]).collect();
                assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
            }
            false => assert_eq!(found, [], "without sums nobody sees it"),
        }
    }
}

/// Of the log, what a replay after a crash would take.
#[test]
fn the_log_is_that_which_a_replay_takes() {
    let server = Server::new(&[]);
    server.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 30000) i; CHECKPOINT");
    server.sql("INSERT INTO t SELECT i FROM generate_series(1, 20000) i");
    server.stop("immediate");
    let text = server.run("pg_controldata", &["-D", &server.data()]);
    let line = text.lines().find(|line| line.contains("REDO location")).expect("told");
    let redo = line.split_whitespace().last().expect("a place");
    let place = |text: &str| {
        let (high, low) = text.split_once('/').expect("a place of the log");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        number(high) << 32 | number(low)
    };
    // Where the last record lies that can be read; what follows is an error to pg_waldump.
    let (_, text) = server.tried("pg_waldump", &["-p", &format!("{}/pg_wal", server.data()), "-s", redo]);
    let last = text.lines().filter_map(|line| line.split_once("lsn: ")).next_back().expect("records").1;
    let last = place(last.split(',').next().expect("a place"));
    let cluster = server.cluster();
    let mut pages = Vec::new();
    for file in cluster.files.iter().filter(|file| file.path.starts_with("pg_wal/0")) {
        let (log, segment) = (&file.path[15..23], &file.path[23..31]);
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let begin = (number(log) << 32) + (number(segment) << 20);
        let of_log = words(&file.map).into_iter().enumerate().filter(|(_, word)| *word == "wal_page");
        pages.extend(of_log.map(|(page, _)| begin + page as u64 * 8192));
    }
    pages.sort_unstable();
    let page_of = |place: u64| place - place % 8192;
    assert_eq!(pages.first(), Some(&page_of(place(redo))));
    assert!(pages.windows(2).all(|pair| pair[1] == pair[0] + 8192), "without gaps");
    assert!(pages.len() > 100);
    // The last record may end on the page after the one on which it begins.
    let end = *pages.last().expect("pages");
    assert!(end == page_of(last) || end == page_of(last) + 8192, "{end:#x}, {last:#x}");
}
