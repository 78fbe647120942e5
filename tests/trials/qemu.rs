//! Machines of QEMU: a kernel for real machines, its disk over each export, its flushes on their way down.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::rig::{Rig, Trial};

/// A folder with a kernel for guests: `vmlinuz`, and modules with their index.
fn kernel() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-kernel");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guest/fetch-kernel");
    let status = Command::new(&script).arg(&folder).status().expect("bash starts");
    assert!(status.success(), "{} has not brought a kernel, see above", script.display());
    folder
}

pub(super) fn machine(more: &str) -> String {
    let folder = kernel();
    format!(
        "{{ machine: {{ kind: qemu, kernel: {0}/vmlinuz, modules: {0}, memory: 256MiB, {more} }} }}",
        folder.display()
    )
}

#[test]
fn a_disk_over_each_export_carries_a_file_system_and_its_faults() {
    let rig = Rig::new();
    for (disk, file_system) in [("file", "ext4"), ("nbd", "btrfs"), ("vhost", "xfs")] {
        let subject = machine(&format!("disk: {disk}, file_system: {file_system}"));
        // A block of a file rots on the disk; the guest's kernel is asked for it anew.
        let flip = "faults: [ \"read, target=file(a, block=7), during=check: bit_flip\" ]\n";
        let silent = file_system != "btrfs";
        let expect = if silent {
            "expect: { silent: '>= 1', failures: any }\n"
        } else {
            "expect: { silent: 0, reported: '>= 1', failures: any, errors: any }\n"
        };
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {subject}\n\
             load: {{ files: {{ count: 2, size: 1MiB }}, reads: 100%, requests: 200 }}\n{flip}{expect}"
        )));
        run.assert_passed();
        assert!(run.count("injections") > 0, "{disk}: {}", run.text);
    }
    rig.assert_nothing_left();
}

#[test]
fn flushes_of_a_guest_arrive_and_a_disk_that_lies_about_them_is_caught() {
    let rig = Rig::new();
    let run = |cache: &str| {
        rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 320MiB }}, {cache}, faults ]\nsubject: {}\n\
             load: {{ files: {{ count: 2, size: 1MiB }}, reads: 20%, requests: 300, flush_every: 20 }}\n\
             faults: [ \"write, nth=150, during=run: power_cut(keeps=none)\" ]\nstop: kill_with_power\n\
             expect: {{ failures: any, errors: any, silent: 0 }}\n",
            machine("disk: vhost, file_system: ext4"),
        )))
    };
    // Were they lost on the way, all that the cache held would be gone here, too.
    let honest = run("write_cache");
    honest.assert_passed();
    assert!(honest.count("injections") > 0, "the power went: {}", honest.text);
    // It does not come up, or without what was flushed: no rule accounts for that.
    let lying = run("write_cache: { ignores: flush }");
    assert_eq!(lying.code, 1, "{}", lying.text);
    assert!(lying.count("unexplained") + lying.count("assumed") > 0, "{}", lying.text);
    rig.assert_nothing_left();
}

#[test]
fn a_trial_has_the_same_verdict_from_a_snapshot_as_from_a_boot() {
    let rig = Rig::new();
    let run = |snapshot: bool, disk: &str| {
        let run = rig.run(&Trial::new(format!(
            "stack: [ memory: {{ size: 320MiB }}, faults ]\nsubject: {}\n\
             load: {{ files: {{ count: 2, size: 1MiB }}, reads: 50%, requests: 200 }}\n\
             faults: [ \"read, target=file(a, block=7), during=check: bit_flip\" ]\n\
             expect: {{ silent: '>= 1', failures: any }}\n",
            machine(&format!("disk: {disk}, file_system: ext4, snapshot: {snapshot}")),
        )));
        run.assert_passed();
        let console = std::fs::read_to_string(run.file("console.txt")).expect("the console is kept");
        assert_eq!(console.contains("the guest goes on from it"), snapshot, "{console}");
        ["injections", "failures", "silent", "reported", "masked", "unknown"].map(|word| run.count(word))
    };
    let booted = run(false, "file");
    for disk in ["file", "nbd", "vhost"] {
        assert_eq!(run(true, disk), booted, "{disk}");
    }
    rig.assert_nothing_left();
}
