//! Starts the machine on what is served here, and listens to its console.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::disk::{DISK_BYTES, rules};
use crate::image;
use crate::inside::{DONE, STEPS};
use crate::stage::{PATIENCE, Stage, address};

/// Killed on every way out.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn main() {
    a_linux_guest_works_with_our_exports_and_sees_the_faults();
}

fn a_linux_guest_works_with_our_exports_and_sees_the_faults() {
    let mut stage = Stage::new();
    std::fs::write(
        stage.path("disk.yaml"),
        format!("stack: [memory: {{ size: {DISK_BYTES}, block_size: 512 }}]\n"),
    )
    .expect("written");
    let [bad, bad_write] = rules();
    let (index, ready) = stage.serve(&[
        "--as",
        "vhost",
        "--as",
        "nbd",
        "--listen",
        "127.0.0.1:0",
        "--fault",
        &bad,
        "--fault",
        &bad_write,
    ]);
    let socket = address(&ready, "vhost");
    let uri = address(&ready, "nbd");
    let uri = uri.to_str().expect("UTF-8");
    let port = uri.trim_end_matches('/').rsplit(':').next().expect("a port");
    let (kernel, modules) = image::kernel();
    let initial = stage.path("initial.cpio");
    let this = std::env::current_exe().expect("this program");
    let programs = [
        ("bin/rotproof", Path::new(env!("CARGO_BIN_EXE_rotproof"))),
        ("bin/mkfs.ext4", Path::new("/sbin/mkfs.ext4")),
    ];
    image::write(&initial, &modules, &this, &programs);
    let mut machine = Machine(
        Command::new("qemu-system-x86_64")
            .args([
                "-accel",
                "tcg,thread=multi",
                "-smp",
                "3",
                "-machine",
                "pc,memory-backend=m",
                "-m",
                "512M",
            ])
            .args(["-object", "memory-backend-memfd,id=m,size=512M,share=on"])
            .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"])
            .args(["-chardev", &format!("socket,id=c,path={}", socket.display())])
            .args(["-device", "vhost-user-blk-pci,chardev=c,num-queues=3"])
            .args(["-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initial)
            .args(["-append", &format!("console=ttyS0 loglevel=4 panic=-1 rotproof_port={port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("qemu-system-x86_64 is needed for this test"),
    );
    let console = machine.0.stdout.take().expect("it was asked for");
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
    });
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => said.push(line),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("the machine says nothing for {PATIENCE:?} after:\n{}", said.join("\n"))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let expected: Vec<String> =
        STEPS.iter().map(|step| format!("guest: {step}")).chain([DONE.to_owned()]).collect();
    let told: Vec<&String> = said.iter().filter(|line| line.starts_with("guest: ")).collect();
    assert!(told.iter().copied().eq(&expected), "the console:\n{}", said.join("\n"));
    drop(machine);
    let injections = stage.ctl_json(&["injections", "--last", "100"]);
    for rule in ["bad", "bad-write"] {
        let of_rule =
            injections["injections"].as_array().expect("a list").iter().filter(|hit| hit["name"] == rule);
        assert!(of_rule.count() >= 2, "{rule} was met over vhost-user and over NBD: {injections}");
    }
    assert_eq!(stage.end(index, libc::SIGTERM), Some(143), "{}", stage.stderr());
    stage.assert_nothing_left();
}
