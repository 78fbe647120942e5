//! The kinds of blocks, their words and groups.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a block is. Each has a word, used in rules, tables and JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A kind without parts.
    Plain(Plain),
    /// A node of one of the trees of btrfs.
    Tree {
        /// Which tree.
        tree: Tree,
        /// Whether it holds items; otherwise it holds pointers to further nodes.
        is_leaf: bool,
    },
}

macro_rules! plain_kinds {
    ($($variant:ident $word:literal $about:literal,)*) => {
        /// A kind of block that needs no further word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Plain {
            $(#[doc = $about] $variant,)*
        }

        impl Plain {
            /// All of them.
            pub const ALL: &'static [Plain] = &[$(Plain::$variant),*];

            fn word(self) -> &'static str {
                match self { $(Plain::$variant => $word),* }
            }

            fn about(self) -> &'static str {
                match self { $(Plain::$variant => $about),* }
            }
        }
    };
}

plain_kinds! {
    SuperBlock "super_block" "the super block, or a copy of it",
    GroupDescriptors "group_descriptors" "ext4: descriptors of the block groups, or a copy",
    ReservedGdt "reserved_gdt" "ext4: kept for descriptors of groups to come",
    BlockBitmap "block_bitmap" "ext4: which blocks of a group are in use",
    InodeBitmap "inode_bitmap" "ext4: which inodes of a group are in use",
    InodeTable "inode_table" "ext4: the inodes of a group",
    Htree "htree" "ext4: hash tree of a directory, above its blocks of names",
    ExtentTree "extent_tree" "ext4: where a file lies, outside of its inode",
    Indirect "indirect" "ext4: block numbers of a file without extents; zfs: where a file or directory lies, outside of its dnode",
    JournalSuper "journal_super" "ext4: the journal's own super block",
    JournalDescriptor "journal_descriptor" "ext4: which blocks a transaction that waits for replay has",
    JournalData "journal_data" "ext4: a copy of a block in such a transaction",
    JournalCommit "journal_commit" "ext4: the end of such a transaction",
    JournalRevoke "journal_revoke" "ext4: what such a transaction must not replay",
    JournalFastCommit "journal_fast_commit" "ext4: the part of the journal for fast commits",
    JournalFree "journal_free" "ext4: journal that holds nothing to be replayed",
    OrphanFile "orphan_file" "ext4: inodes that wait to be deleted",
    MultiMount "multi_mount" "ext4: the block of multiple mount protection",
    BadBlocks "bad_blocks" "ext4: blocks that a file system marked as bad",
    Agf "agf" "xfs: free space of an allocation group",
    Agi "agi" "xfs: inodes of an allocation group",
    Agfl "agfl" "xfs: the list of blocks kept for the group's B-trees",
    AgflBlock "agfl_block" "xfs: a block on that list",
    Bnobt "bnobt" "xfs: B-tree of free space by place",
    Cntbt "cntbt" "xfs: B-tree of free space by size",
    Inobt "inobt" "xfs: B-tree of inodes",
    Finobt "finobt" "xfs: B-tree of free inodes",
    Rmapbt "rmapbt" "xfs: B-tree of who owns what",
    Refcountbt "refcountbt" "xfs: B-tree of shared blocks",
    InodeChunk "inode_chunk" "xfs: inodes",
    DirectoryLeaf "directory_leaf" "xfs: hashes of the names of a directory",
    DirectoryFree "directory_free" "xfs: free space in a directory",
    Bmbt "bmbt" "xfs: where a file lies, outside of its inode",
    Log "log" "xfs: the log",
    CopyOnWrite "copy_on_write" "xfs: set aside for a copy that is under way",
    RealtimeBitmap "realtime_bitmap" "xfs: free space of the realtime device",
    VdevLabel "label" "zfs: what the device is of which pool",
    Uberblock "uberblock" "zfs: where the pool begins, as of the last transaction",
    UberblockOld "uberblock_old" "zfs: where it began before, and slots for where it will",
    MosObjectSet "mos_object_set" "zfs: the set of the pool's own objects",
    MosDnodes "mos_dnodes" "zfs: what the pool's own objects are and where they lie",
    MosIndirect "mos_indirect" "zfs: where an object of the pool lies, outside of its dnode",
    MosObject "mos_object" "zfs: what the pool keeps: datasets, properties, configuration, history",
    SpaceMap "space_map" "zfs: what is in use of a part of the device",
    ObjectSet "object_set" "zfs: the set of a file system's objects",
    Dnodes "dnodes" "zfs: what a file system's objects are and where they lie",
    DnodesIndirect "dnodes_indirect" "zfs: where the dnodes of a file system lie",
    FileSystemObject "file_system_object" "zfs: what a file system keeps beside files: its root, what is to be deleted, accounts",
    IntentLog "intent_log" "zfs: what was promised since the last transaction",
    DatabaseHeader "database_header" "sqlite: the first page: the header, and where the schema begins",
    TableInterior "table_interior" "sqlite: where the rows of a table lie",
    TableLeaf "table_leaf" "sqlite: rows of a table",
    IndexInterior "index_interior" "sqlite: entries of an index, and where others lie",
    IndexLeaf "index_leaf" "sqlite: entries of an index",
    Overflow "overflow" "sqlite: the rest of a row or entry that is too long for its page",
    FreelistTrunk "freelist_trunk" "sqlite: which pages are free; free itself",
    FreelistLeaf "freelist_leaf" "sqlite: a free page",
    PointerMap "pointer_map" "sqlite: which page refers to which, where a database can be made smaller",
    LockByte "lock_byte" "sqlite: the page at 1 GiB, on which only locks lie",
    RollbackHeader "rollback_header" "sqlite: a header of the rollback journal",
    RollbackRecord "rollback_record" "sqlite: what a page held before the transaction",
    RollbackOld "rollback_old" "sqlite: what a rollback would not look at",
    WalHeader "wal_header" "sqlite: the header of the write-ahead log",
    WalFrame "wal_frame" "sqlite: a newer page, within a transaction that has ended",
    WalCommit "wal_commit" "sqlite: the newer page that ends a transaction",
    WalOld "wal_old" "sqlite: frames of transactions that are over or never ended",
    LmdbMeta "meta_page" "lmdb: where the trees begin, as of one of the last two transactions",
    LmdbBranch "branch_page" "lmdb: where keys of a database lie",
    LmdbLeaf "leaf_page" "lmdb: keys of a database, with what is short enough of their values",
    LmdbOverflow "value_pages" "lmdb: a value that is too long for its leaf",
    FreeTreeBranch "free_tree_branch" "lmdb: where the lists of free pages lie",
    FreeTreeLeaf "free_tree_leaf" "lmdb: lists of free pages, by the transactions that freed them",
    FreeTreeOverflow "free_tree_pages" "lmdb: a list of free pages that is too long for its leaf",
    PgControl "control_file" "postgresql: what the cluster is, and from where its log is replayed",
    PgVersion "version_file" "postgresql: the version that a folder is of",
    PgRelationMap "relation_map" "postgresql: which files the first catalogs have",
    PgCatalog "catalog_page" "postgresql: rows of the catalog",
    PgCatalogIndex "catalog_index_page" "postgresql: indexes of the catalog",
    PgHeap "heap_page" "postgresql: rows of a table",
    PgToast "toast_page" "postgresql: pieces of values that are too long for their row",
    PgSequence "sequence_page" "postgresql: a sequence",
    PgFreeSpaceMap "fsm_page" "postgresql: how much room pages of a relation have",
    PgVisibilityMap "vm_page" "postgresql: of which pages of a table everybody sees all rows",
    BtreeMeta "btree_meta" "postgresql: where a B-tree begins",
    BtreeRoot "btree_root" "postgresql: the root of a B-tree, if it is no leaf",
    BtreeInternal "btree_internal" "postgresql: where entries of a B-tree lie, between root and leaves",
    BtreeLeaf "btree_leaf" "postgresql: entries of a B-tree",
    HashMeta "hash_meta" "postgresql: what a hash index is made of",
    HashBucket "hash_bucket" "postgresql: the first page of a bucket of a hash index",
    HashOverflow "hash_overflow" "postgresql: a further page of a bucket",
    HashBitmap "hash_bitmap" "postgresql: which further pages of a hash index are in use",
    GistInternal "gist_internal" "postgresql: where entries of a GiST index lie",
    GistLeaf "gist_leaf" "postgresql: entries of a GiST index",
    GinMeta "gin_meta" "postgresql: what a GIN index is made of",
    GinInternal "gin_internal" "postgresql: where keys of a GIN index lie",
    GinLeaf "gin_leaf" "postgresql: keys of a GIN index, with short lists of rows",
    GinPostingInternal "gin_posting_internal" "postgresql: where the long list of rows of a key lies",
    GinPostingLeaf "gin_posting_leaf" "postgresql: a long list of rows of a key",
    GinPending "gin_pending" "postgresql: what is not yet among the keys of a GIN index",
    SpgistMeta "spgist_meta" "postgresql: what an SP-GiST index is made of",
    SpgistInner "spgist_inner" "postgresql: where entries of an SP-GiST index lie",
    SpgistLeaf "spgist_leaf" "postgresql: entries of an SP-GiST index",
    BrinMeta "brin_meta" "postgresql: what a BRIN index is made of",
    BrinRevmap "brin_revmap" "postgresql: where the summaries of ranges lie",
    BrinRegular "brin_regular" "postgresql: summaries of ranges of a table",
    OtherIndex "other_index_page" "postgresql: an index of an extension",
    PgWal "wal_page" "postgresql: write-ahead log since the last checkpoint",
    PgWalDone "wal_done" "postgresql: log that is over, or set aside for what comes",
    PgTransactions "transaction_status" "postgresql: which transactions have ended well",
    PgMultixact "multixact" "postgresql: who shares the lock of a row",
    PgOtherPages "other_slru" "postgresql: subtransactions, times of commits, notifications",
    PgOther "other_file" "postgresql: settings, statistics and whatever else is no page",
    Directory "directory" "names of a directory",
    Xattr "xattr" "extended attributes",
    Symlink "symlink" "where a symbolic link points",
    Quota "quota" "quotas",
    SpaceCache "space_cache" "btrfs: free space in files, version 1",
    Data "data" "the content of a file",
    Free "free" "not in use",
    Unused "unused" "never used: before, between and behind structures",
    Unknown "unknown" "in use, but by what could not be seen",
}

