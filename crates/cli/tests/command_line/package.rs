//! The Debian package: built from the binary of these tests, unpacked, and used.

use std::path::Path;
use std::process::{Command, Output};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_package_has_the_command_its_pages_and_completions_that_shells_take() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().expect("a folder");
    let built = Command::new(root.join("packaging/debian"))
        .args(["--binary", env!("CARGO_BIN_EXE_rotproof"), "--output"])
        .arg(folder.path())
        .output()
        .expect("the script starts");
    assert!(built.status.success(), "{}", text(&built));
    let package = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    let at = folder.path().join("unpacked");
    let unpacked = Command::new("dpkg-deb").args(["-x", &package]).arg(&at).output().expect("dpkg-deb");
    assert!(unpacked.status.success(), "{}", text(&unpacked));
    let fields = Command::new("dpkg-deb").args(["-f", &package]).output().expect("dpkg-deb");
    for field in ["Package: rotproof", "Depends: libc6 (>= 2.", "Installed-Size: "] {
        assert!(text(&fields).contains(field), "{}", text(&fields));
    }
    let version = Command::new(at.join("usr/bin/rotproof")).arg("--version").output().expect("it starts");
    assert!(
        text(&version).starts_with(concat!("rotproof ", env!("CARGO_PKG_VERSION"))),
        "{}",
        text(&version)
    );
    for file in [
        "usr/share/man/man1/rotproof.1.gz",
        "usr/share/man/man1/rotproof-run.1.gz",
        "usr/share/zsh/vendor-completions/_rotproof",
        "usr/share/fish/vendor_completions.d/rotproof.fish",
        "usr/share/doc/rotproof/copyright",
        "usr/share/doc/rotproof/examples/first-trial.yaml",
    ] {
        assert!(at.join(file).is_file(), "{file}");
    }
    // As bash asks when somebody presses the key behind `rotproof ru` and `rotproof run --ju`.
    let script = "source \"$1\"; \
                  ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                  _rotproof rotproof \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[*]}\"; }; \
                  ask rotproof ru; ask rotproof run --ju";
    let completions = at.join("usr/share/bash-completion/completions/rotproof");
    let asked = Command::new("bash").args(["-c", script, "bash"]).arg(completions).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "run\n--junit\n", "{}", text(&asked));
    // As fish is asked by programs.
    let fish = at.join("usr/share/fish/vendor_completions.d/rotproof.fish");
    let script = "source $argv[1]; complete -C 'rotproof ru'; complete -C 'rotproof run --ju'";
    let asked =
        Command::new("fish").args(["--no-config", "-c", script]).arg(fish).output().expect("fish starts");
    let said = text(&asked);
    let words: Vec<&str> = said.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, ["run", "--junit"], "{said}");
    let asked = Command::new("timeout")
        .args(["60", "zsh", "-f", "-c", ZSH, "zsh"])
        .arg(at.join("usr/share/zsh/vendor-completions"))
        .output()
        .expect("zsh starts");
    let said = text(&asked);
    assert!(said.contains("<<rotproof run --junit"), "{said}");
}

/// In a shell behind a terminal of its own somebody presses the keys; ^G shows what then stands on the line. What is typed before
/// the shell has come so far waits for it.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit && compinit -u -D"
zpty -w shell 'show() { print -r -- "<<$BUFFER>>" }; zle -N show; bindkey "^G" show; print RE""ADY'
zpty -r shell said '*READY*'
zpty -w -n shell $'rotproof run --ju\t'
zpty -w -n shell $'\a'
zpty -r shell said '*<<*>>*'
print -r -- "$said"
"#;
