"""Ways that large logs and rare questions take, walked by small ones."""

from __future__ import annotations

import io
from concurrent.futures import Executor, Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import lmab
from lmab import LatentBandit, Sessions
from lmab.cli import fit as fit_command
from lmab.data import features as columns
from lmab.data.features import person_ids, person_numbers, person_values
from lmab.errors import InvalidData
from lmab.estimation import EM, type_priors
from lmab.estimation import fit as _fit  # noqa: F401
from lmab.evaluation import assess as _assess  # noqa: F401
from lmab.model.type_prior import Numeric
from lmab.paper.commands import reproduce
from lmab.paper.experiment import store
from lmab.paper.experiment.store import WorkerDied
from lmab.paper.experiment.studies import STUDIES
from lmab.policies import MUCB

import sys  # isort: skip

fitting, assessing = sys.modules["lmab.estimation.fit"], sys.modules["lmab.evaluation.assess"]
BANDIT = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.6], [0.1, 0.8, 0.4]])


def known_log(n: int = 120, horizon: int = 3) -> Sessions:
    """A log whose sessions' town tells the type, nearly."""
    rng = np.random.default_rng(4)
    types = rng.integers(0, 2, n)
    arms = rng.integers(0, 3, (n, horizon))
    rewards = (rng.random(arms.shape) < BANDIT.means[types[:, None], arms]).astype(float)
    town = np.where(rng.random(n) < 0.9, types, 1 - types)
    return Sessions.from_arrays(
        arms, rewards, n_arms=3, features={"town": [f"t{one}" for one in town]}, persons=np.arange(n) // 2
    )


# large logs with features are looked at in part


@pytest.mark.parametrize("persons", [True, False])
def test_of_a_large_log_all_sessions_of_some_persons_are_taken(persons):
    log = known_log(120) if persons else replace(known_log(120), persons=None)
    rows = type_priors._some(log, 30, np.random.default_rng(0))
    assert len(rows) == 30
    assert (np.diff(rows) > 0).all()
    if persons:
        assert (np.bincount(log.persons[rows])[np.unique(log.persons[rows])] == 2).all()
    assert len(type_priors._some(log, 0, np.random.default_rng(0))) == (2 if persons else 1)


def test_a_sample_of_a_task_has_whole_persons():
    edges = np.array([0, 3, 4, 6, 10])

    class Task:
        def __len__(self) -> int:
            return 10

    task = Task()
    task.edges = edges
    seen = set()
    for seed in range(20):
        rows = type_priors._sample(task, 5, np.random.default_rng(seed))
        owner = np.searchsorted(edges, rows, side="right") - 1
        assert len(set(owner.tolist())) == 2  # half of the persons
        assert all((owner == one).sum() == edges[one + 1] - edges[one] for one in set(owner.tolist()))
        seen |= set(owner.tolist())
    assert seen == {0, 1, 2, 3}


def test_a_log_with_more_cells_than_fit_is_looked_at_in_part_and_says_so(monkeypatch):
    log = known_log(200)
    monkeypatch.setattr(type_priors, "_CELLS", 2 * 80 + 1)  # everybody, and one town beside another
    rows = Sessions.from_arrays(
        log.arms.reshape(200, 3), log.rewards.reshape(200, 3), n_arms=3,
        features={"town": [*(f"t{i}" for i in range(2))] * 100, "age": np.arange(200.0)},
    )  # fmt: skip
    found = lmab.fit(rows, n_types=2, method=EM(restarts=2, prior=1.0), rng=0, check=False)
    said = [part for part in found.message.split("; ") if part.startswith("estimated from")]
    assert len(said) == 1
    number = int(said[0].removeprefix("estimated from ").split(" of the ")[0])
    assert said[0] == f"estimated from {number} of the 200 sessions"
    assert 0 < number <= 80
    assert found.log_likelihood == pytest.approx(
        found.log_likelihood if found.type_prior is None else np.sum(_likelihoods(found, rows)), rel=1e-9
    )


def _likelihoods(found, log) -> np.ndarray:
    weights = found.type_prior.weights(log.features.columns if hasattr(log.features, "columns") else log.features)
    arms, rewards = log.to_arrays()
    like = np.where(rewards[:, None, :] == 1, found.bandit.means[:, arms].transpose(1, 0, 2),
                    1 - found.bandit.means[:, arms].transpose(1, 0, 2))  # fmt: skip
    return np.log((weights * like.prod(axis=2)).sum(axis=1))


# types that short sessions leave empty


