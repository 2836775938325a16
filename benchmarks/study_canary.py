"""How often the canary's rule errs, in simulated loops: `python -m benchmarks.study_canary [--store]`.

Sessions of a made-up service earn clicks; weekdays pay differently. One canary, 2,000 loops at once: the whole rule of
28 nights, and the bounds alone, looked at for 40 nights whatever they say.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from lmab.checks import check_rng
from lmab.evaluation.sequential import StratifiedEvidence, Stratum, bounds
from lmab.serve.canary import BETTER, END, MARGIN, NO_WORSE, OLDER, SHARES, WAIT, WORSE, next_share, verdict

from . import rows as stored

LOOKS = 40  # nights
CASES = (  # clicks, sessions a night, part of them in which the plans differ
    (0.05, 200, 1.0), (0.05, 2000, 1.0), (0.05, 2000, 0.2), (0.4, 200, 1.0), (0.4, 2000, 1.0), (0.4, 2000, 0.2),
)  # fmt: skip
GAINS = (0.0, -0.02, -0.05, -0.1, -0.2, 0.05, 0.1, 0.2)
WEEK = (1.0, 0.95, 0.9, 0.95, 1.1, 1.3, 1.2)  # what a day pays, beside the average
SPREAD = (0.5, 1.0, 1.5)  # what types pay, beside the average


@dataclass(frozen=True)
class Found:
    """What happened to canaries of one gain; all but nights are shares of the loops."""

    called_better: float
    promoted: float  # those, and the ties
    tied: float  # promoted as the newer plan of a tie: surely no less, but for the margin
    promoted_ties_older: float  # promoted where a tie keeps the version in force
    called_worse: float
    withdrawn: float
    nights: float  # until the decision, on average
    lost: float  # part of the reward of 28 nights that was lost meanwhile
    ever_better: float = 0.0  # the lower bound was above 0 at one of 40 nightly looks
    ever_worse: float = 0.0  # the upper bound was below 0


def law(rate: float, horizon: int, gain: float, day: float) -> Any:
    """The probabilities of 0, 1, ..., horizon clicks in a session."""
    rates = np.clip(rate * np.array(SPREAD) * (1 + gain) * day, 0, 1)
    return binom.pmf(np.arange(horizon + 1)[:, None], horizon, rates).mean(axis=1)


def simulated(
    rate: float, horizon: int, *, per_night: int, gain: float, differ: float = 1.0, n_loops: int = 2000, rng: Any
) -> Found:
    """The whole rule for canaries that earn `gain` more, a part of the reward, in `differ` of the sessions."""
    rng, values = check_rng(rng, "loops are simulated"), np.arange(horizon + 1.0)
    before = law(rate, horizon, 0.0, 1.0)
    mean = float(before @ values)
    variance = float(before @ values**2) - mean**2
    seen, share = StratifiedEvidence(), np.full(n_loops, SHARES[0])
    said, night_of, lost = np.zeros(n_loops, int), np.full(n_loops, END), np.zeros(n_loops)
    said_older = said
    ever = np.zeros((2, n_loops), bool)
    for night in range(1, LOOKS + 1):
        day = WEEK[night % 7]
        n = rng.binomial(per_night, differ, n_loops)
        n1 = rng.binomial(n, share)
        new = rng.multinomial(n1, law(rate, horizon, gain / differ, day))
        old = rng.multinomial(n - n1, law(rate, horizon, 0.0, day))
        seen = seen.add(Stratum(n1, new @ values, new @ values**2, n - n1, old @ values, old @ values**2))
        found = bounds(seen, np.full(n_loops, mean), np.full(n_loops, variance))
        ever |= np.array([found.low > 0, found.high < 0])
        if night <= END:
            waiting = said == WAIT
            lost += np.where(waiting, -gain * share, 0.0)
            now = verdict(found, night, MARGIN * mean / differ)
            night_of = np.where(waiting & (now != WAIT), night, night_of)
            said = np.where(waiting, now, said)
            older = verdict(found, night, MARGIN * mean / differ, OLDER)
            said_older = np.where(said_older == WAIT, older, said_older)
        share = next_share(share, night, found.gain)
    return Found(
        float((said == BETTER).mean()), float((said > 0).mean()), float((said == NO_WORSE).mean()),
        float((said_older > 0).mean()), float((said == WORSE).mean()), float((said < 0).mean()), float(night_of.mean()),
        float(max(lost.mean() / END, 0.0)), *(float(one.mean()) for one in ever),
    )  # fmt: skip


def main() -> None:
    """Print a line for each case; with --store, keep the worst case of every gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=2000)
    parser.add_argument("--store", action="store_true", help="keep the worst cases in docs/benchmarks/rows.json")
    given = parser.parse_args()
    rng, worst = np.random.default_rng(5), dict[str, float]()
    for rate, per_night, differ in CASES:
        for gain in GAINS:
            if abs(gain / differ) > 1 or rate * SPREAD[-1] * max(WEEK) * (1 + gain / differ) > 1:
                continue
            found = simulated(rate, 5, per_night=per_night, gain=gain, differ=differ, n_loops=given.loops, rng=rng)
            shown = ", ".join(f"{name} {value:.4g}" for name, value in asdict(found).items())
            print(f"clicks {rate}, {per_night} a night, differ {differ}, gain {gain:+.2f}: {shown}", flush=True)
            for name, value in asdict(found).items():
                key = f"{name}/{gain:+.0%}"
                worst[key] = max(worst.get(key, 0.0), value)
                if (rate, per_night, differ) == CASES[1]:
                    worst[f"clicks/{key}"] = value
    if given.store:
        command = f"python -m benchmarks.study_canary --loops {given.loops}"
        stored.store("study_canary", stored.measured(command, worst))


if __name__ == "__main__":
    main()
