"""Defaults one level down: of the rooms, of the paper's learners and of the service, and that none lacks a row."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_defaults
from leaving_cases import bandit_people_leave
from serving import HORIZON, Clock, policy_bytes, served
from test_defaults import BANDIT, HARD, LOG, PROPENSE, fitted, learned, said

import lmab
from lmab import learning, reporting, theory
from lmab.data import split_log
from lmab.estimation import MomentMatching, TensorDecomposition
from lmab.estimation.traits.surface import Factors
from lmab.evaluation import Comparison, value_of, weigh
from lmab.learning import EDMoments
from lmab.model import Bins, Gaussian
from lmab.moments import second_moments
from lmab.paper import learner_checks as of_learners
from lmab.planning import Planner
from lmab.reporting import contents
from lmab.serve import Defaults, Options
from lmab.serve.run import server
from lmab.testing import planners as of_planners

AMOUNTS = np.random.default_rng(0).exponential(3.0, 300)
NORMAL = lmab.simulate(
    lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]]),
    lmab.Uniform(3),
    n_sessions=60,
    horizon=2,
    rng=0,
)
MIXED = lmab.Sessions.from_arrays([[0, 1], [0, 2], [0, 1]], [[1.0, 0.0]] * 3, n_arms=4)
COMPARISON = Comparison(1.1, 1.0, (0.0, 0.2), 0.05, "model", 100, 100.0, variance=1.0)
FACTORS = Factors(
    *(np.zeros((1, 1)), np.zeros((5, 1)), np.arange(5.0)[:, None], np.zeros((5, 2, 2))),
    *(np.zeros(2), np.eye(2), np.ones(1), 0.0),
)


def shown(bins: Bins) -> tuple[list[float], list[float]]:
    return bins.edges.tolist(), bins.values.tolist()


def frame(**options: Any) -> Any:
    import pandas as pd

    table = {"s": [0, 0, 1], "a": [0, 1, 0], "r": [0.0, None, 1.0], "age": [1, 1, 2]}
    options = {"session": "s", "arm": "a", "reward": "r", "missing": "zero"} | options
    return said(lambda: test_defaults._shown(lmab.Sessions.from_frame(pd.DataFrame(table), **options)))


def events(text: str, written: str = "utf-8", **options: Any) -> Any:
    named = {"person": "who", "time": "when", "arm": "arm", "reward": "reward"}
    return test_defaults.read(text, written, reader=lambda p, **o: lmab.Sessions.from_events(p, **named | o), **options)


EVENTS = "who,when,arm,reward,age\n1,0,a,1,3\n1,10,b,0,3\n"
ROWS_TWICE = {"session": [1, 1, 2], "at": [0, 0, 3], "arm": [0, 0, 1], "reward": [1.0, 1.0, 0.0], "who": [1, 1, 1]}


def rows_twice(make: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return a call that makes a log of rows of which two are the same."""

    def call(**options: Any) -> Any:
        rows = {**ROWS_TWICE, "item2": ["a", "a", "b"], "paid": [0.0, 0.0, 0.5]}
        return said(lambda: test_defaults._shown(make(rows, **fixed | options)))

    return call


def packed_rows(rows: Any, **options: Any) -> Any:
    """Return what packing gives, in memory."""
    with tempfile.TemporaryDirectory() as folder:
        return lmab.pack(rows, Path(folder) / "packed", **options).load()


