"""How long tests take: the longest files start first, and `make quick` leaves out the tests of `QUICK` or more.

`times.tsv` has the seconds of every test function that took half a second or more, all of its cases together.
`make times` measures it anew; functions go by their names alone, so that they may move from file to file.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as xml
from collections import Counter
from math import fsum
from pathlib import Path

FILE = Path(__file__).parent / "times.tsv"
LISTED = 0.5  # seconds from which a function is listed
QUICK = 0.6  # seconds from which `make quick` leaves it out


def read(path: Path = FILE) -> dict[str, float]:
    """Seconds by the name of the test function."""
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {name: float(seconds) for seconds, name in rows}


def write(report: Path, path: Path = FILE) -> None:
    """From pytest's report in JUnit's format."""
    seconds: Counter[str] = Counter()
    for case in xml.parse(report).iter("testcase"):
        seconds[case.get("name", "").partition("[")[0]] += float(case.get("time", 0))  # type: ignore[assignment]
    listed = [f"{time:.1f}\t{name}\n" for name, time in seconds.most_common() if time >= LISTED]
    path.write_text("".join(listed))


def longest_first(names: dict[str, list[str]], known: dict[str, float]) -> list[str]:
    """Files in the order in which they start, from the functions in each; otherwise as they come.

    The sum is exact, because the processes of one run must agree on the order, and a set has another in each of them.
    """
    return sorted(names, key=lambda file: -fsum(known.get(name, 0.0) for name in set(names[file])))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
