//! The lines of text by which the host rules the guest: a number, a word, its arguments, parted by tabs. The answer is
//! the number and `ok` with what was asked for, or `error` and the number of the error.

use std::fmt::Write as _;
use std::fs;

use crate::look;
use crate::nodes::ROOT;
use crate::pages;
use crate::server::Server;
use crate::sys::{self, EINVAL, ENOSYS, errno};

/// Carries out one line.
pub fn answer(line: &[u8], server: &Server) -> Vec<u8> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split('\t');
    let number = words.next().unwrap_or("0").to_owned();
    let words: Vec<&str> = words.collect();
    match carry_out(&words, server) {
        Ok(said) => format!("{number}\tok\t{said}"),
        Err(errno) => format!("{number}\terror\t{errno}"),
    }
    .into_bytes()
}

fn carry_out(words: &[&str], server: &Server) -> Result<String, i32> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| EINVAL);
    match words {
        ["ping"] => Ok(String::new()),
        ["mount", device, kind, options] => {
            let _ = fs::create_dir(ROOT);
            // A driver that has just come up may still be looking at its disk.
            for _ in 0..1000 {
                if fs::exists(device).unwrap_or(true) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            sys::try_mount(device, ROOT, kind, options).map(|()| String::new())
        }
        ["unmount"] => {
            // What another worker has under way ends in a moment.
            for _ in 0..100 {
                server.nodes.clear();
                match sys::unmount(ROOT) {
                    Err(sys::EBUSY) => std::thread::sleep(std::time::Duration::from_millis(20)),
                    done => return done.map(|()| String::new()),
                }
            }
            Err(sys::EBUSY)
        }
        // It went on from a snapshot: the time is another, and what it draws shall be.
        ["resumed", seconds, nanoseconds, seed] => {
            sys::set_clock(number(seconds)?, number(nanoseconds)?)?;
            sys::stir_randomness(seed.as_bytes())?;
            Ok(String::new())
        }
        // It was plugged in. A kernel that does not notice looks for it. Its node is there a moment before it can be opened, and a
        // mount in that moment fails as if there were no disk.
        ["disk", device] => {
            for step in 0..4000 {
                if sys::has_size(device) {
                    return Ok(String::new());
                }
                if step % 1000 == 400 {
                    let _ = fs::write("/sys/bus/pci/rescan", "1");
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(sys::ENODEV)
        }
        ["sync"] => {
            sys::sync_all();
            Ok(String::new())
        }
        // The file system on trial alone, whose error is told.
        ["syncfs"] => sys::sync_file_system(ROOT).map(|()| String::new()),
        // Extended attributes are served from now on. Without this the host's kernel, once told that there are none, does not ask
        // before each write whether the file has one that it would have to take away.
        ["attributes"] => {
            server.serve_attributes();
            Ok(String::new())
        }
        ["look", attribute, questions @ ..] => Ok(look::look(attribute, questions)),
        // Whether the file system is writable, as the kernel lists it.
        ["mounts"] => fs::read_to_string("/proc/mounts").map_err(|error| errno(&error)),
        ["write", path, value] => {
            fs::write(path, value).map(|()| String::new()).map_err(|error| errno(&error))
        }
        ["uuid"] => fs::read_to_string("/proc/sys/kernel/random/uuid")
            .map(|uuid| uuid.trim_end().to_owned())
            .map_err(|error| errno(&error)),
        ["page", file, block] => {
            let page = pages::page_of(file, number(block)?)?;
            Ok(page.map_or("none".to_owned(), |page| page.to_string()))
        }
        ["flags", first, count] => {
            let mut said = String::new();
            for flags in pages::flags(number(first)?, number(count)?)? {
                // Writing to a string cannot fail.
                let _ = write!(said, "{flags:x} ");
            }
            Ok(said)
        }
        ["memory"] => fs::read_to_string("/proc/iomem").map_err(|error| errno(&error)),
        ["power_off"] => sys::power_off(),
        _ => Err(ENOSYS),
    }
}
