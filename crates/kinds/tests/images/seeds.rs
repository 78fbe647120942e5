//! Makes the images that the fuzz target of this crate begins from anew: what of a small file system is not zero.

use std::fs;
use std::path::Path;

use crate::image::Image;
use crate::postgres::Server;

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

/// What the target of PostgreSQL calls its files, and from which they are.
#[test]
#[ignore = "writes the seed of the fuzz target"]
fn make_postgres_seed() {
    let server = Server::new(&["--data-checksums"]);
    server.sql(
        "CREATE TABLE t AS SELECT i, i::text n, point(i, i) p, ARRAY[i % 5] a FROM generate_series(1, 90) i;
        VACUUM t; CREATE INDEX t_hash ON t USING hash(n); CREATE INDEX t_gist ON t USING gist(p);
        CREATE INDEX t_gin ON t USING gin(a); CREATE INDEX t_spgist ON t USING spgist(n);
        CREATE INDEX t_brin ON t USING brin(i); VACUUM t; CHECKPOINT",
    );
    let path = |name: &str| server.sql(&format!("SELECT pg_relation_filepath('{name}')")).remove(0);
    let names = ["t", "t_hash", "t_gist", "t_gin", "t_spgist", "t_brin"].map(path);
    server.stop("fast");
    let segment = fs::read_dir(server.file("pg_wal")).expect("a log").filter_map(|entry| {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        (name.len() == 24).then_some(name)
    });
    let segment = format!("pg_wal/{}", segment.max().expect("a segment"));
    let fsm = format!("{}_fsm", names[0]);
    let files = [
        "global/pg_control",
        "global/pg_filenode.map",
        "base/5/pg_filenode.map",
        "base/5/1259",
        "base/5/2662",
        &names[0],
        &fsm,
        &names[1],
        &names[2],
        &names[3],
        &names[4],
        &names[5],
        "pg_xact/0000",
        &segment,
    ];
    let mut out = Vec::new();
    for (number, name) in files.into_iter().enumerate() {
        let mut bytes = fs::read(server.file(name)).expect("readable");
        let pages = match name {
            "base/5/1259" | "base/5/2662" => 2,
            name if name.starts_with("pg_") => 1,
            _ => 4,
        };
        bytes.truncate(pages * 8192);
        // The log begins with the one page of it that is kept.
        match name {
            "global/pg_control" => bytes[40..48].copy_from_slice(&0x0010_0028_u64.to_le_bytes()),
            name if name.starts_with("pg_wal/") => {
                bytes[8..16].copy_from_slice(&0x0010_0000_u64.to_le_bytes());
            }
            _ => {}
        }
        let mut rest = &*pieces(&bytes);
        while let Some((head, tail)) = rest.split_at_checked(10) {
            let length = usize::from(u16::from_le_bytes([head[8], head[9]]));
            out.push(number as u8);
            out.extend(&head[..2]);
            out.extend(&head[8..]);
            out.extend(&tail[..length]);
            rest = &tail[length..];
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/targets/seeds");
    fs::write(folder.join("postgres.bin"), out).expect("written");
}
