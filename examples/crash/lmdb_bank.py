"""Transactions in LMDB, by its own tools: `lmdb_bank.py load COUNT` commits one after the other and marks each that was
acknowledged, `lmdb_bank.py check` opens what a crash has left."""

import os
import subprocess
import sys

import marks

TARGET = os.environ.get("ROTPROOF_TARGET", ".")
DATABASE = os.path.join(TARGET, "bank.mdb")
HEADER = "VERSION=3\nformat=print\ntype=btree\nmapsize=4194304\nHEADER=END\n"


def value(number):
    return f"{number}-" * 300


def load(count):
    mark = marks.Marks()
    for number in range(1, count + 1):
        # Each process is one transaction, which mdb_load makes durable before it ends.
        text = HEADER + f" {number:08}\n {value(number)}\nDATA=END\n"
        subprocess.run(["mdb_load", "-n", DATABASE], input=text, text=True, check=True)
        mark.set(f"transaction {number} acknowledged")


def check():
    acknowledged = marks.acknowledged()
    if not os.path.exists(DATABASE):
        sys.exit("the database is gone" if acknowledged else 0)
    dump = subprocess.run(["mdb_dump", "-n", "-p", DATABASE], capture_output=True, text=True)
    if dump.returncode != 0:
        sys.exit(f"mdb_dump: {dump.stderr.strip()}" if acknowledged else 0)
    lines = [line[1:] for line in dump.stdout.split("HEADER=END\n", 1)[1].splitlines() if line.startswith(" ")]
    found = dict(zip(lines[::2], lines[1::2]))
    for number in range(1, acknowledged + 1):
        if found.get(f"{number:08}") != value(number):
            sys.exit(f"transaction {number} was acknowledged and is not there as it was")
    extra = set(found) - {f"{number:08}" for number in range(1, acknowledged + 2)}
    if extra:
        sys.exit(f"there is what nobody had begun: {sorted(extra)[:3]}")


if sys.argv[1] == "load":
    load(int(sys.argv[2]))
else:
    check()
