//! Recognising what lies on a device or in an image by the magic numbers at known places.
//!
//! The table serves one decision: may this be overwritten without asking? So it rather knows too much than too
//! little, and weak magic numbers (two bytes) are believed only together with fields that must make sense. Offsets
//! are those of libblkid (util-linux, `libblkid/src/superblocks`) and of each format's own description.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rotproof_block::Result;
use rotproof_block::error::IoContext;

/// `(what, offset, magic)`, offsets from the start.
const AT_START: &[(&str, u64, &[u8])] = &[
    // File systems.
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x10040, b"_BHRfS_M"),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("a UDF file system", 32769, b"BEA01"),
    ("a UDF file system", 34817, b"NSR0"),
    ("a squashfs file system", 0, b"hsqs"),
    ("an EROFS file system", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("a cramfs file system", 0, &[0x45, 0x3d, 0xcd, 0x28]),
    ("a romfs file system", 0, b"-rom1fs-"),
    ("a JFS file system", 32768, b"JFS1"),
    ("a ReiserFS file system", 65588, b"ReIsEr"),
    ("a ReiserFS file system", 8244, b"ReIsEr"),
    ("a Reiser4 file system", 65536, b"ReIsEr4"),
    ("an APFS container", 32, b"NXSB"),
    ("an HFS+ file system", 1024, b"H+\x00\x04"),
    ("an HFSX file system", 1024, b"HX\x00\x05"),
    ("a GFS2 file system", 65536, &[0x01, 0x16, 0x19, 0x70]),
    ("an OCFS2 file system", 1024, b"OCFSV2"),
    ("an OCFS2 file system", 2048, b"OCFSV2"),
    ("an OCFS2 file system", 4096, b"OCFSV2"),
    ("an OCFS2 file system", 8192, b"OCFSV2"),
    ("a UFS file system", 9564, &[0x54, 0x19, 0x01, 0x00]),
    ("a UFS2 file system", 66908, &[0x19, 0x01, 0x54, 0x19]),
    ("a VMFS file system", 0x200000, &[0x5e, 0xf1, 0xab, 0x2f]),
    (
        "a bcachefs file system",
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    // Encryption, volumes, RAID, caches.
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS encrypted volume (its second header)", 0x4000, b"SKUL\xba\xbe"),
    ("a BitLocker encrypted volume", 3, b"-FVE-FS-"),
    ("an md RAID member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("an md RAID member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    (
        "a bcache device",
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a dm-integrity volume", 0, b"integrt\0"),
    ("a dm-verity volume", 0, b"verity\0\0"),
    ("a Stratis pool", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a Ceph BlueStore device", 0, b"bluestore block device"),
    // Swap: the signature ends the first page, whose size depends on the machine.
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 8182, b"SWAPSPACE2"),
    ("swap space", 16374, b"SWAPSPACE2"),
    ("swap space", 65526, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("a hibernated system", 4086, b"S1SUSPEND"),
    // Partition tables.
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an Apple partition map", 512, b"PM\x00\x00"),
    // Files that are no raw image, for a path given by mistake.
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a VMDK image", 0, b"KDMV"),
    ("a VDI image", 64, &[0x7f, 0x10, 0xda, 0xbe]),
    ("a VHDX image", 0, b"vhdxfile"),
    ("an SQLite database", 0, b"SQLite format 3\0"),
    ("a program", 0, b"\x7fELF"),
    ("a ZIP archive", 0, b"PK\x03\x04"),
    ("a tar archive", 257, b"ustar"),
    ("a gzip file", 0, &[0x1f, 0x8b, 0x08]),
    ("an XZ file", 0, b"\xfd7zXZ\0"),
    ("a Zstandard file", 0, &[0x28, 0xb5, 0x2f, 0xfd]),
    ("a PDF document", 0, b"%PDF-"),
    ("a PNG picture", 0, b"\x89PNG\r\n\x1a\n"),
    ("a Parquet file", 0, b"PAR1"),
];

/// `(what, distance from the end, magic)`: the place is at `size - distance`.
const AT_END: &[(&str, u64, &[u8])] = &[
    ("a GPT partition table (its backup)", 512, b"EFI PART"),
    ("a GPT partition table (its backup)", 4096, b"EFI PART"),
    ("an Intel RAID member", 1024, b"Intel Raid ISM Cfg Sig. "),
    ("a DDF RAID member", 512, &[0xde, 0x11, 0xde, 0x11]),
    ("a DRBD volume", 4036, &[0x83, 0x74, 0x02, 0x6b]),
    ("a VHD image", 512, b"conectix"),
];

const MD_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];
/// Uberblock magic 0x00bab10c, in either byte order.
const ZFS_MAGICS: [[u8; 8]; 2] = [[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0x00, 0xba, 0xb1, 0x0c]];
const ZFS_LABEL_BYTES: u64 = 256 << 10;

/// Something that may hold anything, wherever it is.
pub(crate) trait Content {
    /// Fills `bytes` from `offset`.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()>;
}

impl Content for File {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}

/// The first thing that is recognised in `content`, of `size` bytes, as words for a sentence: "an XFS file system".
pub(crate) fn recognise(content: &dyn Content, size: u64) -> Result<Option<String>> {
    let probe = Probe { content, size };
    for &(what, offset, magic) in AT_START {
        if probe.holds(offset, magic)? {
            return Ok(Some(what.to_owned()));
        }
    }
    for &(what, distance, magic) in AT_END {
        if distance <= size && probe.holds(size - distance, magic)? {
            return Ok(Some(what.to_owned()));
        }
    }
    for check in [extended_file_system, nilfs, lvm, md_at_the_end, zfs, master_boot_record] {
        if let Some(what) = check(&probe)? {
            return Ok(Some(what.to_owned()));
        }
    }
    Ok(None)
}

struct Probe<'a> {
    content: &'a dyn Content,
    size: u64,
}

impl Probe<'_> {
    fn holds(&self, offset: u64, magic: &[u8]) -> Result<bool> {
        let mut bytes = [0u8; 32];
        let bytes = &mut bytes[..magic.len()];
        Ok(self.read(offset, bytes)? && bytes == magic)
    }

    /// Fills `bytes` from `offset`; false if the device ends before.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<bool> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size) {
            return Ok(false);
        }
        match self.content.read_exact_at(bytes, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error).doing(|| format!("looking for a file system at byte {offset}")),
        }
    }
}

