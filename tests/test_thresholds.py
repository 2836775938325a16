"""Thresholds at the value that is documented, and just beyond it: a limit that moved shows on one of the two sides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lmab
from lmab import LatentBandit, Sessions
from lmab.data.features import Features
from lmab.errors import InvalidArgument, LmabError
from lmab.estimation import type_priors
from lmab.estimation.cross_validation import LEAST
from lmab.evaluation import assessment, diagnostics, sequential
from lmab.evaluation.off_policy import LogEvidence
from lmab.model.people import People
from lmab.model.type_prior import make_columns
from lmab.moments import second_moments, subspace
from lmab.reporting.tree import shortened, tree_of
from lmab.serve import canary, messages
from lmab.serve.messages import Problem

fitting, planning = sys.modules["lmab.estimation.fit"], sys.modules["lmab.planning.plan"]
BANDIT = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.6], [0.1, 0.8, 0.4]])


def said(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """What a call gives, or the words in which it is refused."""
    try:
        return call(*given, **named)
    except (LmabError, Problem) as refused:
        return str(refused)


def steps(n: int, horizon: int = 2, n_arms: int = 2) -> Sessions:
    rng = np.random.default_rng(0)
    arms = rng.integers(0, n_arms, (n, horizon))
    return Sessions.from_arrays(arms, (rng.random(arms.shape) < 0.5).astype(float), n_arms=n_arms)


def features(n: int) -> dict[str, float]:
    return {f"f{i}": 1.0 for i in range(n)}


def evidence(least: float) -> LogEvidence:
    return LogEvidence(None, None, None, np.array([99.0, least]), np.ones(2, int), np.ones(2, int), ())


def asked_for(*, horizon: int, n_types: int, repeats: bool) -> str:
    """The planner that is taken where none is named."""
    seen: list[str] = []
    bandit = lmab.random_bandit(n_types, 12, rng=0)

    def stop(method: Any) -> None:
        seen.append(type(method).__name__)
        raise InvalidArgument("stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "_check_method", stop)
        with pytest.raises(InvalidArgument, match="stopped"):
            lmab.plan(bandit, horizon=horizon, repeats=repeats)
    return seen[0]


def column(values: Any) -> Any:
    """How a column becomes numbers, or why it does not."""
    terms, remarks = make_columns(Features.of({"x": values}, len(values)))
    return remarks or [(type(term).__name__, term.n_terms, len(getattr(term, "edges", ()))) for term in terms]


def borrowed(n_new: int) -> float:
    """The variance of a gain: the new policy's rewards never vary, the old one's do."""
    seen = sequential.StratifiedEvidence().add(sequential.Stratum(n_new, 0.0, 0.0, 1000, 500.0, 500.0))
    return float(seen.variance > 0.25 * float(seen.weight_old) * 1.01)


def drawn_depth(horizon: int, n_values: int) -> int:
    """Steps of the tree on a report."""
    rng = np.random.default_rng(0)
    bandit = LatentBandit.categorical([0.5, 0.5], rng.dirichlet(np.ones(n_values), (2, 3)), np.arange(n_values))
    tree, depth = tree_of(lmab.Greedy(bandit), bandit, horizon), 1
    while tree.branches:
        tree, depth = tree.branches[0].tree, depth + 1
    return depth


def looked(low: float, high: float, night: int, **more: Any) -> int:
    found = sequential.GainBounds(np.array(low), np.array((low + high) / 2), np.array(high))
    return int(canary.verdict(found, night, 0.02, **more))


def rare(plays: int) -> tuple[int, ...]:
    """Arms that are hardly known in the rarest of two types of one half each."""
    arms = np.array([0] * plays + [1] * 200)[:, None].repeat(2, axis=1)
    log = Sessions.from_arrays(arms, np.zeros(arms.shape), n_arms=2)
    estimate = SimpleNamespace(sessions=log, bandit=LatentBandit.bernoulli([0.5, 0.5], [[0.1, 0.2], [0.3, 0.4]]),
                               factors=None, starts="")  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "_core", lambda *_: (None, ()))
        return diagnostics.identify(estimate, rng=0).rare_arms


def suspects(n_wrong: int) -> int:
    """How many columns are suspected, of one that is the reward but for some sessions of 1,000."""
    log = steps(1000, 1)
    age = log.rewards.copy()
    age[:n_wrong] = 1 - age[:n_wrong]
    known = Sessions.from_arrays(log.arms[:, None], log.rewards[:, None], n_arms=2, features={"age": age})
    return len(type_priors._suspects(known, make_columns(known.features)[0]))


Row = tuple[Callable[[Any], Any], Any, Any]
#: What is asked, with the last value on one side and the first on the other; the answers must differ.
ROWS: dict[str, Row] = {
    "100 features": (lambda n: said(messages.check_features, features(n))[:1], 100, 101),
    "200 letters": (lambda n: said(messages.check_features, {"f": "x" * n})[:8], 200, 201),
    "10,000 steps": (lambda n: said(planning._check_horizon, n), 10_000, 10_001),
    "types without repeats": (lambda n: asked_for(horizon=11, n_types=n, repeats=False), 64, 65),
    "steps without repeats": (lambda n: asked_for(horizon=n, n_types=65, repeats=False), 10, 11),
    "an effective sample of 30": (lambda n: evidence(n).enough, 29.999, 30.0),
    "one more type": (lambda gain: assessment.too_few((gain, 0.05)), 0.05, 0.0501),
    "one more type without an error": (lambda gain: assessment.too_few((gain, 0.0)), 1e-4, 1.01e-4),
    "10 sessions are checked": (lambda n: fitting._checkable(steps(n)), 9, 10),
    "2 steps are checked": (lambda n: fitting._checkable(steps(20, n)), 1, 2),
    "4 sessions have a rank": (lambda n: "must be given" in str(said(subspace, steps(n))), 3, 4),
    "5,000 pairs of arms and values": (
        lambda n: "at most 5000 pairs" in str(said(second_moments, steps(4, 2, n), values=np.array([0.0, 1.0]))),
        20,
        2501,
    ),
    "levels of 10 sessions": (lambda n: column(["a"] * 19 + ["b"] * n), 9, 10),
    "numbers are cut above 16": (lambda n: column(np.arange(float(n)).repeat(3)), 16, 17),
    "2,000 people": (
        lambda n: len(People.of(Features.of({"age": np.arange(float(n))}, n)).shares) == n,
        2000,
        2001,
    ),
    "200 sessions of a canary": (borrowed, 200, 201),
    "a canary is late from night 14 on": (lambda night: looked(-0.01, 0.1, night), 13, 14),
    "a canary is useless from night 14 on": (lambda night: looked(-0.1, 0.01, night), 13, 14),
    "a canary ends on night 28": (lambda night: looked(-0.1, 0.1, night), 27, 28),
    "a canary wins above 0": (lambda low: looked(low, 0.1, 1), 0.0, 0.001),
    "a canary loses below 0": (lambda high: looked(-0.1, high, 1), 0.0, -0.001),
    "a tie is within the margin": (lambda low: looked(low, 0.1, 14), -0.02, -0.019),
    "useless is within the margin": (lambda high: looked(-0.1, high, 14), 0.02, 0.019),
    "shares rise after 3 nights": (lambda night: float(canary.next_share(0.05, night, 0.1)), 2, 3),
    "shares rise after 6 nights": (lambda night: float(canary.next_share(0.2, night, 0.1)), 5, 6),
    "shares rise above no gain": (lambda gain: float(canary.next_share(0.05, 3, gain)), 0.0, 0.001),
    "clear by one error": (lambda mean: type_priors.Gain(mean, 0.1, {}).clear, 0.1, 0.1001),
    "trees of 4 steps": (lambda n: drawn_depth(n, 2), 3, 4),
    "trees of 16 leaves": (lambda n: drawn_depth(4, n), 2, 3),
    "30 plays in the rarest type": (lambda n: 0 in rare(n), 29, 30),
    "columns that explain 95%": (suspects, 8, 20),
    "names of two lines": (lambda n: shortened(" ".join(["fourteen letter"] * n))[1], 2, 3),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_threshold_is_where_it_is_documented(name):
    ask, below, above = ROWS[name]
    assert ask(below) != ask(above)


def test_a_tree_has_at_most_four_steps_and_no_threshold_beyond():
    assert [drawn_depth(horizon, 2) for horizon in (1, 2, 4, 6)] == [1, 2, 4, 4]


def test_a_tie_goes_to_the_older_plan_where_it_is_asked_for():
    assert looked(-0.01, 0.1, 14) == canary.NO_WORSE
    assert looked(-0.01, 0.1, 14, ties=canary.OLDER) == canary.WAIT


def test_too_few_sessions_to_hold_some_out_are_refused():
    words = f"sessions must be at least {LEAST} to hold some out, got 9"
    assert said(diagnostics.check, steps(9), n_types=2, rng=0) == words
    assert words not in str(said(diagnostics.check, steps(10), n_types=1, rng=0))
