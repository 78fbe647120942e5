"""A bank in SQLite: `sqlite_bank.py load JOURNAL SYNCHRONOUS COUNT` makes transactions and marks each that was acknowledged,
`sqlite_bank.py check` opens what a crash has left: nothing that was acknowledged may be missing, and nothing half done."""

import os
import sqlite3
import sys

import marks

TARGET = os.environ.get("ROTPROOF_TARGET", ".")
DATABASE = os.path.join(TARGET, "bank.db")
ACCOUNTS = 50
BALANCE = 1000


def load(journal, synchronous, count):
    database = sqlite3.connect(DATABASE, isolation_level=None)
    database.execute(f"pragma journal_mode = {journal}")
    database.execute(f"pragma synchronous = {synchronous}")
    # Small, so that frames go back into the database while it runs.
    database.execute("pragma wal_autocheckpoint = 20")
    database.execute("begin")
    database.execute("create table account (id integer primary key, balance integer)")
    database.execute("create table transfer (id integer primary key, note text)")
    database.executemany("insert into account values (?, ?)", [(n, BALANCE) for n in range(ACCOUNTS)])
    database.execute("commit")
    mark = marks.Marks()
    mark.set("transaction 0 acknowledged")
    for number in range(1, count + 1):
        source, target = number % ACCOUNTS, number * 7 % ACCOUNTS
        database.execute("begin immediate")
        database.execute("update account set balance = balance - 1 where id = ?", (source,))
        database.execute("update account set balance = balance + 1 where id = ?", (target,))
        database.execute("insert into transfer values (?, ?)", (number, f"{number}" * 20))
        database.execute("commit")
        mark.set(f"transaction {number} acknowledged")


def check():
    lines = open(os.environ["ROTPROOF_MARKS"]).read()
    if not os.path.exists(DATABASE):
        # The name is durable with the first transaction.
        sys.exit("the database is gone" if "transaction 0 " in lines else 0)
    database = sqlite3.connect(DATABASE)
    verdict = database.execute("pragma integrity_check").fetchone()[0]
    if verdict != "ok":
        sys.exit(f"integrity_check: {verdict}")
    tables = {name for (name,) in database.execute("select name from sqlite_master")}
    if not {"account", "transfer"} <= tables:
        sys.exit("the tables are gone" if "transaction 0 " in lines else 0)
    total = database.execute("select sum(balance) from account").fetchone()[0]
    if total != ACCOUNTS * BALANCE:
        sys.exit(f"the bank has {total} and must have {ACCOUNTS * BALANCE}")
    numbers = [number for (number,) in database.execute("select id from transfer order by id")]
    if numbers != list(range(1, len(numbers) + 1)):
        sys.exit(f"there is a hole among the transfers: {numbers[-5:]}")
    if len(numbers) < marks.acknowledged():
        sys.exit(f"transaction {marks.acknowledged()} was acknowledged, and {len(numbers)} is the last one there")


if sys.argv[1] == "load":
    load(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    check()