/// ext2, ext3 and ext4 share a magic number of two bytes; block size and revision must make sense too.
fn extended_file_system(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    let mut superblock = [0u8; 264];
    if !probe.read(1024, &mut superblock)? || superblock[0x38..0x3a] != [0x53, 0xef] {
        return Ok(None);
    }
    let word = |at: usize| {
        u32::from_le_bytes([superblock[at], superblock[at + 1], superblock[at + 2], superblock[at + 3]])
    };
    let (block_size_exponent, revision) = (word(0x18), word(0x4c));
    let (compatible, incompatible) = (word(0x5c), word(0x60));
    if block_size_exponent > 6 || revision > 1 || word(0x4) == 0 {
        return Ok(None);
    }
    // Extents, 64 bits or flexible groups make it ext4; else a journal makes it ext3.
    Ok(Some(match (incompatible & 0x2c0, compatible & 0x4) {
        (0, 0) => "an ext2 file system",
        (0, _) => "an ext3 file system",
        _ => "an ext4 file system",
    }))
}

/// Two bytes of magic, then a header size that must fit the superblock.
fn nilfs(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    let mut superblock = [0u8; 12];
    let found = probe.read(1024, &mut superblock)?
        && superblock[6..8] == [0x34, 0x34]
        && superblock[0..4] == [2, 0, 0, 0]
        && (u16::from_le_bytes([superblock[8], superblock[9]]) as usize) <= 1024;
    Ok(found.then_some("a NILFS2 file system"))
}

/// The label is in one of the first four sectors.
fn lvm(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    for sector in 0..4 {
        if probe.holds(sector * 512, b"LABELONE")? && probe.holds(sector * 512 + 24, b"LVM2 001")? {
            return Ok(Some("an LVM physical volume"));
        }
    }
    Ok(None)
}

