//! The programs that people use: libnbd's tools, QEMU's tools, fio.

use std::fs;

use rotproof_block::leaf::MemoryDevice;
use rotproof_export::NbdOptions;

use crate::server::{Served, export, run};

const SIZE: u64 = 16 << 20;

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn nbdinfo_describes_the_exports() {
    let device = || MemoryDevice::new(SIZE, 512).expect("sizes that fit");
    let served = Served::new(vec![export("one", device()), export("two", device())], NbdOptions::default());
    let described = run("nbdinfo", &["--json", &served.uri()]);
    for part in [
        "\"export-size\": 16777216",
        "\"can_multi_conn\": true",
        "\"structured\": true",
        "\"base:allocation\"",
    ] {
        assert!(described.contains(part), "{part} in {described}");
    }
    let listed = run("nbdinfo", &["--list", &served.uri()]);
    assert!(listed.contains("export=\"one\"") && listed.contains("export=\"two\""), "{listed}");
    let map = run("nbdinfo", &["--map", &served.uri()]);
    assert!(map.contains("16777216") && map.contains("data"), "{map}");
}

#[test]
fn nbdcopy_and_qemu_img_carry_an_image_there_and_back() {
    let served = Served::memory(SIZE);
    let image = served.folder.path().join("image");
    let back = served.folder.path().join("back");
    let bytes: Vec<u8> =
        (0..SIZE / 8).flat_map(|index| rotproof_block::hash::mix(1, 2, index).to_le_bytes()).collect();
    fs::write(&image, &bytes).expect("written");
    run("nbdcopy", &["--flush", text(&image), &served.uri()]);
    run("nbdcopy", &[&served.uri(), text(&back)]);
    assert!(fs::read(&back).expect("read") == bytes, "nbdcopy");
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &served.uri()]);
    fs::write(&image, vec![7; SIZE as usize]).expect("written");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &served.uri()]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &served.uri(), text(&back)]);
    assert!(fs::read(&back).expect("read") == [7; SIZE as usize], "qemu-img");
}

#[test]
fn qemu_io_writes_patterns_zeroes_and_discards() {
    let served = Served::memory(SIZE);
    let uri = served.uri();
    let io = |commands: &[&str]| {
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&uri);
        let said = run("qemu-io", &arguments);
        assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    };
    io(&["write -P 0x5a 1000 70000", "read -P 0x5a 1000 70000", "flush"]);
    io(&["write -z 2000 5000", "read -P 0 2000 5000", "read -P 0x5a 1000 1000", "read -P 0x5a 7000 1000"]);
    io(&["write -f -P 0xa5 0 512", "discard 4096 8192", "read -P 0 4096 8192", "read -P 0xa5 0 512"]);
    io(&["aio_write -P 1 0 1M", "aio_write -P 2 1M 1M", "aio_flush", "read -P 1 0 1M", "read -P 2 1M 1M"]);
}

#[test]
fn nbdsh_speaks_every_command_and_sees_the_errors() {
    let served = Served::memory(SIZE);
    let script = r#"
h.pwrite(b"x" * 10000, 123)
assert h.pread(10000, 123) == b"x" * 10000
assert h.pread(1, 122) == b"\0"
h.zero(5000, 200); h.trim(4096, 8192); h.flush(); h.cache(4096, 0)
assert h.pread(5000, 200) == bytearray(5000)
assert h.get_size() == 16 * 1024 * 1024 and not h.is_read_only()
try:
    h.set_strict_mode(0)
    h.pread(512, h.get_size())
    assert False, "a read beyond the end must fail"
except nbd.Error as error:
    assert error.errnum == 22, error
entries = []
h.block_status(65536, 0, lambda context, offset, extents, error: entries.extend(extents))
assert entries == [65536, 0], entries
h.shutdown()
"#;
    // The interpreter that libnbd's binding is installed for.
    run(
        "/usr/bin/python3",
        &[
            "-c",
            &format!(
                "
import nbd
h = nbd.NBD()
h.add_meta_context('base:allocation')
h.connect_uri('{}')
{script}",
                served.uri()
            ),
        ],
    );
}

#[test]
fn fio_verifies_what_it_writes_through_its_own_client() {
    let served = Served::memory(SIZE);
    let uri = format!("--uri={}", served.uri());
    for (block, depth) in [("4k", "32"), ("128k", "8"), ("1000", "4")] {
        run(
            "fio",
            &["--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite", "--verify=crc32c", "--size=16M"]
                .into_iter()
                .chain(["--bs", block, "--iodepth", depth, "--output-format=terse"])
                .collect::<Vec<_>>(),
        );
    }
}
