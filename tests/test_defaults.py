"""Defaults by what they do: to leave an option out is to give its documented value, and another value shows.

Nothing is read back from a signature. A row has a call, an option, the value that the documentation promises, and a
value with which the call must answer otherwise.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmab
from lmab import learning
from lmab.errors import LmabWarning
from lmab.estimation import EM, MomentMatching, TensorDecomposition, Traits
from lmab.planning import Lookahead, Planner, PointBased
from lmab.policies import MUCB, Exploring

BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.2, 0.7, 0.1], [0.1, 0.8, 0.3, 0.6]])
HARD = lmab.random_bandit(4, 20, kind="hard", rng=0)
LOG = lmab.simulate(BANDIT, lmab.Uniform(4), n_sessions=300, horizon=5, rng=1)
FAST = EM(restarts=2, prior=1.0)
HISTORIES = [[(arm, float(reward)) for arm, reward in zip(s.arms, s.rewards, strict=True)][:3] for s in LOG[:60]]


class Asked(Planner):
    """A planner that keeps what it was asked."""

    def __init__(self) -> None:
        self.seen: tuple[Any, ...] = ()

    def solve(self, problem, clock):
        self.seen = ("with repeats", clock.time_limit, problem.table.shape)
        return lmab.QMDP().solve(problem, clock)

    def solve_without_repeats(self, problem, clock):
        self.seen = ("once", clock.time_limit, problem.table.shape)
        return lmab.QMDP().solve_without_repeats(problem, clock)


def asked(bandit=BANDIT, **options):
    planner = Asked()
    lmab.plan(bandit, horizon=3, method=planner, **options)
    return planner.seen


def checked(**options):
    return lmab.fit(LOG, n_types=2, method=EM(restarts=1), rng=0, **options).check is None


def climbed(**options):
    found = lmab.fit(LOG, n_types=3, method=EM(**({"restarts": 2, "prior": 1.0} | options)), rng=0)
    return found.trace.tolist(), found.message


class Ageing(lmab.components.Component):
    """Sessions of which the last count most."""

    name, n_rows = "ageing", 0

    def session_weights(self, sessions):
        return 0.5 ** (np.arange(len(sessions))[::-1] / 20)

    def write(self, own, table):
        return None

    def update(self, own, memo, counts, ahead):
        return own


@cache
def planned():
    """A fit and its plan; not made on import, because every process of a run imports every file."""
    estimate = lmab.fit(LOG, n_types=2, method=EM(restarts=2), check=False, rng=0)
    return estimate, lmab.plan(estimate, horizon=3)


def certified(**options):
    found = lmab.assess(*planned(), LOG, rng=0, **({"n_draws": 20} | options))
    return found.value, found.draws.shape


def off_policy(**options):
    found = lmab.evaluate(lmab.Uniform(4), LOG, horizon=3, rng=0, **options)
    return found.interval, found.mean


def bounds(method):
    found = lmab.plan(HARD, horizon=5, method=method)
    return found.lower, found.upper


def decisions(policy):
    return [policy.act_on(history) for history in HISTORIES]


def explored(**options):
    policy = Exploring(lmab.Greedy(BANDIT), **options)
    return policy.probabilities(policy.start()).tolist()


def rounds(make: Callable[..., learning.Learner], **options):
    """How many sessions a learner asks for at a time, and its phases."""
    run = learning.Run(make(**options), n_arms=4, horizon=5, n_sessions=120, rng=0)
    asked = []
    while not run.finished and len(asked) < 12:
        plan = run.ask()
        asked.append((plan.phase, plan.n_sessions))
        run.tell(plan.on(lmab.Simulator(BANDIT, horizon=5, rng=len(asked))))
    return asked


def core(**options):
    grid = np.vander(np.linspace(-1, 1, 41), 4, increasing=True)
    return lmab.moments.design(grid, **options).rho.tolist()


def events(**options):
    table = {"who": [1, 1, 1], "when": [0, 29 * 60, 60 * 60], "arm": [0, 1, 0], "reward": [0.0, 1.0, 1.0]}
    import pandas as pd

    return len(lmab.Sessions.from_events(pd.DataFrame(table), person="who", time="when", arm="arm", reward="reward",
                                         **options))  # fmt: skip


SMALL = LOG[:60]
QUICK = EM(restarts=2, prior=1.0)


def fitted(log=SMALL, **options):
    found = lmab.fit(log, rng=0, **({"n_types": 2, "method": QUICK, "check": False} | options))
    return found.log_likelihood, found.bandit.means.tolist(), found.message


def traits(**options):
    found = lmab.fit(SMALL, method=Traits(**({"n_factors": 2, "n_points": 16} | options)), check=False, rng=0)
    return found.log_likelihood, found.n_types, len(found.trace), found.factors.loadings.shape


def learned(learner, n_sessions=200, **options):
    environment = lmab.Simulator(BANDIT, horizon=4, rng=3)
    found = lmab.learn(environment, learner, n_sessions=n_sessions, rng=4, **({"planner": lmab.QMDP()} | options))
    facts = [sorted((k, str(v)) for k, v in phase.facts.items() if "second" not in k) for phase in found.diagnostics]
    return found.sessions_used, [phase.n_sessions for phase in found.diagnostics], facts, str(found.bandit)


def asked_by_a_learner(**options):
    planner = Asked()
    learned(learning.Genie(BANDIT), **({"planner": planner} | options))
    return planner.seen


def said(call):
    """What a call returns, or the words in which it is refused."""
    try:
        return call()
    except lmab.errors.LmabError as refused:
        return str(refused)


def read(text, written="utf-8", reader=lmab.Sessions.read, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_bytes(text.encode(written))
        found = said(lambda: _shown(reader(path, **options)))
        return found.replace(folder, "") if isinstance(found, str) else found


def _shown(log):
    return log.arms.tolist(), log.rewards.tolist(), log.offsets.tolist(), log.arm_labels, log.features is None


def pack(path, **options):
    return lmab.pack(path, path.with_suffix(""), **options).load()


def reported(**options):
    with tempfile.TemporaryDirectory() as folder:
        lmab.report(BANDIT, lmab.plan(BANDIT, horizon=2), Path(folder) / "r.html", **options)
        return (Path(folder) / "r.html").read_text()


HOLES = "session,arm,reward\n0,a,\n0,b,1\n1,b,1\n"
OTHER = "session,user,arm,item,reward,paid,age\n0,1,a,x,1,0,3\n0,1,b,y,0,0,3\n1,1,b,y,1,1,3\n"
TIMES = "who,when,arm,reward\n1,0,a,1\n1,1740,b,0\n1,3600,a,1\n"
LATIN = "session,arm,reward\n0,süß,1\n0,b,0\n"
PROPENSE = lmab.Sessions.from_arrays(
    LOG.arms.reshape(300, 5), LOG.rewards.reshape(300, 5), n_arms=4, propensities=np.full((300, 5), 0.5)
)

GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])

DEFAULTS: list[tuple[str, Callable[..., Any], str, Any, Any]] = [
    ("plan", asked, "time_limit", 60.0, 61.0),
    ("plan", asked, "repeats", None, False),
    ("plan", lambda **o: asked(GAUSSIAN, **o), "bins", 12, 13),
    ("Certified", lambda **o: bounds(lmab.Certified(**o)), "gap", 0.01, 0.02),
    ("Lookahead", lambda **o: bounds(Lookahead(**o)), "depth", 1, 0),
    ("PointBased", lambda **o: bounds(PointBased(**o)), "n_beliefs", 300, 30),
    ("fit", checked, "check", True, False),
    ("EM", lambda **o: lmab.fit(LOG, n_types=3, method=EM(prior=1.0, **o), rng=0).starts.drawn, "restarts", 20, 19),
    ("EM", climbed, "tolerance", 1e-8, 1e-3),
    ("EM", climbed, "accelerate", True, False),
    ("assess", certified, "confidence", 0.9, 0.95),
    ("assess", lambda **o: lmab.assess(*planned(), LOG, rng=0, **o).draws.shape, "n_draws", 100, 50),
    ("assess", lambda **o: lmab.assess(*planned(), LOG, rng=0, **o).left_out, "time_limit", np.inf, 1e-9),
    ("evaluate", off_policy, "confidence", 0.95, 0.9),
    ("random_bandit", lambda **o: lmab.random_bandit(8, 30, rng=0, **o).means.tolist(), "rank", 4, 5),
    ("random_bandit", lambda **o: lmab.random_bandit(3, 8, rng=0, **o).means.tolist(), "kind", "spherical", "hard"),
    ("Exploring", explored, "floor", 0.05, 0.06),
    ("MUCB", lambda **o: decisions(MUCB(BANDIT, **o)), "width", 0.25, 1.0),
    ("design", core, "tolerance", 1.0, 0.01),
    ("from_events", events, "gap", "30m", "20m"),
    ("gaussian", lambda **o: lmab.LatentBandit.gaussian([1.0], [[0.5]], **o).rewards.scale, "scale", 1.0, 0.5),
    ("LUCRL", lambda **o: rounds(lambda **p: learning.LUCRL(2, **p), **o), "start", 0.3, 0.4),
    ("LUCRL", lambda **o: rounds(lambda **p: learning.LUCRL(2, **p), **o), "growth", 0.05, 0.2),
    ("UCB", lambda **o: rounds(learning.UCB, **o), "growth", 0.05, 0.2),
    ("DirectMLE", lambda **o: rounds(lambda **p: lmab.DirectMLE(2, method=FAST, **p), **o), "thompson_rounds", 2, 1),
    ("EDMLE", lambda **o: rounds(lambda **p: learning.EDMLE(2, **p), **o), "split", 0.8, 0.5),
    ("Certified", lambda **o: bounds(lmab.Certified(**o)), "absolute", 0.0, 0.5),
    ("PointBased", lambda **o: bounds(PointBased(n_beliefs=20, **o)), "seed", 0, 1),
    ("EM", lambda **o: fitted(method=EM(restarts=2, prior=1.0, **o)), "max_iterations", 5000, 3),
    ("EM", lambda **o: fitted(method=EM(restarts=2, sweeps=4, **o)), "prior", "learned", 1.0),
    ("EM", lambda **o: fitted(method=EM(restarts=1, **o)), "sweeps", 130, 4),
    ("Traits", lambda **o: traits(**{"n_factors": 8} | o) if o else traits(n_factors=8), "n_factors", 8, 2),
    ("Traits", traits, "prior", "learned", None),
    ("Traits", traits, "tolerance", 3e-5, 1e-2),
    ("Traits", traits, "max_iterations", 500, 3),
    ("Traits", traits, "equal_loadings", False, True),
    (
        "compare",
        lambda **o: lmab.compare([lmab.Greedy(BANDIT), lmab.Uniform(4)], LOG, horizon=1, rng=0, **o).interval,
        "confidence",
        0.95,
        0.9,
    ),
    (
        "evaluate",
        lambda **o: lmab.evaluate(lmab.Greedy(BANDIT), PROPENSE, horizon=2, method="per-decision", rng=0, **o).mean,
        "fit_propensities",
        False,
        True,
    ),
    ("evaluate", lambda **o: off_policy(method="self-normalised", **o), "n_bootstrap", 1000, 50),
    ("fit", lambda **o: fitted(LOG, **o), "selected", "auto", True),
    ("fit", lambda **o: fitted(LOG, **o), "components", (), (Ageing(),)),
    ("learn", lambda **o: asked_by_a_learner(**o), "time_limit", 60.0, 61.0),
    ("pack", lambda **o: read(OTHER, reader=pack, arm="item", reward="paid", **o), "session", "session", "user"),
    ("pack", lambda **o: read(OTHER, reader=pack, **o), "arm", "arm", "item"),
    ("pack", lambda **o: read(OTHER, reader=pack, **o), "reward", "reward", "paid"),
    ("pack", lambda **o: read(OTHER, reader=pack, **o), "features", (), ("age",)),
    ("pack", lambda **o: read(HOLES, reader=pack, **o), "missing", "error", "zero"),
    ("pack", lambda **o: read(LATIN, "latin-1", reader=pack, **o), "encoding", "utf-8", "latin-1"),
    ("pack", lambda **o: read(TIMES, reader=pack, person="who", time="when", **o), "gap", "30m", "20m"),
    ("read", lambda **o: read(OTHER, **o), "session", "session", "user"),
    ("read", lambda **o: read(OTHER, **o), "arm", "arm", "item"),
    ("read", lambda **o: read(OTHER, **o), "reward", "reward", "paid"),
    ("read", lambda **o: read(OTHER, **o), "features", (), ("age",)),
    ("read", lambda **o: read(HOLES, **o), "missing", "error", "zero"),
    ("read", lambda **o: read(LATIN, "latin-1", **o), "encoding", "utf-8", "latin-1"),
    ("report", reported, "title", "Session policy report", "Another"),
    ("EDMLE", lambda **o: learned(learning.EDMLE(2, **o)), "pairs", "all", "first-two"),
    ("EDMLE", lambda **o: learned(learning.EDMLE(2, **o)), "likelihood", "indicator", "full"),
    ("EDMLE", lambda **o: learned(learning.EDMLE(2, **o)), "events", "pairs", "events"),
    ("Clustering", lambda **o: learned(learning.Clustering(3, **o)), "restarts", 10, 1),
    ("HistoryUCBVI", lambda **o: rounds(learning.HistoryUCBVI, **o), "growth", 0.05, 0.2),
    ("HistoryUCBVI", lambda **o: learned(learning.HistoryUCBVI(**o)), "bonus", 0.1, 2.0),
    ("LUCRL", lambda **o: learned(learning.LUCRL(2, **o)), "bonus", 0.5, 3.0),
    ("LUCRL", lambda **o: learned(learning.LUCRL(2, **o)), "prior", 1.0, 5.0),
    ("LUCRL", lambda **o: learned(learning.LUCRL(2, **o)), "refit", True, False),
    ("UCB", lambda **o: learned(learning.UCB(**o)), "spread", 1.0, 4.0),
    ("MomentMatching", lambda **o: fitted(LOG, method=MomentMatching(**o)), "restarts", 12, 1),
    ("TensorDecomposition", lambda **o: fitted(LOG, method=TensorDecomposition(**o)), "floor", 1e-3, 0.4),
    ("TensorDecomposition", lambda **o: fitted(LOG, method=TensorDecomposition(**o)), "features", "pairs", "free"),
    ("subspace", lambda **o: lmab.moments.subspace(LOG, rank=2, **o).basis.tolist(), "pairs", "all", "first-two"),
    ("best_fixed", lambda **o: BANDIT.best_fixed(3, **o), "repeats", True, False),
    ("known_type", lambda **o: BANDIT.known_type(3, **o), "repeats", True, False),
]


@pytest.mark.parametrize(
    ("owner", "call", "option", "value", "other"), DEFAULTS, ids=[f"{r[0]}-{r[2]}" for r in DEFAULTS]
)
def test_an_option_left_out_is_its_documented_value_and_another_shows(owner, call, option, value, other):
    compare(owner, call, option, value, other)


def compare(owner: str, call: Callable[..., Any], option: str, value: Any, other: Any) -> None:
    """Leave an option out, give its value, and give another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # short logs and loose tolerances warn, as they should
        left_out, given, changed = call(), call(**{option: value}), call(**{option: other})
    assert left_out == given, f"{owner}: {option} is not {value!r} by default"
    assert changed != given, f"{owner}: {option} changes nothing"


def test_a_fit_without_options_chooses_types_learns_its_prior_and_is_checked():
    found = lmab.fit(LOG, rng=0)
    assert found.curve is not None
    assert found.n_types == found.curve.chosen
    assert found.prior == "learned"
    assert found.starts.drawn == (20 if found.n_types > 1 else 1)
    assert found.check is not None


def test_a_plan_is_certified_to_one_percent_and_no_further():
    plan = lmab.plan(HARD, horizon=5)
    assert 0.001 < plan.gap <= 0.01
    assert plan.status == "certified"


def test_traits_have_512_points():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # one round is not enough to converge
        assert lmab.fit(LOG, method=Traits(max_iterations=1), rng=0).n_types == 512


def test_columns_go_by_their_names_and_gaps_are_errors(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("session,arm,reward\n0,a,1\n0,b,0\n1,b,1\n")
    log = lmab.Sessions.read(path)
    assert (len(log), log.n_steps, set(log.arm_labels or ())) == (2, 3, {"a", "b"})
    path.write_text("session,arm,reward\n0,a,\n")
    with pytest.raises(lmab.errors.InvalidData, match="column 'reward' has a missing value"):
        lmab.Sessions.read(path)
