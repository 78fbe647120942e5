//! Every call that the library stands in front of, made by a program in C: it says the same with the guard as without.

use std::process::Command;

use crate::rig::Rig;

#[test]
fn every_call_answers_as_without_the_guard() {
    let rig = Rig::new();
    let program = rig.beside("calls");
    let source = format!("{}/tests/preload/calls.c", env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-lpthread")
        .output()
        .expect("a compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let plain = rig.beside("plain");
    std::fs::create_dir(&plain).expect("a folder");
    let script = program.display().to_string();
    let (is_good, wanted) = crate::scripts::run(&plain, &[], &script);
    assert!(is_good, "{wanted}");
    let (is_good, found) = rig.run(&script);
    assert!(is_good, "{found}");
    assert_eq!(found, wanted);
    let same = format!("diff -r -x .rotproof-guard {} {}", plain.display(), rig.root().display());
    let (is_same, difference) = crate::scripts::run(&plain, &[], &same);
    assert!(is_same, "{difference}");
    rig.assert_all_guarded();
}

#[test]
fn what_would_go_past_the_guard_is_refused() {
    let rig = Rig::new();
    let script = "import os\n\
        a = os.open('a', os.O_RDWR | os.O_CREAT)\n\
        os.write(a, b'x' * 10000)\n\
        b = os.open('b', os.O_RDWR | os.O_CREAT)\n\
        for act in (lambda: os.sendfile(b, a, 0, 10), lambda: os.copy_file_range(a, b, 10), \
        lambda: os.splice(a, os.pipe()[1], 10, offset_src=0)):\n\
        \x20   try:\n\
        \x20       act(); print('done')\n\
        \x20   except OSError as error:\n\
        \x20       print(error.errno)\n";
    std::fs::write(rig.beside("past.py"), script).expect("written");
    let wanted = format!("{}\n{}\n{}\n", libc::EINVAL, libc::EXDEV, libc::EINVAL);
    assert_eq!(rig.good("python3 ../past.py"), wanted);
    rig.assert_all_guarded();
}