def packed(**options: Any) -> Any:
    """Whether bytes that were changed are noticed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packed"
        (Path(folder) / "log.csv").write_text("session,arm,reward\n0,a,1\n0,b,0\n")
        lmab.pack(Path(folder) / "log.csv", path)
        files = [one for one in sorted(path.rglob("*")) if one.is_file() and one.suffix != ".json"]
        body = bytearray(files[0].read_bytes())
        body[-1] ^= 1
        files[0].write_bytes(body)
        return str(said(lambda: len(lmab.Packed(path, **options)))).replace(folder, "")


def planned_for(**options: Any) -> Any:
    """For how many people a plan is made at once."""
    prior = lmab.TypePrior(["age"], [[0.0, 0.0], [0.0, 0.1]])
    seen = []

    class Asked(Planner):
        def solve(self, problem: Any, clock: Any) -> Any:
            seen.append(problem.priors.shape)
            return lmab.QMDP().solve(problem, clock)

        def solve_without_repeats(self, problem: Any, clock: Any) -> Any:
            raise NotImplementedError

    lmab.plan(BANDIT, horizon=2, type_prior=prior, features={"age": np.linspace(0, 10, 70)}, method=Asked(), **options)
    return seen


def course_of(make: Any, **options: Any) -> Any:
    """What `check_learner` and `check_planner` try."""
    seen: list[Any] = []
    module = of_learners if make is lmab.testing.check_learner else of_planners
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "keep", lambda name, laws, case: seen.append(case))
        make(lmab.QMDP() if module is of_planners else learning.UCB(), **options)
    (case,) = seen
    return (len(case.cases), case.patience) if module is of_planners else (case.horizon, case.n_sessions)


def log_of_check(**options: Any) -> Any:
    """The log that `check_estimator` fits, and the number of types that it asks for."""
    seen: list[Any] = []

    class Recorder:
        def fit(self, log: Any, *, n_types: int, rng: Any, progress: Any = None) -> Any:
            seen.append((len(log.sessions), log.sessions.horizon, n_types))
            return lmab.EM(prior=0.0, restarts=1).fit(log, n_types=n_types, rng=rng)

    lmab.testing.check_estimator(Recorder(), **options)
    return seen[0]


def weighed(**options: Any) -> Any:
    found = weigh(lmab.Uniform(4), PROPENSE, horizon=2, rng=0, **options)
    return str((found.per_decision, found.self_normalised))


def matched(**options: Any) -> Any:
    return fitted(NORMAL, rewards="gaussian", method=MomentMatching(restarts=1, **options))


def moments(**options: Any) -> Any:
    return learned(EDMoments(2, **options), n_sessions=60)


def starts_of_moments(**options: Any) -> Any:
    """The starts of every fit of EDMoments: whether a better one is found among them hangs on the log."""
    seen: list[int] = []
    solve = MomentMatching.solve

    def counted(self: MomentMatching, request: Any) -> Any:
        seen.append(self.restarts)
        return solve(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MomentMatching, "solve", counted)
        moments(**options)
    return seen


def cut(**options: Any) -> Any:
    """What EDMoments makes of normal rewards in short sessions."""
    environment = lmab.Simulator(
        lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]]), horizon=2, rng=0
    )
    found = lmab.learn(environment, EDMoments(2, restarts=1, **options), n_sessions=120, rng=0, planner=lmab.QMDP(),
                       rewards="gaussian")  # fmt: skip
    return str(found.bandit), [str(phase.facts) for phase in found.diagnostics]


def gathered(**options: Any) -> Any:
    """The title of a report, and the time that its planner was given."""
    with limits() as seen:
        return reporting.gather(BANDIT, horizon=2, **options).title, seen


@contextlib.contextmanager
def limits() -> Iterator[list[float]]:
    """The seconds that a report gives to its plans."""
    seen: list[float] = []

    def keep(*given: Any, **named: Any) -> Any:
        seen.append(named["time_limit"])
        return lmab.plan(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "plan", keep)
        yield seen


def session_of_gym(**options: Any) -> Any:
    environment = lmab.gym.LatentBanditEnv(BANDIT, **options)
    observed, _ = environment.reset(seed=0)
    over, steps = False, 0
    while not over:
        _, _, ended, cut_off, _ = environment.step(0)
        over, steps = ended or cut_off, steps + 1
    return len(observed), steps


def map_of(**options: Any) -> Any:
    many = lmab.random_bandit(2, 80, rng=0)
    return reporting.plot_means(many, **options).images[0].get_array().shape


def reported_at(**options: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        lmab.report(BANDIT, lmab.plan(BANDIT, horizon=2), **options)
        return os.listdir(folder)


def limits_of_a_report(**options: Any) -> list[float]:
    with tempfile.TemporaryDirectory() as folder, limits() as seen:
        lmab.report(BANDIT, None, Path(folder) / "r.html", horizon=2, **options)
        return seen


def answers(steps: Callable[[Any, Clock], Any], policy: bytes | None = None, **settings: Any) -> Any:
    """What a service answers to some requests."""

    async def ask() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            clock = Clock()
            async with served(f"{folder}/e.db", policy, clock=clock, **settings) as client:
                return await steps(client, clock)

    return asyncio.run(ask())


async def sure(client: Any, clock: Clock) -> Any:
    return (await client.told("a", 0))["propensity"]


async def paid(client: Any, clock: Clock) -> list[int]:
    """Whether rewards of 1 and of a half are taken."""
    await client.told("a", 0)
    await client.told("b", 0)
    return [(await client.reward(name, 0, reward)).status_code for name, reward in (("a", 1.0), ("b", 0.5))]


async def late(client: Any, clock: Clock) -> list[int]:
    """Whether rewards are taken that come a second before an hour, and a second after it."""
    found = []
    for name, seconds in (("a", 3599.0), ("b", 3601.0)):
        await client.told(name, 0)
        clock.now += seconds
        found.append((await client.reward(name, 0, 1.0)).status_code)
    return found


async def often(client: Any, clock: Clock) -> list[int]:
    """How many arms each of some sessions of three steps sees."""
    sessions = [[(await client.told(f"s{i}", step, 0.0 if step else None))["arm"] for step in range(3)]
                for i in range(6)]  # fmt: skip
    return [len(set(arms)) for arms in sessions]


async def taught(client: Any, clock: Clock) -> Any:
    return [(await client.told(f"s{i}", 0, baseline="blue"))["label"] for i in range(5)]


def halves(**options: Any) -> str | tuple[bytes, bytes]:
    """The two logs that a log of visits is split into, or why it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_text("\n".join(["session,person,arm", *(f"{i},{i // 2},é" for i in range(40)), ""]), "utf-8")
        try:
            made = split_log(path, **options)
        except lmab.errors.LmabError as refused:
            return type(refused).__name__
        return made.train.read_bytes(), made.test.read_bytes()


