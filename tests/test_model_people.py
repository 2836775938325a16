"""The distribution of features that a prior remembers: combinations that at least 10 sessions share, and no person."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import generator

import lmab
from lmab.data.features import Features
from lmab.model.people import LEAST, People
from lmab.model.type_prior import TypePrior, _shortest, _wide, make_columns

OLDER = Path(__file__).parent / "golden" / "older"


def remembered(columns: dict[str, object], n: int, seed: int = 0, spread: float = 1.0) -> tuple[Features, TypePrior]:
    """A log's features, and a prior of any coefficients that remembers them."""
    features = Features.of(columns, n)
    terms, _ = make_columns(features)
    size = 1 + sum(term.n_terms for term in terms)
    prior = TypePrior(terms, np.random.default_rng(seed).normal(0, spread, (size, 3)))
    return features, prior.remembering(features)


def mixed(n: int, rng: np.random.Generator) -> dict[str, object]:
    """Ages, towns of which many are rare, and a few numbers, some of them missing."""
    towns = np.array([f"t{i}" for i in np.minimum(rng.geometric(0.2, n), 40)], object)
    towns[rng.random(n) < 0.05] = None
    return {
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 12, n)),
        "town": towns,
        "children": rng.poisson(0.8, n).astype(float),
    }


@given(st.integers(0, 10_000), st.integers(60, 1500))
def test_at_least_ten_sessions_have_what_a_row_says(seed, n):
    columns = mixed(n, np.random.default_rng(seed))
    features, prior = remembered(columns, n, seed)
    people = prior.people
    assert people.counts.sum() > n / 2
    personal = {value for name in ("age",) for value in columns[name] if value == value}
    for row in range(len(people)):
        alike = np.ones(n, bool)
        for name in people.features:
            value = people.features[name][row]
            if isinstance(value, str):
                alike &= features[name] == value
            elif value is not None and value == value:
                alike &= ~np.isnan(features[name])
                assert value not in personal
        assert alike.sum() >= LEAST
    for term in prior.terms:
        for level in getattr(term, "levels", ()):
            assert (features[term.name] == level).sum() >= LEAST
        if getattr(term, "edges", ()):
            assert not personal & {*term.edges, *term.values}
            bins = np.searchsorted(term.edges, features[term.name][~np.isnan(features[term.name])], side="right")
            assert np.bincount(bins).min() >= LEAST


def test_frequent_combinations_are_kept_as_they_are():
    n = 1200
    rng = generator(1)
    columns = {"country": rng.choice(["de", "fr"], n).astype(object), "member": rng.integers(0, 2, n).astype(float)}
    features, prior = remembered(columns, n)
    found = {(c, m): s for c, m, s in zip(prior.people.features["country"], prior.people.features["member"],
                                          prior.people.counts, strict=True)}  # fmt: skip
    for country in ("de", "fr"):
        for member in (0.0, 1.0):
            alike = (features["country"] == country) & (features["member"] == member)
            assert found[country, member] == pytest.approx(alike.sum())


@pytest.mark.parametrize(("n", "seed"), [(1000, 0), (1000, 1), (1000, 2), (1000, 3), (6000, 4), (6000, 5)])
def test_plans_from_what_is_remembered_are_worth_what_they_are_for_the_log(n, seed):
    """Within 0.1%, and 0.3% where 1,000 sessions are 1,000 different rows of two numbers and a text."""
    rng = np.random.default_rng([77, seed])
    bandit = lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), rng.beta(2, 3, (3, 10)))
    columns = {"age": rng.normal(40, 12, n), "spend": rng.exponential(size=n),
               "country": rng.choice(list("abcde"), n).astype(object)}  # fmt: skip
    features, prior = remembered(columns, n, seed, spread=0.6)
    own = lmab.plan(bandit, horizon=4, type_prior=prior)
    policy = own.policy
    vectors = policy.vectors[policy.starts[-2] : policy.starts[-1]]
    everybody = float((prior.weights(features) @ vectors.T).max(axis=1).mean())
    people = prior.people
    merged = float(people.shares @ (prior.weights(people.features) @ vectors.T).max(axis=1))
    assert len(people) < n / LEAST + 1
    assert merged == pytest.approx(everybody, rel=3e-3 if n == 1000 else 1e-3)
    np.testing.assert_allclose(people.shares @ prior.weights(people.features), prior.weights(features).mean(axis=0),
                               atol=1e-6)  # fmt: skip


