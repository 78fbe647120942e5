//! Programs that know nothing of the guard, unchanged; and what they are told when a bit flips below them.

use crate::rig::{Rig, library};
use crate::scripts::{COMPILER, COPIES, GIT, Postgres, database, need, postgres, run};

#[test]
fn git_works_and_a_flip_in_its_pack_is_an_error() {
    need("git", "git");
    let rig = Rig::new();
    // So that there is a pack of many blocks.
    rig.good("seq 100000 | sha256sum > seed && seq 60000 | while read i; do echo $i$i$i; done > large");
    // The guard's own folder is no business of git.
    rig.good(&format!("mkdir work && cd work && mv ../large . && {GIT}"));
    rig.assert_all_guarded();
    let pack = rig.good("ls work/.git/objects/pack/*.pack");
    rig.flip_on_disk(pack.trim(), 10 * 4096 * 8);
    let (is_good, text) = rig.run("cd work && git fsck --full");
    assert!(!is_good && rig.status().events.len() == 1, "{text}");
}

#[test]
fn a_database_works_and_a_flip_is_an_error() {
    need("sqlite3", "sqlite3");
    let rig = Rig::new();
    let text = rig.good(&database("delete"));
    assert!(text.contains("ok\n2000"), "{text}");
    rig.assert_all_guarded();
    rig.flip_on_disk("delete.db", 20 * 4096 * 8 + 99);
    let (is_good, text) = rig.run("sqlite3 delete.db 'select sum(length(b)) from t;'");
    // SQLite calls EIO of a read an I/O error or a malformed database.
    assert!(!is_good && !rig.check().is_clean(), "{text}");
}

#[test]
fn postgresql_works_and_a_flip_in_its_table_is_an_error_or_repaired() {
    need("pg_ctlcluster", "postgresql");
    let rig = Rig::new();
    let root = rig.root();
    let with = "LD_PRELOAD=/media/library ROTPROOF_GUARD_ROOT=/mnt";
    let (is_good, text) = run(&root, &[], &postgres(&root, with, Some(library()), Postgres::Make));
    assert!(is_good, "{text}");
    let table = format!("pg/{}", text.lines().last().expect("where the table is"));
    let report = rig.check();
    assert!(report.rotten_count == 0 && report.failed.is_empty(), "{report:?}");
    assert!(!report.unguarded.contains(&table) && !report.foreign.contains(&table), "{report:?}");
    let mirror = rig.beside("mirror");
    assert!(run(&root, &[], &format!("cp -a . {}", mirror.display())).0, "copied");
    rig.flip_on_disk(&table, 16 * 4096 * 8 + 12_345);
    let (is_good, text) = run(&root, &[], &postgres(&root, with, Some(library()), Postgres::Read));
    assert!(!is_good && text.contains("Input/output error"), "{text}");
    // With a second copy nobody notices.
    let report = rig.repair(&mirror);
    assert_eq!((report.repaired_count, report.rotten_count), (1, 0), "{report:?}");
    let (is_good, text) = run(&root, &[], &postgres(&root, with, Some(library()), Postgres::Read));
    assert!(is_good && text.contains("2000000"), "{text}");
}

#[test]
fn a_database_that_maps_its_index_for_writing_works_and_nothing_is_claimed_of_that() {
    need("sqlite3", "sqlite3");
    let rig = Rig::new();
    let text = rig.good(&database("wal"));
    assert!(text.contains("ok\n2000"), "{text}");
    // The index of the log is gone with the last connection; what happened to it is in the journal.
    let status = rig.status();
    let events: Vec<String> = status.events.keys().map(|what| format!("{what:?}")).collect();
    assert_eq!((status.guarded, events), (status.files, vec!["Mapped".to_owned()]));
    assert!(rig.check().is_clean());
}

#[test]
fn archives_and_copies_come_back_and_a_flip_is_mended_from_a_mirror() {
    need("rsync", "rsync");
    let mut rig = Rig::new();
    rig.good(COPIES);
    rig.assert_all_guarded();
    let mirror = rig.beside("mirror");
    let copy = format!("cp -a {} {}", rig.root().display(), mirror.display());
    assert!(run(&rig.root(), &[], &copy).0);
    rig.flip_on_disk("a.tar", 50 * 4096 * 8 + 5);
    rig.flip_on_disk("copy/f20", 4096 * 8);
    let (is_good, text) = rig.run("tar xOf a.tar > /dev/null");
    assert!(!is_good, "{text}");
    let (is_good, text) = rig.run("rsync -ac copy/ fourth/");
    assert!(!is_good, "{text}");
    rig.mirror = Some(mirror);
    rig.good("tar xOf a.tar > /dev/null && rsync -ac copy/ fourth/ && diff -r tree fourth");
    assert!(rig.check().is_clean());
}

