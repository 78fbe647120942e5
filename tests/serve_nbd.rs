//! A stack served over NBD, over TCP and with TLS, to the clients that people have: libnbd's, QEMU's, fio.

mod stage;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stage::{Stage, certificates, outcome};

/// What a program says that must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let (succeeded, text) = outcome(Command::new(program).args(arguments));
    assert!(succeeded, "{program} {arguments:?}: {text}");
    text
}

fn addresses(ready: &Value) -> Vec<&str> {
    let exports = ready["exports"].as_array().expect("a list");
    assert!(exports.iter().all(|export| export["as"] == "nbd"), "{ready}");
    exports.iter().map(|export| export["address"].as_str().expect("a text")).collect()
}

#[test]
fn foreign_clients_reach_it_over_tcp_and_by_a_socket_of_any_name() {
    let mut stage = Stage::new();
    let (index, ready) =
        stage.serve(&["--as", "nbd", "--listen", "127.0.0.1:0", "--listen", "unix:here.sock"]);
    let [tcp, unix] = addresses(&ready)[..] else { panic!("{ready}") };
    assert!(tcp.starts_with("nbd://127.0.0.1:") && !tcp.contains(":0/"), "{tcp}");
    let expected = format!("nbd+unix:///?socket={}", stage.path("here.sock").display());
    assert_eq!(unix, expected);
    for uri in [tcp, unix] {
        assert!(run("nbdinfo", &["--size", uri]).starts_with("1048576"));
        assert!(run("qemu-img", &["info", uri]).contains("1 MiB"), "{uri}");
    }
    // What is written by the one is read by the other.
    let written = run("qemu-io", &["-f", "raw", "-c", "write -P 7 4k 64k", "-c", "flush", tcp]);
    assert!(written.contains("wrote 65536/65536"), "{written}");
    let read = run("qemu-io", &["-f", "raw", "-r", "-c", "read -P 7 4k 64k", unix]);
    assert!(read.contains("read 65536/65536") && !read.contains("failed"), "{read}");
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    assert!(!stage.path("here.sock").exists());
    stage.assert_nothing_left();
}

#[test]
fn what_is_printed_can_be_pasted_into_a_shell() {
    let mut stage = Stage::new();
    let mut command = stage.command(&["serve", "disk.yaml", "--as", "nbd", "--listen", ":0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let stdout = child.stdout.take().expect("it was asked for");
    stage.served.push(child);
    let text = stage::lines_until(stdout, "Ctrl-C");
    let pasted = text.lines().find(|line| line.contains("fio ")).expect("a command for fio").trim();
    let (succeeded, said) = outcome(Command::new("sh").args(["-c", pasted]).current_dir(stage.folder.path()));
    assert!(succeeded && said.contains("err= 0"), "{pasted}: {said}");
    assert_eq!(stage.end(0, libc::SIGTERM), Some(143));
    stage.assert_nothing_left();
}

#[test]
fn with_tls_clients_are_let_in_with_it_and_with_verification_by_their_certificates() {
    let mut stage = Stage::new();
    let folder = stage.path("pki");
    std::fs::create_dir(&folder).expect("a new folder");
    certificates(&folder);
    let pki = folder.to_str().expect("UTF-8").to_owned();
    let bare = stage.path("bare");
    std::fs::create_dir(&bare).expect("a new folder");
    std::fs::copy(folder.join("ca-cert.pem"), bare.join("ca-cert.pem")).expect("copied");
    for verify in [false, true] {
        let mut arguments = vec!["--as", "nbd", "--listen", "127.0.0.1:0", "--tls", &pki];
        arguments.extend(verify.then_some("--tls-verify-clients"));
        let (index, ready) = stage.serve(&arguments);
        let [uri] = addresses(&ready)[..] else { panic!("{ready}") };
        assert!(uri.starts_with("nbds://127.0.0.1:"), "{uri}");
        let with = |folder: &Path| format!("{uri}?tls-certificates={}", folder.display());
        assert!(run("nbdinfo", &["--size", &with(&folder)]).starts_with("1048576"));
        let (host, port) = uri["nbds://".len()..].trim_end_matches('/').split_once(':').expect("a port");
        let image = format!("driver=nbd,host={host},port={port},tls-creds=t");
        let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={pki}");
        let info = run("qemu-img", &["info", "--object", &credentials, "--image-opts", &image]);
        assert!(info.contains("1 MiB"), "{info}");
        // Without TLS nobody, without a certificate who need not have one.
        let clear = uri.replacen("nbds:", "nbd:", 1);
        assert!(!outcome(Command::new("nbdinfo").args(["--size", &clear])).0);
        let stranger = outcome(Command::new("nbdinfo").args(["--size", &with(&bare)]));
        assert_eq!(stranger.0, !verify, "{}", stranger.1);
        assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
        stage.assert_nothing_left();
    }
}

#[test]
fn what_cannot_be_listened_at_is_refused_and_what_is_there_stays() {
    let stage = Stage::new();
    std::fs::write(stage.path("taken"), "dear").expect("written");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let busy = busy.local_addr().expect("an address").to_string();
    let serve = ["serve", "disk.yaml", "--as"];
    for (arguments, code, part) in [
        (&["file", "--listen", ":0"][..], 2, "add `--as nbd`"),
        (&["nbd", "--listen", "example"], 2, "is no place to listen at"),
        (&["nbd", "--listen", "unix:taken"], 2, "is there already"),
        (&["nbd", "--listen", ":0", "--tls-verify-clients"], 2, "--tls <dir>"),
        (&["nbd", "--listen", ":0", "--tls", "nowhere"], 3, "server-key.pem"),
    ] {
        let ended = stage.run(&[&serve, arguments].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.to_lowercase().contains(part), "{arguments:?}: {}", ended.stderr);
    }
    let ended = stage.run(&[&serve[..], &["nbd", "--listen", &busy]].concat());
    assert!(ended.code != 0 && ended.stderr.contains(&busy), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(stage.path("taken")).expect("still there"), "dear");
    assert!(stage.run(&["clean"]).stdout.starts_with("Nothing to clean"));
}
