"""Modules that commands and small fits do not import, because each costs as much as the fit."""

from __future__ import annotations

import subprocess
import sys

FIT_A_FILE = """
import sys
import lmab
from lmab.estimation.cross_validation import check
bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.6], [0.1, 0.9, 0.4]])
log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=60, horizon=4, rng=0)
rows = [f"{i},{t},{a},{r:g}" for i, one in enumerate(log) for t, (a, r) in enumerate(zip(one.arms, one.rewards))]
open(sys.argv[1], "w").write("\\n".join(["session,step,arm,reward", *rows]))
check(lmab.fit(lmab.Sessions.read(sys.argv[1]), n_types=2, check=False, rng=0), rng=0)
print(sorted({"pandas", "scipy.stats", "matplotlib"} & set(sys.modules)))
"""


def test_a_fit_of_a_csv_file_imports_neither_pandas_nor_the_statistics_of_scipy(tmp_path):
    """Each takes as long to import as a small log takes to be fitted."""
    found = subprocess.run(
        [sys.executable, "-c", FIT_A_FILE, str(tmp_path / "log.csv")], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