def by_default(make: Callable[..., Any]) -> Callable[..., Any]:
    """A call of a service whose option is one of `Defaults`."""
    return lambda **options: make(defaults=Defaults(HORIZON, **options))


ROWS: list[tuple[str, Any, str, Any, Any]] = [
    ("Sessions.frequent_arms", lambda **o: MIXED.frequent_arms(**o).tolist(), "min_plays", 1, 2),
    ("Sessions.split", lambda **o: [len(s) for s in LOG.split(rng=0, **o)], "fraction", 0.5, 0.25),
    ("split_log", halves, "by", "session", "person"),
    ("split_log", halves, "test", 0.2, 0.5),
    ("split_log", halves, "seed", 0, 1),
    ("split_log", halves, "encoding", "utf-8", "utf-16"),
    ("Sessions.from_frame", frame, "features", (), ("age",)),
    (
        "Sessions.from_frame",
        lambda **o: frame(**{"missing": "error"} | o) if o else frame(missing="error"),
        "missing",
        "error",
        "zero",
    ),
    ("Sessions.from_events", lambda **o: events(EVENTS, **o), "features", (), ("age",)),
    ("Sessions.from_events", lambda **o: events(EVENTS.replace("b,0", "b,"), **o), "missing", "error", "zero"),
    (
        "Sessions.from_events",
        lambda **o: events(EVENTS.replace("b,0", "ü,0"), "latin-1", **o),
        "encoding",
        "utf-8",
        "latin-1",
    ),
    *(
        (name, rows_twice(make, **fixed), option, value, other)
        for name, make, fixed in (
            ("Sessions.from_frame", lmab.Sessions.from_frame, {"session": "session", "step": "at"}),
            ("Sessions.read", lmab.Sessions.read, {"session": "session", "step": "at"}),
            ("Sessions.from_events", lmab.Sessions.from_events, {"person": "who", "time": "at"}),
            ("pack", packed_rows, {"session": "session", "step": "at"}),
        )
        for option, value, other in (("copies", "keep", "drop"), ("arm", "arm", "item2"), ("reward", "reward", "paid"))
    ),
    *(
        (name, rows_twice(make, person="who", time="at"), "gap", "30m", "1s")
        for name, make in (("Sessions.from_frame", lmab.Sessions.from_frame), ("Sessions.read", lmab.Sessions.read))
    ),
    ("Packed", packed, "verify", True, False),
    ("LatentBandit.best_fixed_arms", lambda **o: BANDIT.best_fixed_arms(3, **o), "repeats", True, False),
    ("LatentBandit.ranked_arms", lambda **o: bandit_people_leave(9)[0].ranked_arms(2, **o), "repeats", True, False),
    (
        "Ranking",
        lambda **o: lmab.policies.Ranking([1, 0], horizon=2, **o).act_on([(1, 1.0)]),
        "repeats",
        True,
        False,
    ),
    ("plan", planned_for, "representatives", 64, 5),
    (
        "Exact",
        lambda **o: said(lambda: lmab.plan(HARD, horizon=30, method=lmab.Exact(**o)).lower),
        "max_states",
        10**8,
        10**7,
    ),
    ("report", lambda **o: reported_at(**o), "path", "report.html", "other.html"),
    ("report", lambda **o: limits_of_a_report(**o), "time_limit", 20.0, 21.0),
    ("Bins.with_zero_bin", lambda **o: shown(Bins.with_zero_bin(AMOUNTS, **o)), "n_bins", 8, 7),
    ("Bins.with_zero_bin_from_log", lambda **o: shown(Bins.with_zero_bin_from_log(NORMAL, **o)), "n_bins", 8, 7),
    ("Bins.appendix_grid", lambda **o: shown(Bins.appendix_grid(3, 0.5, **o)), "scale", 1.0, 2.0),
    ("Bins.appendix_grid", lambda **o: shown(Bins.appendix_grid(3, 0.5, **o)), "beyond", "ends", "zero"),
    ("Gaussian", lambda **o: Gaussian(np.zeros((1, 2)), **o).scale, "scale", 1.0, 2.0),
    (
        "design",
        lambda **o: lmab.moments.design(lmab.moments.subspace(LOG, rank=2), **o).events,
        "events",
        "pairs",
        "events",
    ),
    ("second_moments", lambda **o: second_moments(LOG, **o).second.tolist(), "pairs", "all", "first-two"),
    ("MomentMatching", lambda **o: fitted(LOG, method=MomentMatching(restarts=1, **o)), "arms", "all", "core"),
    (
        "MomentMatching",
        lambda **o: fitted(NORMAL, rewards="gaussian", method=MomentMatching(restarts=1, **o)),
        "bins",
        "auto",
        4,
    ),
    (
        "MomentMatching",
        lambda **o: fitted(NORMAL, rewards="gaussian", method=MomentMatching(restarts=1, bins=None, **o)),
        "epsilon",
        0.1,
        0.4,
    ),
    (
        "TensorDecomposition",
        lambda **o: fitted(LOG, method=TensorDecomposition(max_iterations=1, **o)),
        "restarts",
        30,
        1,
    ),
    (
        "TensorDecomposition",
        lambda **o: fitted(LOG, method=TensorDecomposition(restarts=2, **o)),
        "max_iterations",
        100,
        1,
    ),
    ("Factors.ends", lambda **o: len(FACTORS.ends(0, **o)[0]), "n", 3, 2),
    ("Comparison.needed", lambda **o: COMPARISON.needed(0.1, **o), "share", 0.5, 0.2),
    ("Comparison.needed", lambda **o: COMPARISON.needed(0.1, **o), "power", 0.8, 0.9),
    (
        "value_of",
        lambda **o: value_of(lmab.Thompson(BANDIT), BANDIT, horizon=2, rng=0, **o).n_sessions,
        "n_sessions",
        100_000,
        500,
    ),
    ("weigh", weighed, "confidence", 0.95, 0.9),
    ("weigh", weighed, "fit_propensities", False, True),
    ("weigh", weighed, "n_bootstrap", 1000, 50),
    ("EDMoments", moments, "pairs", "all", "first-two"),
    ("EDMoments", moments, "split", 0.5, 0.7),
    ("EDMoments", starts_of_moments, "restarts", 12, 1),
    ("EDMoments", moments, "events", "pairs", "events"),
    ("EDMoments", moments, "literal", False, True),
    ("EDMoments", cut, "bins", "auto", 3),
    ("check_learner", lambda **o: course_of(lmab.testing.check_learner, **o), "horizon", 4, 5),
    ("check_learner", lambda **o: course_of(lmab.testing.check_learner, **o), "n_sessions", 600, 500),
    ("check_estimator", log_of_check, "horizon", 4, 5),
    ("check_estimator", log_of_check, "n_sessions", 300, 200),
    ("check_estimator", log_of_check, "n_types", 2, 3),
    ("check_planner", lambda **o: course_of(lmab.testing.check_planner, **o), "n_random", 15, 14),
    ("check_planner", lambda **o: course_of(lmab.testing.check_planner, **o), "patience", 5.0, 4.0),
    ("gather", gathered, "title", "Session policy report", "Another"),
    ("gather", gathered, "time_limit", 20.0, 21.0),
    ("plot_means", map_of, "most_arms", 60, 50),
    (
        "tree_svg",
        lambda **o: reporting.tree_svg(lmab.plan(BANDIT, horizon=2).policy.tree(2), **o),
        "standalone",
        True,
        False,
    ),
    ("theory.budget", lambda **o: str(theory.budget(2, 3, 4, 0.1, **o)), "n_values", 2, 3),
    ("theory.budget", lambda **o: str(theory.budget(2, 3, 4, 0.1, **o)), "eta", 0.1, 0.2),
    ("theory.gaussian_budget", lambda **o: str(theory.gaussian_budget(2, 3, 4, 0.1, **o)), "eta", 0.1, 0.2),
    ("theory.gaussian_value_gap", lambda **o: theory.gaussian_value_gap(4, 0.001, **o), "scale", 1.0, 0.5),
    ("theory.gaussian_value_gap", lambda **o: theory.gaussian_value_gap(4, 0.001, **o), "reach", 1.0, 2.0),
    ("theory.printed_moment_sessions", lambda **o: theory.printed_moment_sessions(2, 3, 0.1, **o), "n_values", 2, 3),
    ("theory.printed_moment_sessions", lambda **o: theory.printed_moment_sessions(2, 3, 0.1, **o), "eta", 0.1, 0.2),
    ("serve.Defaults", by_default(lambda **o: answers(sure, policy_bytes(), **o)), "floor", 0.05, 0.2),
    ("serve.Defaults", by_default(lambda **o: answers(paid, **o)), "values", (0.0, 1.0), (0.0, 0.5, 1.0)),
    ("serve.Defaults", by_default(lambda **o: answers(often, **o)), "repeats", True, False),
    ("serve.Settings", lambda **o: answers(late, **o), "window", 3600.0, 10.0),
    ("serve.Settings", lambda **o: answers(taught, policy_bytes(), **o), "apprentice", False, True),
    ("serve.Options", lambda **o: server(Options("e.db", **o)).config.host, "host", "127.0.0.1", "127.0.0.2"),
    ("serve.Options", lambda **o: server(Options("e.db", **o)).config.port, "port", 8000, 8001),
    ("gym.LatentBanditEnv", lambda **o: session_of_gym(**o), "horizon", 7, 6),
    ("gym.LatentBanditEnv", lambda **o: session_of_gym(**o), "observation", "last", "belief"),
]