def learned(columns=("town",)):
    prior = lmab.TypePrior.by_value("town", {"t0": [0.9, 0.1], "t1": [0.1, 0.9]})
    prior = prior if columns else lmab.TypePrior.constant([0.5, 0.5])
    return type_priors.Learned(BANDIT, prior, -1.0, 0, (), True, (), ())


def test_a_weak_prior_is_tried_once_and_then_the_one_that_its_types_point_to():
    log = known_log()
    result = lmab.fit(log, n_types=2, method=EM(restarts=1, prior=1.0), rng=0, check=False)
    first, method, asked = learned(), EM(restarts=1, prior=1.0), []

    def tried(answers):
        asked.clear()
        left = iter(answers)

        def learn(bandit, prior):
            asked.append(prior)
            return next(left)

        return fitting._retried(first, learn, result, method, np.random.default_rng(0))

    assert tried([None]) == (first, result)
    nothing = type_priors.Learned(BANDIT, None, np.nan, 0, (), True, (), ())
    assert tried([nothing]) == (first, result)
    assert tried([learned(())]) == (first, result)
    weak = learned()
    assert tried([weak, None]) == (weak, result)
    assert tried([weak, nothing]) == (weak, result)
    again = learned()
    found, other = tried([weak, again])
    assert found is again
    assert other.learned is asked[1]
    assert len(asked) == 2
    assert asked[0].strength.max() == pytest.approx(result.require_log().prior(fitting._WEAK).strength.max())
    assert other.learned != result.learned


def test_a_type_without_sessions_leads_there(monkeypatch):
    seen = []

    def retried(found, learn, result, method, rng):
        seen.append(method.prior)
        return found, result

    monkeypatch.setattr(fitting, "_retried", retried)
    log = known_log()
    lmab.fit(log, n_types=2, method=EM(restarts=1, sweeps=2), rng=0, check=False)
    assert seen == []
    monkeypatch.setattr(fitting, "_EMPTY", 1.0)
    lmab.fit(log, n_types=2, method=EM(restarts=1, prior=1.0), rng=0, check=False)
    assert seen == []  # no prior was learned
    lmab.fit(log, n_types=2, method=EM(restarts=1, sweeps=2), rng=0, check=False)
    assert seen == [fitting._WEAK]


# people who may leave by type


def leaving_log(n: int = 150) -> Sessions:
    leaving = np.full((2, 3, 2), 0.2)
    bandit = LatentBandit.bernoulli(BANDIT.weights, BANDIT.means, leaving=leaving)
    return lmab.simulate(bandit, lmab.Uniform(3), n_sessions=n, horizon=4, rng=3)


def test_claims_allow_for_types_that_leave_differently(monkeypatch):
    log = leaving_log()
    estimate = lmab.fit(log, n_types=2, method=EM(restarts=2, prior=1.0), leaving="shown", rng=0, check=False)
    plan = lmab.plan(estimate, horizon=3)
    assert assessing._may_leave_by_type(estimate)
    seen = []
    union = assessing._Found

    def found(sets, *rest):
        seen.append(sets)
        return union(sets, *rest)

    monkeypatch.setattr(assessing, "_Found", found)
    assessments = []
    for allowed in (True, False):
        monkeypatch.setattr(assessing, "_may_leave_by_type", lambda _, allowed=allowed: allowed)
        assessments.append(lmab.assess(estimate, plan, log, n_draws=20, rng=0))
    more, fewer = seen
    assert len(more) == len(fewer) + 1
    assert len(more[-1].value) == 20
    assert np.ptp(more[-1].value) > 0
    assert len(assessments[0].draws) == len(assessments[1].draws) + 20  # the draws are pooled


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"bandit": BANDIT}, False),  # nobody leaves
        ({"n_types": 1}, False),
        ({"type_prior": object()}, False),
        ({"selection": object()}, False),
    ],
)
def test_who_may_leave_by_type(change, allowed):
    same = LatentBandit.bernoulli(BANDIT.weights, BANDIT.means, leaving=np.full((2, 3, 2), 0.2))
    fields = {"bandit": same, "n_types": 2, "type_prior": None, "selection": None} | change
    assert assessing._may_leave_by_type(SimpleNamespace(**fields)) is allowed
    by_type = np.stack([np.full((3, 2), 0.1), np.full((3, 2), 0.3)])
    apart = LatentBandit.bernoulli(BANDIT.weights, BANDIT.means, leaving=by_type)
    assert not assessing._may_leave_by_type(SimpleNamespace(**(fields | {"bandit": apart})))


# plans


