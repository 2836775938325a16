"""Bandits that several planning tests share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from fractions import Fraction
from types import FrameType

import numpy as np

import lmab
from lmab import LatentBandit
from lmab.testing.oracle import small_bandit as small_bandit

#: Two Bernoulli arms with uniform priors: optimal expected successes in H = 1, 2, ... pulls, exact.
TWO_UNIFORM_ARMS = [
    Fraction(1, 2), Fraction(13, 12), Fraction(5, 3), Fraction(41, 18),
    Fraction(26, 9), Fraction(421, 120), Fraction(595, 144), Fraction(1999, 420),
]  # fmt: skip


def two_uniform_arms(horizon: int) -> LatentBandit:
    """Types are the product of two Gauss-Legendre rules with all moments up to `horizon` right."""
    nodes, weights = np.polynomial.legendre.leggauss(-(-(horizon + 1) // 2))
    nodes, weights = (nodes + 1) / 2, weights / weights.sum()
    means = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=2).reshape(-1, 2)
    return LatentBandit.bernoulli(np.outer(weights, weights).ravel(), means)


def any_bandit(seed: int) -> tuple[LatentBandit, int]:
    """Two to four values of any sign and size, types of weight 0, sure rewards, arms that tell nothing."""
    rng = np.random.default_rng([seed, 16])
    n_types, n_arms, n_values = (int(n) for n in rng.integers([1, 2, 2], [6, 5, 5]))
    probabilities = rng.dirichlet(np.full(n_values, rng.choice([0.2, 1.0, 5.0])), (n_types, n_arms))
    if rng.random() < 0.3:
        probabilities[rng.integers(n_types), rng.integers(n_arms)] = np.eye(n_values)[rng.integers(n_values)]
    if rng.random() < 0.3:
        probabilities[:, rng.integers(n_arms)] = probabilities[0, 0]
    values = np.sort(rng.normal(size=n_values)) * rng.choice([0.01, 1, 100]) + rng.choice([-2, 0, 3])
    weights = rng.dirichlet(np.full(n_types, rng.choice([0.3, 1, 5])))
    if n_types > 2 and rng.random() < 0.3:
        weights[rng.integers(n_types)] = 0
        weights /= weights.sum()
    return LatentBandit.categorical(weights, probabilities, values), 3 if n_arms * n_values > 9 else 4


def optimal_at(table: np.ndarray, means: np.ndarray, beliefs: np.ndarray, steps: int) -> np.ndarray:
    """The optimal value with `steps` to go at many unnormalised beliefs, by plain recursion."""
    values = beliefs @ means.T
    if steps > 1:
        children = (beliefs[:, None, :] * table).reshape(-1, beliefs.shape[1])
        later = optimal_at(table, means, children, steps - 1)
        values = values + later.reshape(len(beliefs), len(means), -1).sum(axis=2)
    return values.max(axis=1)


class _Interrupt:
    """Ctrl-C after a delay, raised in code of `lmab` or where it waits for threads; elsewhere sent again 1 ms later.

    Python drops, and reports as a warning, what a handler raises inside a weak reference's callback, a garbage
    collector's callback or a finaliser: none of these belongs to the modules named here.
    """

    def __init__(self) -> None:
        self._wanted = True

    def send(self, delay: float) -> None:
        self._timer = threading.Timer(delay, signal.raise_signal, [signal.SIGINT])
        self._timer.start()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        module = "" if frame is None else frame.f_globals.get("__name__", "")
        if not self._wanted:
            return
        if module.partition(".")[0] in {"lmab", "threading", "concurrent"}:
            self._wanted = False
            raise KeyboardInterrupt
        self.send(0.001)

    def cancel(self) -> None:
        """Return once no signal is under way."""
        self._wanted = False
        self._timer.cancel()
        self._timer.join()


def interrupted(
    make: Callable[[], lmab.Plan], delays: tuple[float, ...] = (0.03, 0.06, 0.1, 0.15, 0.25, 0.4, 1.0, 2.5)
) -> lmab.Plan:
    """Return the plan that `make` returns when Ctrl-C comes in its middle.

    On a busy machine Ctrl-C may come before planning has begun, and then it ends the call: it is sent again, later.
    """
    before = signal.getsignal(signal.SIGINT)
    for delay in delays:
        interrupt = _Interrupt()
        signal.signal(signal.SIGINT, interrupt)
        interrupt.send(delay)
        try:
            plan = make()
        except KeyboardInterrupt:
            continue
        finally:
            interrupt.cancel()
            signal.signal(signal.SIGINT, before)
        if plan.status == "interrupted":
            return plan
    raise AssertionError("no plan ended as interrupted")