/// The trees of btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// The tree of the roots of all others.
    Root,
    /// What is in use, and by whom.
    Extent,
    /// Where logical addresses lie on the devices.
    Chunk,
    /// What each device is used for.
    Device,
    /// Files and directories; each subvolume and snapshot has one.
    Fs,
    /// Checksums of data.
    Checksum,
    /// Quotas.
    Quota,
    /// Identifiers of subvolumes.
    Uuid,
    /// Free space, version 2.
    FreeSpace,
    /// Block groups in a tree of their own.
    BlockGroup,
    /// Data under way to another place.
    DataRelocation,
    /// What fsync has written since the last commit.
    Log,
    /// Any other.
    Other,
}

impl Tree {
    /// All of them.
    pub const ALL: [Tree; 13] = [
        Tree::Root,
        Tree::Extent,
        Tree::Chunk,
        Tree::Device,
        Tree::Fs,
        Tree::Checksum,
        Tree::Quota,
        Tree::Uuid,
        Tree::FreeSpace,
        Tree::BlockGroup,
        Tree::DataRelocation,
        Tree::Log,
        Tree::Other,
    ];

    /// Words of the tree, of its leaves, and of its other nodes.
    fn words(self) -> [&'static str; 3] {
        match self {
            Tree::Root => ["root_tree", "root_tree_leaf", "root_tree_node"],
            Tree::Extent => ["extent_tree", "extent_tree_leaf", "extent_tree_node"],
            Tree::Chunk => ["chunk_tree", "chunk_tree_leaf", "chunk_tree_node"],
            Tree::Device => ["device_tree", "device_tree_leaf", "device_tree_node"],
            Tree::Fs => ["fs_tree", "fs_tree_leaf", "fs_tree_node"],
            Tree::Checksum => ["checksum_tree", "checksum_tree_leaf", "checksum_tree_node"],
            Tree::Quota => ["quota_tree", "quota_tree_leaf", "quota_tree_node"],
            Tree::Uuid => ["uuid_tree", "uuid_tree_leaf", "uuid_tree_node"],
            Tree::FreeSpace => ["free_space_tree", "free_space_tree_leaf", "free_space_tree_node"],
            Tree::BlockGroup => ["block_group_tree", "block_group_tree_leaf", "block_group_tree_node"],
            Tree::DataRelocation => {
                ["data_relocation_tree", "data_relocation_tree_leaf", "data_relocation_tree_node"]
            }
            Tree::Log => ["log_tree", "log_tree_leaf", "log_tree_node"],
            Tree::Other => ["other_tree", "other_tree_leaf", "other_tree_node"],
        }
    }
}