/// Version 0.90 is in the last whole 64 KiB before the last; 1.0 at 8 KiB before the end, aligned down to 4 KiB
/// (md.h, `MD_NEW_SIZE_SECTORS`; mdadm, `super1.c`).
fn md_at_the_end(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    let old = (probe.size & !0xffff).checked_sub(0x10000);
    let new = (probe.size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    for offset in [old, new].into_iter().flatten() {
        if probe.holds(offset, &MD_MAGIC)? {
            return Ok(Some("an md RAID member"));
        }
    }
    Ok(None)
}

/// Four labels of 256 KiB, two at each end; the second half of each is a ring of uberblocks (ZFS On-Disk
/// Specification, section 1.3).
fn zfs(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    let aligned_size = probe.size & !(ZFS_LABEL_BYTES - 1);
    let Some(third) = aligned_size.checked_sub(2 * ZFS_LABEL_BYTES) else { return Ok(None) };
    let mut ring = vec![0u8; (ZFS_LABEL_BYTES / 2) as usize];
    for label in [0, ZFS_LABEL_BYTES, third, third + ZFS_LABEL_BYTES] {
        if probe.read(label + ZFS_LABEL_BYTES / 2, &mut ring)?
            && ring.chunks_exact(1024).any(|slot| ZFS_MAGICS.iter().any(|magic| slot.starts_with(magic)))
        {
            return Ok(Some("a member of a ZFS pool"));
        }
    }
    Ok(None)
}

/// The last two bytes of the first sector, and at least one partition while all entries make sense.
fn master_boot_record(probe: &Probe<'_>) -> Result<Option<&'static str>> {
    let mut sector = [0u8; 512];
    if !probe.read(0, &mut sector)? || sector[510..] != [0x55, 0xaa] {
        return Ok(None);
    }
    let entries = sector[446..510].chunks_exact(16);
    let sensible = entries.clone().all(|entry| entry[0] == 0 || entry[0] == 0x80);
    let used = entries.clone().any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    Ok((sensible && used).then_some("an MBR partition table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4 << 20;

    fn image(parts: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(SIZE).expect("a sparse file");
        for (offset, bytes) in parts {
            file.write_all_at(bytes, *offset).expect("written");
        }
        file
    }

    fn found(parts: &[(u64, &[u8])]) -> Option<String> {
        recognise(&image(parts), SIZE).expect("readable")
    }

    #[test]
    fn every_row_of_the_tables_is_recognised_at_its_place_and_not_beside_it() {
        for &(what, offset, magic) in AT_START {
            assert!(magic.len() <= 32 && magic.len() >= 3, "{what}");
            assert_eq!(found(&[(offset, magic)]).as_deref(), Some(what));
            assert_ne!(found(&[(offset + 7, magic)]).as_deref(), Some(what));
        }
        for &(what, distance, magic) in AT_END {
            assert_eq!(found(&[(SIZE - distance, magic)]).as_deref(), Some(what));
        }
    }

    #[test]
    fn zeros_random_content_and_a_short_device_are_nothing() {
        assert_eq!(found(&[]), None);
        let noise: Vec<u8> =
            (0..SIZE / 8).flat_map(|index| rotproof_block::hash::mix(7, 0, index).to_le_bytes()).collect();
        assert_eq!(found(&[(0, &noise)]), None);
        let short = tempfile::tempfile().expect("a temporary file");
        short.set_len(512).expect("short");
        assert_eq!(recognise(&short, 512).expect("readable"), None);
        assert_eq!(recognise(&short, 0).expect("readable"), None);
    }

    #[test]
    fn two_bytes_alone_are_not_believed() {
        assert_eq!(found(&[(1024 + 0x38, &[0x53, 0xef]), (1024 + 0x18, &[0xff; 4])]), None, "ext");
        assert_eq!(found(&[(1030, &[0x34, 0x34])]), None, "NILFS2");
        assert_eq!(found(&[(510, &[0x55, 0xaa])]), None, "MBR without a partition");
    }

    #[test]
    fn what_needs_more_than_one_place_is_recognised() {
        let partition = [0u8, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0];
        assert_eq!(
            found(&[(510, &[0x55, 0xaa]), (446, &partition)]).as_deref(),
            Some("an MBR partition table")
        );
        assert_eq!(
            found(&[(512, b"LABELONE"), (536, b"LVM2 001")]).as_deref(),
            Some("an LVM physical volume")
        );
        assert_eq!(found(&[(512, b"LABELONE")]), None, "half a label is none");
        assert_eq!(found(&[(SIZE - 0x10000, &MD_MAGIC)]).as_deref(), Some("an md RAID member"));
        assert_eq!(found(&[(SIZE - 8192, &MD_MAGIC)]).as_deref(), Some("an md RAID member"));
        for (index, label) in [0, ZFS_LABEL_BYTES, SIZE - 2 * ZFS_LABEL_BYTES].into_iter().enumerate() {
            let place = label + ZFS_LABEL_BYTES / 2 + 5 * 1024;
            assert_eq!(
                found(&[(place, &ZFS_MAGICS[index % 2])]).as_deref(),
                Some("a member of a ZFS pool"),
                "label {index}"
            );
        }
        let superblock = [2u8, 0, 0, 0, 0, 0, 0x34, 0x34, 0, 1, 0, 0];
        assert_eq!(found(&[(1024, &superblock)]).as_deref(), Some("a NILFS2 file system"));
    }
}
