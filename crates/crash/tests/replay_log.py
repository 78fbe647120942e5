"""Replays a log of dm-log-writes into an image, up to a mark or to its end: replay_log.py LOG IMAGE BYTES [MARK].

Written from the kernel's Documentation/admin-guide/device-mapper/log-writes.rst and the structures in
drivers/md/dm-log-writes.c alone, so that it shares no mistake with the exporter that it is to prove."""

import struct
import sys

MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


def replay(log, image, size, until):
    magic, version, entries, sector_bytes = struct.unpack("<QQQI", log.read(28))
    assert magic == MAGIC and version == 1, (magic, version)
    image.truncate(size)
    position = sector_bytes
    for _ in range(entries):
        log.seek(position)
        sector, sectors, flags, data_length = struct.unpack("<QQQQ", log.read(32))
        text = log.read(data_length)
        position += sector_bytes
        if flags & MARK:
            if until is not None and text == until.encode():
                return True
            continue
        if sectors == 0:
            assert flags & FLUSH, "an entry without data is a flush"
            continue
        image.seek(sector * sector_bytes)
        if flags & DISCARD:
            image.write(bytes(sectors * sector_bytes))
            continue
        log.seek(position)
        data = log.read(sectors * sector_bytes)
        assert len(data) == sectors * sector_bytes, "the log ends in the middle of an entry"
        image.write(data)
        position += sectors * sector_bytes
    return until is None


with open(sys.argv[1], "rb") as log, open(sys.argv[2], "w+b") as image:
    mark = sys.argv[4] if len(sys.argv) > 4 else None
    if not replay(log, image, int(sys.argv[3]), mark):
        sys.exit(f"the log has no mark {mark}")