impl From<Plain> for Kind {
    fn from(plain: Plain) -> Self {
        Kind::Plain(plain)
    }
}

impl Kind {
    /// All kinds, in the order in which tables show them.
    pub fn all() -> impl Iterator<Item = Kind> {
        let (above, below) = Plain::ALL.split_at(Plain::Directory as usize);
        let trees = Tree::ALL
            .into_iter()
            .flat_map(|tree| [Kind::Tree { tree, is_leaf: false }, Kind::Tree { tree, is_leaf: true }]);
        let plain = |kinds: &'static [Plain]| kinds.iter().map(|&kind| Kind::Plain(kind));
        plain(above).chain(trees).chain(plain(below))
    }

    /// The word for it, such as `inode_table`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Plain(plain) => plain.word(),
            Kind::Tree { tree, is_leaf } => tree.words()[if is_leaf { 1 } else { 2 }],
        }
    }

    /// What it is, in a few words.
    pub fn about(self) -> String {
        match self {
            Kind::Plain(plain) => plain.about().to_owned(),
            Kind::Tree { tree, is_leaf: true } => {
                format!("btrfs: leaf of the {}", tree.words()[0].replace('_', " "))
            }
            Kind::Tree { tree, is_leaf: false } => {
                format!("btrfs: node of the {}", tree.words()[0].replace('_', " "))
            }
        }
    }

    /// Whether the file system keeps it for itself: all but what users have stored, and what is not in use.
    pub fn is_metadata(self) -> bool {
        use Plain::{
            BadBlocks, CopyOnWrite, Data, Free, FreelistLeaf, LmdbLeaf, LmdbOverflow, Overflow, PgHeap,
            PgOther, PgToast, TableLeaf, Unknown, Unused,
        };
        !matches!(
            self,
            Kind::Plain(
                Data | Free
                    | Unused
                    | Unknown
                    | BadBlocks
                    | CopyOnWrite
                    | TableLeaf
                    | Overflow
                    | FreelistLeaf
                    | LmdbLeaf
                    | LmdbOverflow
                    | PgHeap
                    | PgToast
                    | PgOther
            )
        )
    }

    /// Whether a word means this kind: its own, or one for several kinds: `metadata`, `journal`, `mos`, the name of a tree.
    pub fn is_meant_by(self, word: &str) -> bool {
        self.word() == word
            || match self {
                _ if word == METADATA => self.is_metadata(),
                Kind::Plain(plain) if word == MOS => plain.word().starts_with("mos_"),
                Kind::Plain(plain) if word == JOURNAL => plain.word().starts_with("journal_"),
                Kind::Plain(_) => false,
                Kind::Tree { tree, .. } => tree.words()[0] == word,
            }
    }
}

