//! The command line of `rotproof map`.

use std::path::PathBuf;

use clap::Args;
use rotproof_spec::Bytes;

/// `rotproof map`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It reads ext4, xfs, btrfs and ZFS, databases of SQLite, their journals and
their write-ahead logs, the data of LMDB, and the data directory of PostgreSQL
15, of which it verifies checksums; it never writes. What a mounted file system
or a running server has in memory alone is not seen; run `sync` first, and
prefer one at rest. Of a trial (.yaml, .yml) the file system is made with what
its load makes before its run, without faults, and read; that needs what
running it needs.")]
pub struct MapArgs {
    /// A block device, an image, a file of a database, a data directory, or a trial
    #[arg(value_name = "DEVICE|IMAGE|DIR|TRIAL")]
    pub device: PathBuf,

    /// Of a trial: changes a value of it, such as subject=btrfs
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub values: Vec<String>,

    /// What this block is, from 0; page 1 of a database is block 0
    #[arg(long, value_name = "N", conflicts_with_all = ["kind", "picture"])]
    pub block: Option<u64>,

    /// What is at this offset, such as 64MiB
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["kind", "picture", "block"])]
    pub offset: Option<Bytes>,

    /// Where blocks of a kind lie, such as inode_table, journal or metadata
    #[arg(long, value_name = "WORD")]
    pub kind: Option<String>,

    /// Draw it into this new file, .svg or .html
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "json"])]
    pub picture: Option<PathBuf>,

    /// Print it as JSON, every stretch with its owner and path
    #[arg(long)]
    pub json: bool,
}