@pytest.mark.parametrize(("owner", "call", "option", "value", "other"), ROWS, ids=[f"{r[0]}-{r[2]}" for r in ROWS])
def test_an_option_left_out_is_its_documented_value_and_another_shows(owner, call, option, value, other):
    test_defaults.compare(owner, call, option, value, other)


#: Why some owners and options have no rows.
FOUND = "holds what was found, not how to look for it"
PART = "a part that the library itself puts together"
AS_COMMAND = "test_options_reach_the_refit has it from the command, whose options have rows"
EXEMPT = {
    "LowerBound": "a number with its proof",
    "sessions_below.n_arms": "test_paper_lower_bounds.py",
    "export_pomdp.discount": "test_model_pomdp_file.py",
    "Capabilities": "what an estimator declares of itself: test_testing_estimators.py",
    "finish": "test_testing_estimators.py::test_finish_takes_labels_and_a_status_as_text",
    "compare.measure": "test_paper_experiment.py",
    **dict.fromkeys(("Assessment", "Comparison", "Estimate", "Factors", "Identifiability", "Measurement"), FOUND),
    **dict.fromkeys(("Design", "Contents", "Phase", "Plan", "Verdict", "Curve", "Row", "LogEvidence"), FOUND),
    **dict.fromkeys(
        ("Contender", "Learning", "Panel", "Setting", "Study", "Task", "Problem", "Problem.of", "Estimator.fit"), PART
    ),
    **dict.fromkeys(("Estimator.fit", "Options.settings", "Settings.defaults", "Service", "Service.start"), PART),
    **{f"RefitOptions.{name}": AS_COMMAND for name in ("canary", "types", "least", "time_limit", "ties")},
    **{f"RefitOptions.{name}": AS_COMMAND for name in ("keep_versions", "remove_days")},
    "RefitOptions.prior": "test_serve_refit.py::test_a_refit_learns_its_prior_and_compares_at_90_percent",
    "RefitOptions.confidence": "test_serve_refit.py::test_a_refit_learns_its_prior_and_compares_at_90_percent",
    "Regime": "an enumeration of Python's",
    "page": "test_paper_experiment_page.py",
    "run_all": "any number of processes writes the same rows",
    "check_count": "a check, not an option",
    "Settings.without_store": "test_serve_app.py",
    "Settings.queue": "test_serve_app.py",
    "Settings.memory": "test_serve_live.py",
    "Settings.holdout": "test_serve_experiments.py",
    "Options.sync_arms": "test_serve_experiments.py",
    "RefitResult.seconds": "test_serve_refit.py",
    "Certified.n_beliefs": "more or fewer points find the same bounds in another way",
    "Certified.seed": "other points find the same bounds in another way",
    "Certified.memory_limit": "test_planning_search.py",
    **{f"{name}.method": "test_learning.py" for name in ("EDMLE", "LUCRL", "Tensor", "DirectMLE")},
    "EDMoments.epsilon": "the row of MomentMatching: it is handed on",
    "DirectMLE.rank": "test_learning.py",
    "learn.planner": "test_learning.py",
    "fit.method": "test_a_fit_without_options_chooses_types_learns_its_prior_and_is_checked",
    "fit.n_types": "test_a_fit_without_options_chooses_types_learns_its_prior_and_is_checked",
    "fit.leaving": "test_estimation_leaving.py",
    "plan.anyway": "test_a_plan_follows_the_verdict_of_the_check",
    "Traits.n_points": "test_traits_have_512_points",
    "separated_errors.eta": "test_paper_theory.py",
}
ROOMS = [
    *("lmab", "lmab.data", "lmab.model", "lmab.policies", "lmab.moments", "lmab.estimation", "lmab.planning"),
    *("lmab.evaluation", "lmab.learning", "lmab.testing", "lmab.reporting", "lmab.experiment", "lmab.serve"),
    *("lmab.gym", "lmab.theory"),
]


