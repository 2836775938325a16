"""Constraints: what they take, what they refuse, and how they say it."""

from __future__ import annotations

import dataclasses
import math
import os

import numpy as np
import pytest

import lmab
from lmab import checks
from lmab.checks import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, Count, Number, OneOf, Or, check, optional
from lmab.errors import InvalidArgument, InvalidFile


@pytest.mark.parametrize(
    ("constraint", "good", "bad", "words"),
    [
        (COUNT, [1, 7, np.int32(2)], [0, -1, 1.5, math.nan, math.inf, True, "1", None], "an integer of at least 1"),
        (Count(0), [0, np.uint8(3)], [-1, False], "an integer of at least 0"),
        (POSITIVE, [1e-300, 3, np.float64(2)], [0, 0.0, -1, math.inf, math.nan, True, "1"], "a positive number"),
        (NOT_NEGATIVE, [0, 0.0, 5.5], [-1e-9, math.inf, math.nan, False], "a finite number of at least 0"),
        (FRACTION, [0.5, 1e-9, 1 - 1e-9], [0, 1, 1.0, 0.0, -0.5, math.nan], "a number between 0 and 1"),
        (Number(low=2.0), [2.1], [2.0, 1.0], "a finite number above 2"),
        (Number(low=2.0, closed=True), [2.0], [1.9], "a finite number of at least 2"),
        (OneOf(("a", "b")), ["a", "b"], ["c", None, 1], "'a' or 'b'"),
        (optional(COUNT), [None, 1], [0, "None"], "an integer of at least 1 or None"),
        (Or(COUNT, OneOf(("auto",))), [3, "auto"], [0, "all"], "an integer of at least 1 or 'auto'"),
    ],
)
def test_constraints(constraint, good, bad, words):
    assert str(constraint) == words
    for value in good:
        assert check("size", value, constraint) is value
    for value in bad:
        with pytest.raises(InvalidArgument) as caught:
            check("size", value, constraint)
        assert str(caught.value) == f"size must be {words}, got {value!r}"


def test_counts_come_back_as_plain_integers():
    assert type(checks.check_count("n", np.int64(4))) is int
    with pytest.raises(InvalidArgument, match="n must be an integer of at least 3, got 2"):
        checks.check_count("n", 2, minimum=3)


@dataclasses.dataclass(frozen=True)
class Sized:
    size: int
    most: int | None = None


def test_whole_floats_count_as_integers():
    for value in (6.0, np.float64(6.0)):
        assert type(checks.check_count("n", value)) is int
        assert type(check("n", value, optional(COUNT))) is int
        assert type(check("n", value, POSITIVE)) is type(value)
    made = Sized(4.0, 2.0)
    checks.check_fields(made, {"size": COUNT, "most": optional(COUNT)})
    assert repr(made) == "Sized(size=4, most=2)"
    assert checks.check_rng(7.0, "x").random() == np.random.default_rng(7).random()
    assert checks.whole_array(np.array([1.0, 2.0])).dtype == np.int64
    for array in (np.array([1.0, np.nan]), np.array([1.5]), np.array([True])):
        assert checks.whole_array(array) is array


def test_the_flow_takes_numbers_as_r_passes_them():
    """Through reticulate every number of R is a float."""
    bandit = lmab.random_bandit(2.0, 4.0, rng=0.0)
    log = lmab.simulate(bandit, lmab.Uniform(4.0), n_sessions=200.0, horizon=3.0, rng=0.0)  # type: ignore[call-overload]
    log = lmab.Sessions.from_arrays(log.arms.reshape(-1, 3).astype(float), log.rewards.reshape(-1, 3), n_arms=4.0)
    estimate = lmab.fit(log, n_types=2.0, method=lmab.EM(restarts=2.0), rng=0.0)
    plan = lmab.plan(estimate, horizon=3.0, method=lmab.Exact(), anyway=True)
    assert plan.policy.observe(plan.policy.start(), 1.0, 1.0).step == 1
    assert lmab.evaluate(plan, bandit, horizon=3.0).mean == lmab.evaluate(plan, bandit, horizon=3).mean
    assert bandit.best_fixed(3.0) == bandit.best_fixed(3)
    assert bandit.known_type(3.0, False) == bandit.known_type(3, False)
    assert lmab.policies.Ranking(np.array([1.0, 0.0]), horizon=2.0).act_on([]) == 1
    for horizon in (2.5, "3"):
        with pytest.raises(InvalidArgument, match="horizon must be an integer of at least 1"):
            lmab.plan(bandit, horizon=horizon)


