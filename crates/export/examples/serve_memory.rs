//! Serves memory as a FUSE file until standard input ends: `serve_memory DIRECTORY SIZE_MIB [THREADS]`.
//!
//! Prints the file's path when it is there. For measuring the export alone, with `fio` on the file or on a loop
//! device over it.

use std::io::Write;
use std::path::Path;

use rotproof_block::Result;
use rotproof_block::leaf::MemoryDevice;
use rotproof_export::{FuseExport, FuseOptions};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: serve_memory DIRECTORY SIZE_MIB [THREADS]");
    let mut number = || arguments.next().map(|text| text.parse::<usize>().expect("a number"));
    let size_mib = number().expect("usage: serve_memory DIRECTORY SIZE_MIB [THREADS]");
    let threads = number().unwrap_or(FuseOptions::default().threads);

    let memory = MemoryDevice::new((size_mib as u64) << 20, 512)?;
    let options = FuseOptions { threads, ..FuseOptions::default() };
    let export = FuseExport::mount(memory, Path::new(&directory), options)?;
    writeln!(std::io::stdout(), "{}", export.path().display()).expect("standard output can be written");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("standard input can be read");
    export.unmount()
}
