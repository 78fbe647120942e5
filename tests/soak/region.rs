//! The blocks of one client, and what each may hold: what was acknowledged last, or a write of which nobody can say
//! whether it has been done.

/// Size of a block.
pub const BLOCK: usize = 4096;
/// Blocks of a region.
pub const BLOCKS: u64 = 1024;

/// A client's part of a disk, which nobody else writes to.
pub struct Region {
    owner: u64,
    first: u64,
    blocks: Vec<State>,
    versions: u64,
}

#[derive(Clone, Default)]
struct State {
    /// The version that was acknowledged; 0 is zeros.
    settled: u64,
    /// Versions that may have been written, and may yet be, as long as the server lives that was asked.
    floating: Vec<u64>,
}

impl Region {
    /// Of zeros, at the given place among the regions.
    pub fn new(owner: u64, place: u64) -> Self {
        let blocks = vec![State::default(); BLOCKS as usize];
        Self { owner, first: place * BLOCKS, blocks, versions: 0 }
    }

    pub fn offset(&self, block: u64) -> u64 {
        (self.first + block) * BLOCK as u64
    }

    /// A new version for some blocks, and their content.
    pub fn new_content(&mut self, blocks: std::ops::Range<u64>) -> (u64, Vec<u8>) {
        self.versions += 1;
        let content = blocks.flat_map(|block| self.content(block, self.versions)).collect();
        (self.versions, content)
    }

    /// The content of a block, which says whose it is, where and which.
    fn content(&self, block: u64, version: u64) -> Vec<u8> {
        if version == 0 {
            return vec![0; BLOCK];
        }
        let mut state = self.owner << 56 ^ (self.first + block) << 32 ^ version;
        let mut bytes = Vec::with_capacity(BLOCK);
        bytes.extend(version.to_le_bytes());
        while bytes.len() < BLOCK {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            bytes.extend((state ^ (state >> 33)).to_le_bytes());
        }
        bytes
    }

    pub fn acknowledged(&mut self, blocks: std::ops::Range<u64>, version: u64) {
        for block in blocks {
            self.blocks[block as usize].settled = version;
        }
    }

    /// Nobody has said what became of a write.
    pub fn left_open(&mut self, blocks: std::ops::Range<u64>, version: u64) {
        for block in blocks {
            self.blocks[block as usize].floating.push(version);
        }
    }

    /// Whether what is written there now will be what is there later.
    pub fn may_be_written(&self, blocks: std::ops::Range<u64>) -> bool {
        blocks.into_iter().all(|block| self.blocks[block as usize].floating.is_empty())
    }

    /// Blocks of which it is open what they hold.
    pub fn open(&self) -> Vec<u64> {
        (0..BLOCKS).filter(|block| !self.may_be_written(*block..*block + 1)).collect()
    }

    /// The version of a block that was read, if it may be there.
    fn version(&self, block: u64, found: &[u8]) -> Option<u64> {
        let state = &self.blocks[block as usize];
        let versions = std::iter::once(state.settled).chain(state.floating.iter().copied());
        versions.into_iter().find(|version| self.content(block, *version) == found)
    }

    /// Compares what was read with what may be there.
    pub fn check(&self, blocks: std::ops::Range<u64>, found: &[u8]) {
        for (block, found) in blocks.zip(found.chunks_exact(BLOCK)) {
            if self.version(block, found).is_none() {
                let state = &self.blocks[block as usize];
                let begins = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
                panic!(
                    "block {block} of client {} has version {begins} (or damage); acknowledged was {}, open {:?}",
                    self.owner, state.settled, state.floating
                );
            }
        }
    }

    /// Nothing is under way any more: what was read is what a block holds from now on.
    pub fn settle(&mut self, block: u64, found: &[u8]) {
        self.check(block..block + 1, found);
        let version = self.version(block, found).expect("just checked");
        self.blocks[block as usize] = State { settled: version, floating: Vec::new() };
    }
}