def holds(path: Path) -> list[str]:
    """Which personal values a file holds."""
    with zipfile.ZipFile(path) as archive:
        data = b"".join(archive.read(name) for name in archive.namelist())
    personal = {"town": b"Kleinstadt", "age": b"83.708317", "age as a number": struct.pack("<d", 83.708317)}
    return [name for name, value in personal.items() if value in data]


def test_no_file_holds_the_number_or_the_town_of_a_single_person(tmp_path):
    n, rng = 400, generator(2)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])
    by_kind = lmab.TypePrior.by_value("kind", {"a": [0.95, 0.05], "b": [0.05, 0.95]})
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=n, horizon=4, type_prior=by_kind, rng=rng)
    town = log.features["kind"].copy()
    town[:9] = "Kleinstadt"
    age = np.where(log.features["kind"] == "a", 30.0, 50.0) + rng.normal(0, 8, n)
    age[0] = 83.708317
    assert age.max() == age[0]
    log = lmab.Sessions(log.arms, log.rewards, log.offsets, 3, features=Features.of({"town": town, "age": age}, n))
    estimate = lmab.fit(log, n_types=2, check=False, rng=3)
    plan = lmab.plan(estimate, horizon=3)
    estimate.save(tmp_path / "model.lmab")
    plan.save(tmp_path / "plan.lmab")
    plan.policy.save(tmp_path / "policy.lmab")
    assert estimate.type_prior.columns == ("town", "age")
    assert holds(OLDER / "model.lmab") == ["town", "age"]
    for name in ("model", "plan", "policy"):
        assert holds(tmp_path / f"{name}.lmab") == []
    again = lmab.load(tmp_path / "model.lmab").type_prior.people
    np.testing.assert_array_equal(again.counts, estimate.type_prior.people.counts)


def test_a_few_sessions_are_remembered_as_missing_values():
    people = TypePrior.by_value("x", {"a": [0.5, 0.5], "b": [0.4, 0.6]}).remembering(
        Features.of({"x": ["a"] * 4 + ["b"] * 3}, 7)
    ).people  # fmt: skip
    assert people.features["x"].tolist() == [None]
    assert people.counts.tolist() == [7.0]


def test_numbers_of_few_sessions_are_not_used():
    terms, [remark] = make_columns(Features.of({"x": np.arange(19.0)}, 19))
    assert not terms
    assert remark == "'x' has no two ranges of numbers with at least 10 sessions each"


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_an_edge_lies_above_one_number_and_at_most_at_the_other(one, other):
    low, high = sorted((one, other))
    if low < high:
        assert low < _shortest(low, high) <= high


def test_bins_of_few_sessions_join_their_neighbours():
    assert _wide((1.0, 2.0), np.array([10.0, 10.0, 10.0])) == (1.0, 2.0)
    assert _wide((1.0, 2.0), np.array([9.0, 1.0, 10.0])) == (2.0,)
    assert _wide((1.0, 2.0), np.array([10.0, 10.0, 9.0])) == (1.0,)
    assert _wide((1.0,), np.array([9.0, 100.0])) == ()


def test_files_of_the_release_before_load_and_decide_as_they_did():
    """Written by 7c5c700 from a log with a rare town and an age of one person, which older files keep as they are."""
    expected = json.loads((OLDER / "expected.json").read_text())
    estimate = lmab.load(OLDER / "model.lmab")
    people = expected["people"]
    columns = {name: [one[name] for one in people] for name in ("town", "age")}
    np.testing.assert_allclose(estimate.type_prior.weights(columns), expected["weights"], rtol=1e-12)
    exploring, greedy = lmab.load(OLDER / "policy.lmab"), lmab.load(OLDER / "greedy.lmab")
    for policy, actions in ((exploring.policy, "policy"), (greedy, "greedy")):
        for features, known in zip(people, expected["actions"][actions], strict=True):
            found = []
            for history in ([], [(0, 1.0)], [(1, 0.0), (2, 1.0)]):
                state = policy.start(features=features)
                for arm, reward in history:
                    state = policy.observe(state, arm, reward)
                found.append(int(policy.act(state)))
            assert found == known
    value = lmab.evaluate(exploring.policy, estimate.bandit, horizon=3, type_prior=estimate.type_prior)
    assert value.mean == pytest.approx(expected["value"], rel=1e-9)
    assert isinstance(estimate.type_prior.people, People)