def options_with_defaults() -> set[tuple[str, str]]:
    """Every option of a public class, verb or method whose default says something."""
    found = set()
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", None) or vars(module):
            thing = getattr(module, name)
            if name.startswith("_") or not str(getattr(thing, "__module__", "")).startswith("lmab"):
                continue
            members = {name: thing}
            if inspect.isclass(thing):
                inside = {key: getattr(thing, key) for key in vars(thing) if not key.startswith("_")}
                members |= {f"{name}.{key}": one for key, one in inside.items() if inspect.isroutine(one)}
            for owner, one in members.items():
                if callable(one):
                    found |= {(owner, option) for option in _options(one)}
    return found


def _options(call: Any) -> list[str]:
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:
        return []
    silent = (None, inspect.Parameter.empty)
    return [one.name for one in parameters if not any(one.default is each for each in silent) and one.default != ()]


def test_every_default_that_says_something_has_a_row():
    rows = {(owner, option) for owner, _, option, *_ in [*test_defaults.DEFAULTS, *ROWS]}
    short = {(owner.rpartition(".")[2], option) for owner, option in rows} | rows
    missing = []
    for owner, option in sorted(options_with_defaults()):
        known = {(owner, option), (owner.rpartition(".")[2], option)} & short
        if not known and owner not in EXEMPT and f"{owner}.{option}" not in EXEMPT:
            missing.append(f"{owner}.{option}")
    assert missing == []


def test_no_exemption_is_left_over():
    known = options_with_defaults()
    names = {owner for owner, _ in known} | {f"{owner}.{option}" for owner, option in known}
    assert sorted(EXEMPT.keys() - names) == [], "these have no defaults"