const METADATA: &str = "metadata";
const JOURNAL: &str = "journal";
const MOS: &str = "mos";

/// Every word that means a kind or several, without doubles.
pub fn words() -> Vec<&'static str> {
    let mut words = vec![METADATA, JOURNAL, MOS];
    words.extend(Kind::all().map(Kind::word));
    words.extend(Tree::ALL.into_iter().map(|tree| tree.words()[0]));
    words.sort_unstable();
    words.dedup();
    words
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_word_of_its_own_and_is_meant_by_it() {
        let kinds: Vec<Kind> = Kind::all().collect();
        let mut seen: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), kinds.len());
        assert_eq!(kinds.len(), Plain::ALL.len() + 2 * Tree::ALL.len());
        for word in words() {
            assert!(kinds.iter().any(|kind| kind.is_meant_by(word)), "{word}");
        }
    }

    #[test]
    fn words_for_several_kinds_mean_what_they_say() {
        let meant = |word: &str| Kind::all().filter(|kind| kind.is_meant_by(word)).count();
        assert_eq!(meant("journal"), 7);
        assert_eq!(meant("mos"), 4);
        assert_eq!(meant("fs_tree"), 2);
        assert_eq!(meant("extent_tree"), 3, "the one of ext4, and both kinds of node of btrfs");
        assert!(Kind::from(Plain::InodeTable).is_meant_by("metadata"));
        assert!(!Kind::from(Plain::Data).is_meant_by("metadata"));
        assert_eq!(meant("nonsense"), 0);
    }
}
