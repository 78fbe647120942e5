#!/usr/bin/env python3
"""Reads the tables of a run and redraws its time line: throughput and 99th percentile of the load, with the windows of
the faults shaded.

    pip install pandas pyarrow duckdb matplotlib
    rotproof run examples/spek/correctable.yaml
    python3 over_time.py results/spek-correctable-7-* over-time.svg

Without a second argument it only prints what DuckDB finds. The columns are described in docs/results.md.
"""

import sys
from pathlib import Path

import duckdb
import pandas as pd


def load(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The intervals of the load, all workers and operations together, and the marks, in seconds since the load began."""
    intervals = pd.read_parquet(folder / "intervals.parquet")
    marks = pd.read_parquet(folder / "marks.parquet")
    together = intervals[intervals.worker.isna() & intervals.phase.isin(["run", "recovery"])]
    lines = together.groupby("start_ns").agg(
        bytes=("bytes", "sum"),
        errors=("errors", "sum"),
        retries=("retries", "sum"),
        length_ns=("length_ns", "max"),
        p99_ns=("latency_p99_ns", "max"),
    )
    began = lines.index.min()
    lines["seconds"] = (lines.index - began) / 1e9
    lines["mib_per_second"] = lines.bytes / (1 << 20) / (lines.length_ns / 1e9)
    for column in ("from_ns", "until_ns"):
        marks[column.replace("_ns", "_seconds")] = (marks[column] - began) / 1e9
    return lines, marks


def by_phase(folder: Path) -> list[tuple]:
    """The same tables by SQL: requests, bytes and errors of each phase and operation."""
    return duckdb.sql(
        f"""
        select phase, operation, sum(requests), sum(bytes), sum(errors), sum(retries), max(latency_max_ns)
        from read_parquet('{folder / "intervals.parquet"}')
        where worker is null
        group by phase, operation
        order by min(start_ns), operation
        """
    ).fetchall()


def draw(lines: pd.DataFrame, marks: pd.DataFrame, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (speed, latency) = pyplot.subplots(2, sharex=True, figsize=(8, 5))
    speed.step(lines.seconds, lines.mib_per_second, where="post")
    speed.set_ylabel("MiB/s")
    speed.set_ylim(bottom=0)
    latency.step(lines.seconds, lines.p99_ns / 1e6, where="post", color="tab:orange")
    latency.set_ylabel("p99 in ms")
    latency.set_xlabel("seconds")
    for window in marks[marks.kind == "window"].itertuples():
        for axes in (speed, latency):
            axes.axvspan(window.from_seconds, window.until_seconds, alpha=0.15, color="tab:red")
        speed.annotate(window.name, (window.from_seconds, 0), textcoords="offset points", xytext=(3, 3))
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    for row in by_phase(folder):
        print("%-9s %-8s requests %d, bytes %d, errors %d, retries %d, longest %d ns" % row)
    lines, marks = load(folder)
    for window in marks[marks.kind == "window"].itertuples():
        inside = lines[(lines.seconds >= window.from_seconds) & (lines.seconds < window.until_seconds)]
        before = lines[lines.seconds + lines.length_ns / 1e9 <= window.from_seconds]
        if len(inside) and len(before):
            share = inside.mib_per_second.mean() / before.mib_per_second.mean()
            print(f"{window.name}: {share:.4f} of the throughput before")
    if len(sys.argv) == 3:
        draw(lines, marks, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
