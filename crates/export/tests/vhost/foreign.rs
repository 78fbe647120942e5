//! QEMU boots from the disk: its firmware reads the boot sector through a ring of its own, and the code there reads and
//! writes sectors.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rotproof_block::leaf::MemoryDevice;

use crate::driver::{Attached, status};
use crate::server::{PATIENCE, Served};

/// What QEMU's `isa-debug-exit` makes of the 0x10 that the code below ends with.
const BOOTED: i32 = 0x10 << 1 | 1;

/// A boot sector that copies sector 1 to sector 2 and ends the machine.
fn boot_sector() -> [u8; 512] {
    const CODE: [u8; 35] = [
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xbe, 0x30, 0x7c, // mov si, 0x7c30: the disk address packet
        0xb4, 0x42, // mov ah, 0x42: extended read
        0xcd, 0x13, // int 0x13
        0x72, 0x11, // jc failed
        0xc6, 0x06, 0x38, 0x7c, 0x02, // mov byte [0x7c38], 2: its sector
        0xb8, 0x00, 0x43, // mov ax, 0x4300: extended write
        0xcd, 0x13, // int 0x13
        0x72, 0x05, // jc failed
        0xb0, 0x10, // mov al, 0x10
        0xe6, 0xf4, // out 0xf4, al
        0xf4, // hlt
        0xb0, 0x20, // failed: mov al, 0x20
        0xe6, 0xf4, // out 0xf4, al
        0xf4, // hlt
    ];
    // 16 bytes long, one sector, to 0000:8000, from sector 1 on.
    const PACKET: [u8; 16] = [16, 0, 1, 0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let mut sector = [0; 512];
    sector[..CODE.len()].copy_from_slice(&CODE);
    sector[0x30..0x40].copy_from_slice(&PACKET);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn qemu_boots_from_the_disk_and_writes_to_it() {
    let device = MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
    let served = Served::one(Arc::clone(&device) as _);
    let mut attached = Attached::one(&served.socket());
    let data: Vec<u8> = (0..512).map(|at| (at * 7 % 251) as u8).collect();
    assert_eq!(attached.ring().write(0, &boot_sector()), status::OK);
    assert_eq!(attached.ring().write(1, &data), status::OK);
    let mut qemu = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg", "-machine", "pc,memory-backend=m", "-m", "64M"])
        .args(["-object", "memory-backend-memfd,id=m,size=64M,share=on"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-chardev", &format!("socket,id=c,path={}", served.socket().display())])
        .args(["-device", "vhost-user-blk-pci,chardev=c,num-queues=2,bootindex=0"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .stdin(Stdio::null())
        .spawn()
        .expect("qemu-system-x86_64 is needed for this test");
    let deadline = Instant::now() + PATIENCE;
    let ended = loop {
        match qemu.try_wait().expect("our child") {
            Some(ended) => break ended,
            None if Instant::now() > deadline => {
                qemu.kill().expect("our child");
                qemu.wait().expect("our child");
                panic!("the machine does not end");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(ended.code(), Some(BOOTED));
    assert_eq!(attached.ring().read(2, 512), data, "what the machine has copied");
}
