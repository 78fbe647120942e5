#!/usr/bin/env python3
"""Reckons with SciPy what `rotproof report --json` says of two set-ups, from the runs themselves, and compares.

    pip install scipy
    rotproof report A B --json > report.json
    python3 check_statistics.py A B report.json
"""

import json
import sys
from pathlib import Path

from scipy import stats


def values(set_up: Path, name: str) -> list[float]:
    """A figure of every run: the throughput, IOPS or latency of one phase and operation."""
    phase, operation, figure = name.split(" ", 2)
    found = []
    for run in sorted(set_up.glob("*/run.json")):
        lines = json.loads(run.read_text())["performance"]
        line = next(line for line in lines if (line["phase"], line["operation"]) == (phase, operation))
        found.append(
            {
                "throughput": line["bytes_per_second"],
                "IOPS": line["requests_per_second"],
                "median": line["latency_ns"]["p50"],
                "p99": line["latency_ns"]["p99"],
            }[figure]
        )
    return found


def close(found: float, wanted: float, what: str) -> None:
    if abs(found - wanted) > 1e-6 * max(1.0, abs(wanted)):
        sys.exit(f"{what}: {found} is not SciPy's {wanted}")


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    base, other = Path(sys.argv[1]), Path(sys.argv[2])
    [comparison] = json.loads(Path(sys.argv[3]).read_text())["comparisons"]
    checked = 0
    for row in comparison["figures"]:
        name = row["figure"]
        if not name.startswith("run "):
            continue
        a, b = values(base, name), values(other, name)
        for side, numbers in (("base", a), ("other", b)):
            summary = row[side]
            close(summary["mean"], stats.tmean(numbers), f"mean of {name}")
            close(summary["deviation"], stats.tstd(numbers), f"deviation of {name}")
            if summary["deviation"] > 0:
                low, high = stats.t.interval(
                    0.95, len(numbers) - 1, loc=stats.tmean(numbers), scale=stats.sem(numbers)
                )
                close(summary["confidence"]["low"], low, f"lower end of {name}")
                close(summary["confidence"]["high"], high, f"upper end of {name}")
        if "welch" in row:
            welch = stats.ttest_ind(b, a, equal_var=False)
            close(row["welch"]["t"], welch.statistic, f"t of {name}")
            close(row["welch"]["p"], welch.pvalue, f"p of {name}")
            checked += 1
        if "mann_whitney" in row:
            u = stats.mannwhitneyu(a, b, alternative="two-sided")
            close(row["mann_whitney"]["u"], u.statistic, f"U of {name}")
            close(row["mann_whitney"]["p"], u.pvalue, f"p of U of {name}")
    print(f"{checked} comparisons as SciPy has them")
    if checked == 0:
        sys.exit("nothing was compared")


if __name__ == "__main__":
    main()
