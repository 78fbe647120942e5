//! The guard as a subject, in its three modes, with rot on the disk and in the page cache below.

use crate::rig::{Rig, Trial};

const ON_DISK: &str = include_str!("../../examples/guard/rot-on-disk.yaml");
const IN_GUARD: &str = include_str!("../../examples/guard/rot-in-guard.yaml");
const IN_CACHE: &str = include_str!("../../examples/guard/rot-in-cache.yaml");

/// The example with other words.
fn changed(text: &str, changes: &[(&str, &str)]) -> Trial {
    let change = |text: String, (from, to): &(&str, &str)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    Trial::new(changes.iter().fold(text.to_owned(), change))
}

#[test]
fn rot_on_the_disk_is_silent_without_the_guard_and_an_error_in_both_other_modes() {
    let rig = Rig::new();
    rig.run(&Trial::new(ON_DISK)).assert_passed();
    let expected = "failures: 4, silent: 0, reported: 4";
    let silent = (expected, "failures: 4, silent: 4, reported: 0");
    rig.run(&changed(ON_DISK, &[("mode: z2", "mode: plain"), silent])).assert_passed();
    rig.run(&changed(ON_DISK, &[("mode: z2", "mode: e2e")])).assert_passed();
    // btrfs notices by itself, and the guard passes that on.
    rig.run(&changed(ON_DISK, &[("over: ext4", "over: btrfs")])).assert_passed();
    // The machine's memory is young: with a switch after a second every block is verified by the strong sum.
    rig.run(&changed(ON_DISK, &[("over: ext4", "over: xfs"), ("mode: z2", "switch: 1s")])).assert_passed();
}

#[test]
fn rot_in_the_cache_below_is_read_again_and_what_was_dirty_is_an_error() {
    let rig = Rig::new();
    rig.run(&Trial::new(IN_CACHE)).assert_passed();
    let dirty = [
        ("  prefill: true\n  reads: 100%\n", ""),
        ("file_system: ext4", "file_system: ext4, holds_dirty: true"),
    ];
    let reported = (
        "silent: 0, failures: 0, injections: 1, errors: 0",
        "silent: 0, reported: 1, failures: 1, injections: 1",
    );
    rig.run(&changed(IN_CACHE, &[dirty[0], dirty[1], reported])).assert_passed();
    let silent = (
        "silent: 0, failures: 0, injections: 1, errors: 0",
        "silent: 1, failures: 1, injections: 1, errors: 0",
    );
    let plain = ("over: { machine", "mode: plain, over: { machine");
    rig.run(&changed(IN_CACHE, &[dirty[0], dirty[1], plain, silent])).assert_passed();
}

#[test]
fn what_rots_in_the_memory_of_the_guard_is_right_or_an_error() {
    let rig = Rig::new();
    let (mut harmed, mut flipped) = (0, 0);
    for seed in 1..=4 {
        let run = rig.run(&changed(IN_GUARD, &[("stack:", &format!("seed: {seed}\nstack:"))]));
        run.assert_passed();
        let memory = run.lines("memory.jsonl").swap_remove(0);
        assert_eq!(memory["process"], "rotproof", "{memory}");
        assert!(["heap", "anonymous"].iter().any(|kind| memory["kind"] == *kind), "{memory}");
        harmed += run.count("errors");
        flipped += run.count("injections");
    }
    assert!(flipped >= 400, "{flipped}");
    assert!(harmed > 0, "none of {flipped} flips was noticed");
    // With a machine below, the memory that is meant is the machine's, as before.
    let run =
        rig.run(&changed(IN_CACHE, &[("{ target: { file: a, block: 7 } }", "{ places: 2, kind: heap }")]));
    assert!(run.text.contains("no memory of a machine is `heap`"), "{}", run.text);
}

#[test]
fn what_makes_no_sense_is_explained() {
    let rig = Rig::new();
    for (changes, part) in [
        (("mode: z2", "mode: e2e, switch: 1s"), "no second sum"),
        (("over: ext4", "over: raw"), "not raw"),
        (
            ("target: { last_block_of_every: 2MiB }", "target: { file: a, block: 7, by: extent }"),
            "does not say where",
        ),
    ] {
        let run = rig.run(&changed(ON_DISK, &[changes]));
        assert_eq!(run.code, 2, "{}", run.text);
        assert!(run.text.contains(part), "{}", run.text);
    }
}

/// A mount of a guard at a place that others use too. Each script has the commands `guard`, and `up`, which waits for a mount.
fn at_a_place(rig: &Rig, script: &str) -> String {
    const HEAD: &str = r#"guard() { exec "$ROTPROOF" guard "$@"; }
mkdir -p one two mnt
for d in one two; do [ -e $d/name ] || { (guard init $d >/dev/null 2>&1); echo $d >$d/name; }; done
up() { for i in $(seq 400); do mountpoint -q mnt && return; sleep 0.05; done; echo it is not mounted; exit 1; }
"#;
    rig.script(&format!("{HEAD}{script}"))
}

#[test]
fn what_is_mounted_where_a_guard_was_stays_mounted() {
    let rig = Rig::alone();
    // Somebody else unmounts it, and mounts something else before it has noticed: of another kind, and another guard.
    for other in ["mount -t tmpfs none mnt; echo two >mnt/name", "guard mount two mnt 2>/dev/null & up"] {
        let said = at_a_place(
            &rig,
            &format!(
                "guard mount one mnt 2>err & a=$!; up; umount mnt; {other}\nwait $a; echo ended with $?; sleep 0.3\n\
                 mountpoint -q mnt && cat mnt/name; umount mnt; wait; cat err"
            ),
        );
        assert!(said.starts_with("ended with 0\ntwo\n"), "{other}: {said}");
    }
    // Killed, it leaves a mount that nobody serves, which clean removes; and nothing that is served there since.
    let said = at_a_place(
        &rig,
        "guard mount one mnt 2>/dev/null & a=$!; up; kill -9 $a; wait $a 2>/dev/null || true; cat mnt/name 2>&1 || true
         $ROTPROOF clean >/dev/null 2>&1; grep -q $PWD/mnt /proc/self/mounts || echo it is gone
         guard mount one mnt 2>/dev/null & a=$!; up; kill -9 $a; wait $a 2>/dev/null || true; umount mnt
         guard mount two mnt 2>/dev/null & up; $ROTPROOF clean >/dev/null 2>&1; cat mnt/name; umount mnt; wait",
    );
    assert!(said.contains("not connected") && said.contains("it is gone\ntwo\n"), "{said}");
    // One that cannot mount takes nothing away that was there.
    let said = at_a_place(
        &rig,
        "guard mount two mnt 2>/dev/null & b=$!; up; mkdir -p mnt/in; (guard init mnt/in >/dev/null 2>&1)
         (guard mount mnt/in mnt 2>/dev/null) || echo refused with $?; cat mnt/name; kill $b; wait $b || true",
    );
    assert_eq!(said, "refused with 2\ntwo\n");
    // What is mounted over it is not taken away for it.
    let said = at_a_place(
        &rig,
        "guard mount one mnt 2>err & a=$!; up; mount -t tmpfs none mnt; echo over >mnt/name
         kill $a; wait $a || echo ended with $?; cat mnt/name; umount mnt; cat err
         $ROTPROOF clean >/dev/null 2>&1; grep -q $PWD/mnt /proc/self/mounts || echo it is gone",
    );
    assert!(said.contains("over\n") && said.contains("unmount that first"), "{said}");
    assert!(said.ends_with("it is gone\n"), "{said}");
    rig.assert_nothing_left();
}
