//! What programs do that know nothing of a guard, through whichever door.

use std::path::Path;
use std::process::Command;

/// Makes a repository with many commits, packs it and looks at all of it.
pub const GIT: &str = "git init -q . && git config user.email a@b && git config user.name a \
    && for i in $(seq 20); do echo $i > file$i; git add . && git commit -qm $i; done \
    && git gc -q && git fsck --strict && git checkout -q HEAD~5 && git checkout -q - && git status --short";

/// Makes and changes a database `MODE.db` in a mode of the journal.
pub fn database(mode: &str) -> String {
    format!(
        "sqlite3 {mode}.db \"pragma journal_mode={mode}; create table t(a integer primary key, b text);\" \
         && for i in $(seq 10); do sqlite3 {mode}.db \"begin; insert into t(b) select hex(randomblob(100)) from \
         (with recursive c(x) as (select 1 union all select x+1 from c where x<200) select x from c); \
         update t set b=b||'x' where a%7=0; commit;\"; done \
         && sqlite3 {mode}.db 'pragma integrity_check; select count(*) from t;'"
    )
}

/// Archives and copies a tree, and compares.
pub const COPIES: &str = "mkdir tree && for i in $(seq 30); do head -c $((i * 3000)) /dev/zero | tr '\\0' $((i % 10)) > tree/f$i; done \
    && ln tree/f1 tree/link && truncate -s 1M tree/sparse \
    && tar cf a.tar tree && mkdir out && tar xf a.tar -C out && diff -r tree out/tree \
    && rsync -aH tree/ copy/ && rsync -aHc --itemize-changes tree/ copy/ > changes && test ! -s changes \
    && cp -a --sparse=always tree third && diff -r tree third";

/// Compiles a program and runs it.
pub const COMPILER: &str = "printf '#include <stdio.h>\\nint main(void) { puts(\"built\"); return 0; }\\n' > a.c \
    && cc -O2 -o a a.c && ./a";

/// PostgreSQL in the folder `pg` of a folder, in a mount namespace of its own in which that is /mnt: it refuses to be root, and others
/// need not be able to enter the folders of a test. Its processes get the environment `with`, and find `library` as /media/library.
/// Without an error it says where its table is in `pg`, in the end.
pub fn postgres(folder: &Path, with: &str, library: Option<&Path>, step: Postgres) -> String {
    let library = library.map_or(String::new(), |library| {
        format!("mount -t tmpfs none /media; install -m 755 {} /media/library;", library.display())
    });
    let step = match step {
        Postgres::Make => {
            "install -d -o postgres -m 700 pg; test ! -e .rotproof-guard || chown -R postgres .rotproof-guard; \
             as initdb -D pg -A trust -U postgres > /dev/null; start; \
             sql -c 'create table t(k int primary key, n int, v text)' \
                 -c \"insert into t select k, 0, lpad(k::text, 1000, '0') from generate_series(1, 2000) k\" \
                 -c 'update t set n = n + 1 where k % 3 = 0' -c 'vacuum full t' -c checkpoint; \
             test $(sql -c 'select sum(n) from t') = 666; stop; start; \
             sql -c \"select count(*) from t where v = lpad(k::text, 1000, '0')\" | grep -qx 2000; \
             sql -c \"select pg_relation_filepath('t')\"; stop"
        }
        Postgres::Read => "start; sql -c 'select sum(length(v)) from t' || { stop; exit 9; }; stop",
    };
    format!(
        "exec unshare --mount sh -ec 'mount --bind {} /mnt; {library} cd /mnt; \
         PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; \
         as() {{ setpriv --reuid postgres --regid postgres --init-groups env {with} \"$@\"; }}; \
         start() {{ as pg_ctl -s -D pg -o \"-h \\\"\\\" -k /mnt/pg\" -l pg/log -w start; }}; \
         stop() {{ as pg_ctl -s -D pg -m fast -w stop; }}; \
         sql() {{ psql -v ON_ERROR_STOP=1 -qAt -h /mnt/pg -U postgres \"$@\"; }}; {}'",
        folder.display(),
        step.replace('\'', "'\\''"),
    )
}

/// What PostgreSQL is to do.
#[derive(Clone, Copy)]
pub enum Postgres {
    /// Make a cluster and a table, change it, and read it after a restart.
    Make,
    /// Read all of the table. Exit code 9 if that is an error.
    Read,
}

/// Installs what is not there, as Debian packages.
pub fn need(program: &str, package: &str) {
    let is_there = || Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    if !is_there().expect("a shell").status.success() {
        let install =
            format!("apt-get update -qq && apt-get install -y -qq --no-install-recommends {package}");
        let done =
            Command::new("sh").args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive").output();
        assert!(done.expect("a shell").status.success(), "{package} cannot be installed");
    }
}

/// Runs a script with more environment, and gives what it said and whether it went well.
pub fn run(folder: &Path, environment: &[(&str, &str)], script: &str) -> (bool, String) {
    let output = Command::new("timeout")
        .args(["120", "sh", "-ec", script])
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(environment.iter().copied())
        .output()
        .expect("a shell");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