#[test]
fn a_compiler_works_and_a_flip_in_its_source_is_an_error() {
    need("cc", "gcc");
    let rig = Rig::new();
    assert_eq!(rig.good(COMPILER), "built\n");
    rig.assert_all_guarded();
    rig.flip_on_disk("a.c", 30);
    let (is_good, text) = rig.run("cc -O2 -o a a.c");
    assert!(!is_good && text.contains("a.c"), "{text}");
}

#[test]
fn a_program_runs_what_it_has_just_written() {
    need("python3", "python3");
    let rig = Rig::new();
    let script = "import os, subprocess\n\
        text = b'#!/bin/sh\\necho $0\\n'\n\
        def write(name, mode):\n\
        \x20   file = os.open(name, os.O_RDWR | os.O_CREAT, mode)\n\
        \x20   os.write(file, text)\n\
        \x20   return file\n\
        os.close(write('./a', 0o644))\n\
        os.chmod('./a', 0o755)\n\
        os.close(write('./b', 0o755))\n\
        c = write('./c', 0o644)\n\
        os.fchmod(c, 0o755)\n\
        os.close(c)\n\
        d = write('./d', 0o755)\n\
        os.fsync(d)\n\
        os.close(d)\n\
        e = write('./e', 0o644)\n\
        os.fsync(e)\n\
        os.fchmod(e, 0o755)\n\
        os.close(e)\n\
        for name in 'abcde':\n\
        \x20   print(subprocess.run(['./' + name], capture_output=True, check=True).stdout.decode(), end='')\n";
    std::fs::write(rig.beside("run.py"), script).expect("written");
    assert_eq!(rig.good("python3 ../run.py"), "./a\n./b\n./c\n./d\n./e\n");
    rig.assert_all_guarded();
}

#[test]
fn the_small_programs_of_every_day_work() {
    let rig = Rig::new();
    let script = "seq 50000 > a && sort -rn a > b && sort -n -o c b && cmp a c \
        && cp a d && mv d e && dd if=a of=f bs=1000 conv=fsync 2> log && cmp a f && split -n 4 a part. \
        && cat part.* > g && cmp a g && sed -i s/999/abc/ g && grep -c abc g > count && awk '{ n += $1 } END { print n }' a > sum \
        && tail -c 10 a > tail && head -n 5 a | tee tee1 > tee2 && cmp tee1 tee2 && truncate -s 100 f && touch -d 2001-01-01 e \
        && gzip -k a && gunzip -c a.gz | cmp - a && install -m 600 a i && ln a hard && shuf -o shuffled a && sort -n shuffled | cmp - a \
        && dd if=/dev/zero of=f bs=1 seek=50 count=10 conv=notrunc 2>> log && (exec 3<> a; read x <&3; echo $x; read y <&3; echo $y) > read \
        && for i in 1 2 3 4; do (seq 1000 | sed s/^/$i/) >> appended & done; wait; wc -l < appended; rm part.*; cat read sum";
    assert_eq!(rig.good(script), "4000\n1\n2\n1250025000\n");
    rig.assert_all_guarded();
    rig.flip_on_disk("hard", 20 * 4096 * 8 + 1);
    for reader in ["cat a", "cp a h", "sort a", "wc -w < a", "grep -c 1 a", "md5sum a", "cmp a c"] {
        let (is_good, text) = rig.run(&format!("{reader} > out"));
        assert!(!is_good, "{reader}: {text}");
    }
}

#[test]
fn c_plus_plus_and_python_write_through_their_own_buffers() {
    need("g++", "g++");
    need("python3", "python3");
    let rig = Rig::new();
    let source = "#include <iostream>\n#include <fstream>\nint main() { std::cout << \"to cout\" << std::endl; \
        std::ofstream(\"stream\") << std::string(100000, 'y'); std::ifstream in(\"stream\"); std::string all; in >> all; \
        std::cout << all.size() << std::endl; }\n";
    std::fs::write(rig.beside("a.cc"), source).expect("written");
    let script = "g++ -o ../program ../a.cc && ../program > cout && cat cout \
        && python3 -c \"open('p','w').write('x'*100000); f=open('p','r+b'); f.seek(5000); f.write(b'abc'); f.flush(); \
        import os; os.fsync(f.fileno()); print(len(open('p').read()))\" > printed && cat printed";
    assert_eq!(rig.good(script), "to cout\n100000\n100000\n");
    rig.assert_all_guarded();
}

#[test]
fn who_reads_a_mapping_behind_the_end_of_its_file_dies_as_without_the_guard() {
    let script = "timeout -s KILL 60 python3 -c \"import mmap, os
file = os.open('cut', os.O_RDWR | os.O_CREAT)
os.write(file, bytes(20000))
mapping = mmap.mmap(file, 20000, mmap.MAP_SHARED, mmap.PROT_READ)
os.ftruncate(file, 4096)
mapping[10000]\" || echo ended with $?";
    let (_, text) = Rig::new().run(script);
    // SIGBUS.
    assert!(text.contains("ended with 135"), "{text}");
}
