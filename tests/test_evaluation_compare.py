"""compare: the difference of two policies on one log, by hand, by the estimates themselves, and against the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from policies import always
from scipy import stats
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.evaluation.compare import compare
from lmab.evaluation.off_policy import with_propensities

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
UNIFORM = lmab.Uniform(2)


def logged(n_sessions: int, seed: int) -> lmab.Sessions:
    log = lmab.simulate(BANDIT, UNIFORM, n_sessions=n_sessions, horizon=3, rng=generator(seed))
    return with_propensities(log, UNIFORM)


def test_a_policy_earns_no_more_than_itself():
    greedy = lmab.Greedy(BANDIT)
    found = compare([greedy, greedy], logged(500, 0), horizon=3)
    assert (found.difference, found.stderr, found.interval) == (0.0, 0.0, (0.0, 0.0))


def test_the_other_way_round_is_the_same_with_the_other_sign():
    log, one, other = logged(2_000, 1), lmab.Greedy(BANDIT), always(1)
    there, back = (compare(pair, log, horizon=3, model=BANDIT, rng=0) for pair in ((one, other), (other, one)))
    assert there.difference == pytest.approx(-back.difference)
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))


def test_one_step_by_hand():
    """Arm 0 paid 1, 1, 0 in three sessions, arm 1 paid 0, 1: the shares that each arm paid are compared."""
    log = lmab.Sessions.from_arrays(
        [[0], [0], [0], [1], [1]], [[1.0], [1.0], [0.0], [0.0], [1.0]], propensities=np.full((5, 1), 0.5)
    )
    found = compare([always(0), always(1)], log, horizon=1)
    assert (found.method, found.n_sessions) == ("self-normalised", 5)
    assert (found.value, found.other) == pytest.approx((2 / 3, 1 / 2))
    assert (found.effective, found.interval) == (pytest.approx(2), None)


def test_no_value_leaves_what_is_possible():
    """Doubly robust by hand: 0.5 + (1 - 0.5) / 0.1 is 5.5, and 0.5 - 0.5 / 0.1 is -4.5."""
    log = lmab.Sessions.from_arrays([[0], [1]] * 3, [[1.0], [0.0]] * 3, propensities=np.full((6, 1), 0.1))
    model = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    found = compare([always(0), always(1)], log, horizon=1, model=model)
    assert (found.value, found.other) == (1.0, 0.0)


def test_below_thirty_effective_sessions_there_is_no_interval():
    def log(n_first, n_second):
        arms = np.repeat([0, 1], [n_first, n_second])[:, None]
        rewards = np.arange(len(arms))[:, None] % 2.0
        return lmab.Sessions.from_arrays(arms, rewards, propensities=np.full(arms.shape, 0.5))

    for counts in ((100, 29), (29, 100)):
        found = compare([always(0), always(1)], log(*counts), horizon=1)
        assert (found.interval, found.effective) == (None, pytest.approx(29))
        assert np.isnan(found.stderr)
    found = compare([always(0), always(1)], log(100, 30), horizon=1)
    assert found.interval is not None
    assert found.effective == pytest.approx(30)


def test_the_interval_by_hand():
    """Each end counts a session in which one policy earns 0 and the other 1, with the largest weight seen, 2."""
    arms = np.repeat([[0], [1]], 40, axis=0)
    rewards = np.concatenate([np.repeat([1.0, 0.0], [30, 10]), np.repeat([1.0, 0.0], [16, 24])])[:, None]
    log = lmab.Sessions.from_arrays(arms, rewards, propensities=np.full((80, 1), 0.5))
    found = compare([always(0), always(1)], log, horizon=1, confidence=0.9)

    def end(extra_first, extra_second):
        first, second = np.append(rewards[:40, 0], extra_first), np.append(rewards[40:, 0], extra_second)
        totals = first.sum(), second.sum()
        left_out = [(totals[0] - x) / 40 - totals[1] / 41 for x in first[:-1]]
        left_out += [totals[0] / 41 - (totals[1] - x) / 40 for x in second[:-1]]
        left_out.append((totals[0] - extra_first) / 40 - (totals[1] - extra_second) / 40)
        error = np.sqrt(80 / 81 * ((np.array(left_out) - np.mean(left_out)) ** 2).sum())
        return totals[0] / 41 - totals[1] / 41, stats.t.ppf(0.95, 39) * np.sqrt(40 / 39) * error

    low, high = end(0.0, 1.0), end(1.0, 0.0)
    assert found.difference == pytest.approx(0.35)
    assert found.interval == pytest.approx((low[0] - low[1], high[0] + high[1]))


def test_the_interval_holds_in_small_logs_of_rare_rewards():
    """Both arms pay in 3 of 100 plays, and one of them is explored only: a normal interval holds in 2 of 3 logs."""
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.03, 0.03]])
    logging = lmab.policies.Exploring(lmab.Greedy(lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.1]])), 0.3)
    held = normal = judged = 0
    for seed in range(150):
        log = lmab.simulate(bandit, logging, n_sessions=250, horizon=1, rng=generator(seed))
        log = with_propensities(log, logging)
        found = compare([always(1), always(0)], log, horizon=1, confidence=0.9)
        if found.interval is None:
            continue
        judged += 1
        held += found.interval[0] <= 0 <= found.interval[1]
        normal += abs(found.difference) <= 1.645 * found.stderr
    assert judged > 100
    assert held >= 0.9 * judged
    assert normal < 0.8 * judged


@pytest.mark.parametrize("horizon", [1, 2])
def test_intervals_stay_within_what_is_possible_at_both_ends(horizon):
    """Arm 0 always pays 3 and arm 1 nothing: no difference is larger than 3 a step."""
    arms = np.repeat(np.arange(80)[:, None] % 2, horizon, axis=1)
    rewards = np.where(arms == 0, 3.0, 0.0)
    log = lmab.Sessions.from_arrays(arms, rewards, propensities=np.full((80, horizon), 0.5))
    there, back = (compare([always(a), always(1 - a)], log, horizon=horizon, confidence=0.999) for a in (0, 1))
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval[1] == 3 * horizon
    assert back.interval[0] == -3 * horizon


def test_a_wide_interval_ends_at_what_is_possible():
    """Arm 0 is better, but some sessions pay the other way round: at this confidence the far end would lie beyond 3."""
    arms = np.arange(120)[:, None] % 2
    rewards = np.where((arms == 0) ^ (np.arange(120)[:, None] % 3 == 0), 3.0, 0.0)
    log = lmab.Sessions.from_arrays(arms, rewards, propensities=np.full((120, 1), 0.5))
    there, back = (compare([always(a), always(1 - a)], log, horizon=1, confidence=1 - 1e-12) for a in (0, 1))
    assert there.interval is not None
    assert back.interval is not None
    assert -3.0 < there.interval[0] < there.interval[1] == 3.0
    assert 3.0 > back.interval[1] > back.interval[0] == -3.0


def test_the_confidence_is_95_percent_unless_it_is_said():
    log, pair = logged(500, 3), (lmab.Greedy(BANDIT), always(0))
    assert compare(pair, log, horizon=3).interval == compare(pair, log, horizon=3, confidence=0.95).interval


@pytest.mark.parametrize("model", [None, BANDIT])
def test_the_interval_holds_the_truth_and_narrows_with_confidence(model):
    one, other = lmab.Greedy(BANDIT), always(0)
    truth = lmab.evaluate(one, BANDIT, horizon=3).mean - lmab.evaluate(other, BANDIT, horizon=3).mean
    held = 0
    for seed in range(12):
        log = logged(3_000, seed)
        wide, narrow = (compare([one, other], log, horizon=3, model=model, confidence=c, rng=0) for c in (0.95, 0.5))
        assert wide.interval is not None
        assert narrow.interval is not None
        held += wide.interval[0] <= truth <= wide.interval[1]
        assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]
        assert 1.96 <= (wide.interval[1] - wide.interval[0]) / (2 * wide.stderr) < 2.1
    assert held >= 9  # at 95% each, fewer happen once in 5,000 times


def test_refuses_a_log_that_agrees_with_neither():
    log = lmab.Sessions.from_arrays([[0]] * 5, [[1.0]] * 5, propensities=np.full((5, 1), 0.5), n_arms=2)
    with pytest.raises(InvalidArgument, match="sessions must hold sessions that agree with both policies"):
        compare([always(0), always(1)], log, horizon=1)


def test_on_a_model_both_values_are_exact_or_play_the_same_people():
    first, greedy = always(0), lmab.Greedy(BANDIT)
    found = compare([greedy, first], BANDIT, horizon=3, rng=0)
    exact = [lmab.evaluation.value_of(one, BANDIT, horizon=3, rng=0).mean for one in (greedy, first)]
    assert (found.value, found.other, found.method, found.stderr) == (*exact, "model", 0.0)
    assert found.interval == (found.difference, found.difference)
    thompson = lmab.Thompson(BANDIT)
    drawn = compare([thompson, first], BANDIT, horizon=3, rng=0)
    truth = lmab.evaluation.evaluate(thompson, BANDIT, horizon=3, n_sessions=200_000, rng=1).mean - exact[1]
    assert drawn.interval[0] < truth < drawn.interval[1]
    assert drawn.interval[1] - drawn.interval[0] < 0.1
    same = compare([thompson, thompson], BANDIT, horizon=3, rng=0)
    assert (same.difference, same.needed()) == (0.0, np.inf)


def live_log(n: int, nights: int, seed: int):
    """Sessions of two policies; later nights pay more, and get more of the new policy."""
    parts, versions, days = [], [], []
    for night in range(nights):
        for number, policy in enumerate((lmab.Greedy(BANDIT), always(0))):
            many = n * (night + 1) if number == 0 else n * (nights - night)
            log = lmab.simulate(BANDIT, policy, n_sessions=many, horizon=3, rng=seed + 7 * night + number)
            parts.append(replace(log, rewards=log.rewards + night))
            versions += ["new" if number == 0 else "old"] * many
            days += [f"day {night}"] * many
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole, versions, days


def test_sessions_of_both_are_compared_within_nights():
    log, versions, days = live_log(600, 4, 3)
    pair = [always(1), always(0)]  # differ from the first step on
    found = compare(pair, log, horizon=3, versions=versions, labels=("new", "old"), nights=days)
    truth = compare([lmab.Greedy(BANDIT), always(0)], BANDIT, horizon=3, rng=0).difference
    assert found.interval[0] < truth < found.interval[1]
    assert (found.method, len(found.looks), found.n_sessions) == ("live", 4, len(log))
    pooled = np.add.reduceat(log.rewards, log.offsets[:-1])
    new = np.array(versions) == "new"
    assert pooled[new].mean() - pooled[~new].mean() > 1  # what forgets the nights is far off
    named = replace(log, features={"policy": versions, "day": days})
    gaps = []
    for day in sorted(set(days)):
        here = np.array(days) == day
        parts = pooled[here & new], pooled[here & ~new]
        error = sum(part.var() / len(part) for part in parts)
        gaps.append((parts[0].mean() - parts[1].mean(), 1 / sum(1 / len(part) for part in parts), error))
    means, weights, errors = np.array(gaps).T
    assert found.difference == pytest.approx(weights @ means / weights.sum())
    assert found.stderr == pytest.approx(np.sqrt(weights**2 @ errors) / weights.sum(), rel=0.02)
    again = compare(pair, named, horizon=3, versions="policy", labels=("new", "old"), nights="day")
    assert again.looks == found.looks
    picture = found.picture()
    assert picture.count("<circle") == 4
    assert "night 4" in picture


def test_only_the_sessions_in_which_plans_differ_count():
    log, versions, _ = live_log(300, 1, 3)
    greedy = lmab.Greedy(BANDIT)
    same = compare([greedy, greedy], log, horizon=3, versions=versions, labels=("new", "old"))
    assert same.difference == 0.0
    assert same.effective == 0.0
    found = compare([greedy, always(0)], log, horizon=3, versions=versions, labels=("new", "old"))
    assert 0 < found.effective < 300


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"versions": "policy"}, "versions must name a feature of the log"),
        ({"versions": [0]}, "versions must hold one label for each of"),
        ({"versions": "all"}, "versions must"),
        ({"confidence": 1.5}, "confidence must"),
    ],
)
def test_what_cannot_be_compared_is_said(more, words):
    log = logged(20, 0)
    if more.get("versions") == "all":
        more = {"versions": ["x"] * 20, "labels": ("x", "y")}
    with pytest.raises(InvalidArgument, match=words):
        compare([always(0), always(1)], log, horizon=3, **more)


def test_two_policies_are_needed():
    with pytest.raises(InvalidArgument, match="policies must be two, the new one first, got 1"):
        compare([lmab.Greedy(BANDIT)], BANDIT, horizon=3, rng=0)
    with pytest.raises(InvalidArgument, match="horizon must be given"):
        compare([lmab.Greedy(BANDIT), lmab.Greedy(BANDIT)], BANDIT, rng=0)
    with pytest.raises(InvalidArgument, match="a picture needs the nights"):
        compare([lmab.Greedy(BANDIT), lmab.Greedy(BANDIT)], BANDIT, horizon=2, rng=0).picture()


def test_several_policies_are_compared_with_the_first_one_on_the_same_sessions():
    rivals = {
        "greedy": lmab.Greedy(BANDIT),
        "first": always(0),
        "second": always(1),
    }
    found = compare(rivals, BANDIT, horizon=3, rng=0)
    assert list(found) == ["first", "second"]
    for name, one in found.items():
        alone = compare([rivals["greedy"], rivals[name]], BANDIT, horizon=3, rng=0)
        assert (one.value, one.other, one.interval) == (alone.value, alone.other, alone.interval)
    with pytest.raises(InvalidArgument, match="policies must be two or more, got 1"):
        compare({"greedy": rivals["greedy"]}, BANDIT, horizon=3, rng=0)
    with pytest.raises(InvalidArgument, match="got 3: give more of them as a dict with names"):
        compare(list(rivals.values()), BANDIT, horizon=3, rng=0)
    with pytest.raises(InvalidArgument, match="versions must be None where policies have names"):
        compare(rivals, logged(50, 0), horizon=3, versions=[0] * 50)