def test_plans_of_one_step_for_many_priors_are_known_at_once():
    prior = lmab.TypePrior.by_value("town", {"a": [0.8, 0.2], "b": [0.3, 0.7], "c": [0.55, 0.45]})
    towns = ["a", "b", "b", "c"]
    plan = lmab.plan(BANDIT, horizon=1, type_prior=prior, features={"town": towns})
    each = (prior.weights({"town": towns}) @ BANDIT.means).max(axis=1)
    assert plan.lower == pytest.approx(each.mean())
    assert plan.upper == pytest.approx(each.mean())
    assert plan.status == "certified"
    for town, weights in (("a", [0.8, 0.2]), ("b", [0.3, 0.7])):
        best = (np.array(weights) @ BANDIT.means).max()
        assert plan.bounds({"town": [town]})[1:] == pytest.approx((best, best))


def test_mucb_knows_nothing_of_people_and_takes_late_rewards():
    prior = lmab.TypePrior.by_value("town", {"a": [0.8, 0.2], "b": [0.3, 0.7]})
    plain, with_prior = MUCB(BANDIT), MUCB(BANDIT, type_prior=prior)
    state = with_prior.start(2, features={"town": ["a", "b"]})
    np.testing.assert_array_equal(state.memory, plain.start(2).memory)
    arms, rewards = np.array([0, 1]), np.array([1.0, 0.0])
    np.testing.assert_array_equal(
        with_prior.observe(state, arms, rewards).memory, plain.observe(plain.start(2), arms, rewards).memory
    )


# columns