def test_a_seed_is_the_generator_of_that_seed():
    assert checks.check_rng(0, "x").random() == np.random.default_rng(0).random()
    assert checks.check_rng(np.int64(7), "x").random() == np.random.default_rng(7).random()
    given = np.random.default_rng(1)
    assert checks.check_rng(given, "x") is given
    with pytest.raises(InvalidArgument, match="rng must be given, because why: a seed such as rng=0"):
        checks.check_rng(None, "why")
    for wrong in (-1, 1.5, True, np.random.RandomState(0)):
        with pytest.raises(InvalidArgument, match=r"rng must be a numpy.random.Generator or an integer seed \(why\)"):
            checks.check_rng(wrong, "why")


def test_arrays_are_copied_made_contiguous_and_frozen():
    mine = np.asfortranarray([[1, 2], [3, 4]], dtype=np.float32)
    found = checks.check_array("a", mine, ndim=2)
    assert found.dtype == np.float64
    assert found.flags.c_contiguous
    assert not found.flags.writeable
    mine[0, 0] = 9
    assert found[0, 0] == 1
    with pytest.raises(InvalidArgument, match=r"a must be finite, got -inf at index \(1, 0\)"):
        checks.check_array("a", [[0.0, 1.0], [-np.inf, np.nan]], ndim=2)
    with pytest.raises(InvalidArgument, match=r"a must be a non-empty array with 1 axes, got shape \(0,\)"):
        checks.check_array("a", [], ndim=1)
    with pytest.raises(InvalidArgument, match=r"a must be an array of numbers, got 'x+\.\.\.$"):
        checks.check_array("a", "x" * 100, ndim=1)


def test_distributions_may_be_off_by_rounding_only():
    nearly = np.array([[0.5, 0.5 + 5e-9], [1.0, 0.0]])
    assert checks.check_distribution("p", nearly) is nearly
    with pytest.raises(InvalidArgument, match=r"p must sum to 1 along the last axis, got 1.0000000.* at index \(1,\)"):
        checks.check_distribution("p", np.array([[0.5, 0.5], [0.5, 0.5 + 3e-8]]))
    with pytest.raises(InvalidArgument, match=r"p must lie in \[0, 1\], got -1e-12 at index \(0,\)"):
        checks.check_distribution("p", np.array([-1e-12, 1.0]))
    with pytest.raises(InvalidArgument, match=r"p must lie in \[0, 1\], got 1.2 at index \(1,\)"):
        checks.check_distribution("p", np.array([-0.0, 1.2]))
    with pytest.raises(InvalidArgument, match=r"p must sum to 1 along the last axis, got 0.75$"):
        checks.check_distribution("p", np.array([0.5, 0.25]))


def test_what_cannot_be_replaced_is_refused(tmp_path):
    checks.check_writable(tmp_path / "new.lmab")
    (tmp_path / "old.lmab").write_text("x")
    checks.check_writable(tmp_path / "old.lmab")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old.lmab"]  # no probe is left behind
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "none" / "x.lmab", "does not exist"),
        (tmp_path, "this is a folder"),
        (tmp_path / "pipe", "a device or a pipe"),
        ("/dev/null", "a device or a pipe"),
    ):
        with pytest.raises(InvalidFile, match=words):
            checks.check_writable(path)


def test_choices_read_like_a_sentence():
    assert checks.choices(["a"]) == "'a'"
    assert checks.choices(["a", "b"]) == "'a' or 'b'"
    assert checks.choices(["a", "b", "c"]) == "'a', 'b' or 'c'"
