//! Makes the images that the fuzz target of this crate begins from anew: what of a small file system is not zero.

use std::fs;
use std::path::Path;

use crate::image::Image;

/// Zeros between two pieces that are cheaper to write down than a further piece.
const GAP: usize = 16;

/// Offset, length and bytes of all that is not zero, as the target reads it.
fn pieces(image: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(from) = image[at..].iter().position(|&byte| byte != 0).map(|skip| at + skip) {
        let mut end = from + 1;
        while let Some(skip) = image[end..(end + GAP).min(image.len())].iter().position(|&byte| byte != 0) {
            end += skip + 1;
            if end - from > 60_000 {
                break;
            }
        }
        out.extend((from as u64).to_le_bytes());
        out.extend(((end - from) as u16).to_le_bytes());
        out.extend(&image[from..end]);
        at = end;
    }
    out
}

#[test]
#[ignore = "writes the seeds of the fuzz target"]
fn make_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/targets/seeds");
    for (kind, size, options) in [
        ("ext4", 4 << 20, &["-b", "1024", "-N", "64", "-J", "size=1"][..]),
        ("xfs", 300 << 20, &["-K"][..]),
        ("btrfs", 128 << 20, &["-K"][..]),
    ] {
        let image = Image::make(kind, size, options);
        let mounted = image.mount();
        let folder_there = mounted.0.join("folder");
        fs::create_dir(&folder_there).expect("a folder");
        for index in 0..20 {
            fs::write(folder_there.join(format!("file-{index}")), "x").expect("a file");
        }
        std::os::unix::fs::symlink("y".repeat(300), mounted.0.join("link")).expect("a link");
        drop(mounted);
        let mut bytes = fs::read(&image.path).expect("readable");
        if kind == "xfs" {
            // What the log holds is never looked at.
            let map = rotproof_kinds::read(&bytes, rotproof_kinds::ReadOptions::default()).expect("read");
            let logs: Vec<(u64, u64)> = map
                .extents()
                .iter()
                .filter(|extent| extent.kind.word() == "log")
                .map(|extent| (extent.start, extent.end))
                .collect();
            logs.iter().for_each(|&(from, to)| bytes[from as usize..to as usize].fill(0));
        }
        fs::write(folder.join(format!("kinds_{kind}.bin")), pieces(&bytes)).expect("written");
    }
}