@pytest.mark.parametrize(
    ("values", "kind", "plain"),
    [
        ([True, False, None], "bool_", [1.0, 0.0, np.nan]),
        ([1, 2, None], "int8", [1.0, 2.0, np.nan]),
        ([2**60 + 1], "int64", [float(2**60)]),
        ([1.5], "float32", [1.5]),
        (["a", None], "large_string", ["a", None]),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_values_of_all_kinds_become_numbers_or_text(values, kind, plain, encoded):
    import pyarrow as pa

    given = pa.array(values, getattr(pa, kind)())
    rows = {"session": range(len(values)), "arm": [0] * len(values), "reward": [1.0] * len(values)}
    table = pa.table({**rows, "x": given.dictionary_encode() if encoded else given})
    found = lmab.Sessions.from_frame(table, features=["x"]).features["x"]
    assert repr(found.tolist()) == repr(plain)


def test_a_feature_of_lists_is_refused():
    import pyarrow as pa

    with pytest.raises(InvalidData, match="column 'x' must hold text or numbers"):
        lmab.Sessions.from_frame(pa.table({"session": [0], "arm": [0], "reward": [1], "x": [[1]]}), features=["x"])


def test_ids_of_persons():
    assert person_values(np.array([3, 1], np.uint8), 2).tolist() == [3, 1]
    assert person_values([1.0, 2.0], 2).tolist() == [1, 2]
    mixed = person_values(["b", None, "a", "b"], 4)
    assert mixed.tolist() == ["b", None, "a", "b"]
    assert person_numbers(mixed).tolist() == [0, 1, 2, 0]
    assert person_numbers(np.array([7, columns.STRANGER, 7, columns.STRANGER])).tolist() == [0, 1, 0, 2]
    strangers = person_numbers(np.array([7, columns.STRANGER, 7, columns.STRANGER])).tolist()
    assert len({*strangers}) == 3
    ids = person_ids(mixed)
    assert ids[0] == ids[3] != ids[2]
    assert ids[1] == columns.STRANGER
    assert person_ids(np.array([5, None], object)).tolist() == [5, columns.STRANGER]
    assert person_ids(np.array([5, 6])).tolist() == [5, 6]
    with pytest.raises(InvalidData, match="persons must be all integers or all text, got values of int, str"):
        person_values([1, "a"], 2)


def test_numbers_of_sessions_are_drawn_from_the_log_or_from_a_normal():
    term = Numeric("age", 40.0, 5.0)
    assert term.examples == (35.0, 40.0, 45.0)
    drawn = term.draw(4000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(40, abs=0.5)
    assert drawn.std() == pytest.approx(5, abs=0.3)
    seen = replace(term, values=(1.0, 7.0))
    assert set(seen.draw(50, np.random.default_rng(0)).tolist()) == {1.0, 7.0}


# what commands say to machines


def test_what_is_known_before_a_session_is_told_to_machines():
    prior = lmab.TypePrior.by_value("town", {"a": [0.8, 0.2], "b": [0.3, 0.7]}, keep=0.4)
    told = fit_command._features_for_json(SimpleNamespace(type_prior=prior, known=(0.1, 0.02)))
    assert told["keep"] == 0.4
    assert told["gain"] == (0.1, 0.02)
    assert told["weights"]["town"]["a"] == pytest.approx([0.8, 0.2])
    assert told["weights"]["town"]["b"] == pytest.approx([0.3, 0.7])
    assert fit_command._features_for_json(SimpleNamespace(type_prior=None)) is None


def test_how_arms_were_chosen_is_told_to_machines():
    gain = SimpleNamespace(mean=0.2, stderr=0.1)
    found = SimpleNamespace(kind="likes", favour=np.array([[1.0, 2.0]]), ratio=16.0, evidence=None, gain=gain)
    assert fit_command._exposure_for_json(found) == {
        "kind": "likes", "favour": [[1.0, 2.0]], "likelihood_ratio": 16.0, "log_evidence": None,
        "gain": {"mean": 0.2, "stderr": 0.1},
    }  # fmt: skip


def test_a_study_is_told_with_its_tables_figures_and_failures(monkeypatch):
    words = io.StringIO()
    monkeypatch.setattr(reproduce, "console", Console(file=words, width=200))
    shown = []
    monkeypatch.setattr(reproduce, "show_table", lambda *table: shown.append(table))
    study = STUDIES[0]
    table = {"title": "T", "header": ["a"], "cells": [["1"]]}
    answer = {"done": 3, "trials": 5, "tables": [table], "figures": ["x.svg", "y.svg"], "failed": ["id: broke"]}
    reproduce._print_study(study, answer)
    assert words.getvalue().splitlines() == [
        f"{study.name}: {study.title}. 3 of 5 trials are done.",
        "Figures: x.svg, y.svg",
        "failed id: broke",
    ]
    assert shown == [("T", ["a"], [["1"]])]
    words.truncate(0)
    words.seek(0)
    reproduce._print_study(study, answer | {"figures": [], "failed": []})
    assert len(words.getvalue().splitlines()) == 1


class Lost(Executor):
    """A cluster that goes away after some calls."""

    def __init__(self, answers: int) -> None:
        self.left, self.handed = answers, 0

    def submit(self, call, /, *given, **named):
        future: Future = Future()
        self.handed += 1
        if self.left > 0:
            self.left -= 1
            future.set_result(call(*given))
        else:
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def test_a_cluster_that_is_lost_is_said_and_what_was_done_is_kept():
    done = []
    with pytest.raises(WorkerDied, match="the cluster was lost; run the same command again to go on from here"):
        done.extend(store.performed(abs, [(-1,), (-2,), (-3,)], jobs=1, executor=Lost(1)))
    assert sorted(store.performed(abs, [(-1,), (-2,), (-3,)], jobs=1, executor=Lost(9))) == [1, 2, 3]


def test_no_more_calls_are_handed_out_than_twice_the_processes():
    cluster, calls = Lost(99), [(-i,) for i in range(10)]
    results = store.performed(abs, calls, jobs=2, executor=cluster)
    next(results)
    assert cluster.handed == 4


# refusals of the service, rows with gaps, a scheduler that is not there


def test_every_refusal_has_its_status():
    from lmab.serve.messages import STATUS, Problem

    by_status = {
        400: {"malformed"},
        401: {"unauthorised"},
        403: {"forbidden"},
        404: {"unknown-path", "unknown-session", "unknown-step", "unknown-policy", "unknown-experiment"},
        405: {"wrong-method"},
        408: {"too-slow"},
        409: {"out-of-order", "other-reward", "in-force", "last-arm", "not-in-force", "register-changed"},
        410: {"erased", "too-late"},
        412: {"precondition-failed"},
        413: {"too-large"},
        422: {"unknown-arm", "unknown-reward", "beyond-horizon", "bad-value", "bad-policy"},
        429: {"busy"},
        500: {"internal"},
        503: {"no-policy", "no-store"},
    }
    assert {code: status for status, codes in by_status.items() for code in codes} == STATUS
    assert all(Problem(code, "why").status == STATUS[code] for code in STATUS)


def test_rows_of_features_say_none_where_a_number_is_missing():
    found = columns.Features.of({"age": [1.0, np.nan], "town": ["a", None]}, 2)
    assert sorted(found.table_rows, key=str) == [[1.0, "a"], [None, None]]


def test_a_scheduler_that_does_not_answer_is_named_with_the_reason(monkeypatch):
    import distributed

    from lmab.errors import ClusterLost
    from lmab.parallel import connected

    def refuse(*_, **__):
        raise OSError("nobody listens\nand more")

    monkeypatch.setattr(distributed, "Client", refuse)
    words = r"^no scheduler answers at tcp://nowhere:1: nobody listens$"
    with pytest.raises(ClusterLost, match=words), connected("tcp://nowhere:1"):
        pass
