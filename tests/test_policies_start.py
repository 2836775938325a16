"""Where sessions start: features, earlier sessions folded with `keep`, lists of the best arms, helpful errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from policies import always, of_any_arms

import lmab
from lmab.errors import InvalidArgument
from lmab.planning import Lookahead
from lmab.policies import Exploring, Relabelled

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.3]])
PRIOR = lmab.TypePrior.by_value("country", {"de": [0.8, 0.2], "fr": [0.3, 0.7]}, keep=0.6)
PLAN = lmab.plan(BANDIT, horizon=3, type_prior=PRIOR)


def policies():
    once = lmab.plan(BANDIT, horizon=3, type_prior=PRIOR, repeats=False).policy
    exact = lmab.plan(BANDIT, horizon=3, method=lmab.Exact(), type_prior=lmab.TypePrior.constant([0.5, 0.5])).policy
    exact.bandit = exact.bandit.with_type_prior(
        PRIOR
    )  # its table holds for the bandit's weights alone: what it does not cover is looked ahead
    return {
        "vectors": PLAN.policy,
        "once": once,
        "lookahead": lmab.plan(BANDIT, horizon=3, type_prior=PRIOR, method=Lookahead()).policy,
        "exact": exact,
        "greedy": lmab.Greedy(BANDIT, type_prior=PRIOR),
        "exploring": Exploring(PLAN.policy, 0.1),
        "relabelled": Relabelled(PLAN.policy, [2, 1, 0]),
        "graph": PLAN.policy.graph(),
    }


POLICIES = policies()


@pytest.mark.parametrize("name", POLICIES)
def test_a_session_starts_from_its_features(name):
    policy = POLICIES[name]
    np.testing.assert_allclose(policy.belief(policy.start(features={"country": "fr"})), [0.3, 0.7])
    np.testing.assert_allclose(policy.belief(policy.start()), [0.5, 0.5])
    many = policy.start(2, features={"country": ["de", "fr"]})
    np.testing.assert_allclose(policy.belief(many), [[0.8, 0.2], [0.3, 0.7]])
    everybody = policy.start(2, features={"country": "de"})
    np.testing.assert_allclose(policy.belief(everybody), [[0.8, 0.2]] * 2)
    state = policy.from_json(policy.to_json(policy.start(features={"country": "fr"})))
    np.testing.assert_allclose(policy.belief(state), [0.3, 0.7])


@pytest.mark.parametrize("name", POLICIES)
def test_earlier_sessions_are_folded_with_keep(name):
    policy = POLICIES[name]
    arm = 2 if name == "relabelled" else 0  # the same arm of the bandit
    told = np.array([0.3 * 0.9, 0.7 * 0.1])
    after = 0.6 * told / told.sum() + 0.4 * np.array([0.3, 0.7])
    state = policy.start(features={"country": "fr"}, sessions=[[(arm, 1.0), (arm, None)]])
    np.testing.assert_allclose(policy.belief(state), after)
    assert state.step == 0
    np.testing.assert_allclose(policy.belief(policy.start(features={"country": "fr"}, history=[(arm, 1.0)])), after)
    twice = after * [0.1, 0.9]
    twice = 0.6 * twice / twice.sum() + 0.4 * np.array([0.3, 0.7])
    state = policy.start(features={"country": "fr"}, sessions=[[(arm, 1.0)], [(arm, 0.0)]])
    np.testing.assert_allclose(policy.belief(state), twice)


def test_without_a_type_prior_history_is_the_same_person_and_sessions_are_nearly():
    policy = lmab.Greedy(BANDIT)
    told = np.array([0.9, 0.1])
    np.testing.assert_allclose(policy.belief(policy.start(history=[(0, 1.0)])), told)
    np.testing.assert_allclose(policy.belief(policy.start(sessions=[[(0, 1.0)]])), 0.9 * told + 0.1 * 0.5)


def test_compact_forms_start_alike():
    compact = PLAN.policy.compact()
    given = {"features": {"country": "fr"}, "sessions": [[(0, 1.0)]]}
    np.testing.assert_array_equal(compact.start(**given).memory, PLAN.policy.start(**given).memory[0])


def test_what_a_start_refuses():
    with pytest.raises(InvalidArgument, match=r"features must be None for a Greedy without a type prior"):
        lmab.Greedy(BANDIT).start(features={"country": "fr"})
    with pytest.raises(InvalidArgument, match="history must be None where sessions are given"):
        PLAN.policy.start(sessions=[], history=[])
    with pytest.raises(InvalidArgument, match="features must hold 1 or 3 values a column, got 2"):
        PLAN.policy.start(3, features={"country": ["de", "fr"]})
    with pytest.raises(InvalidArgument, match="type_prior must have the bandit's 2 types, got 3"):
        lmab.Greedy(BANDIT, type_prior=lmab.TypePrior.constant([0.2, 0.3, 0.5]))
    assert always(1).act(always(1).start(features={"country": "fr"})) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"features": 5}, "features must be a mapping such as {'country': values}, got a int"),
        ({"features": ["de"]}, "features must be a mapping such as {'country': values}, got a"),
        ({"features": {"country": ["de", "fr"]}}, "one value a column for one session, n values for start(n), got 2"),
        ({"sessions": 5}, "sessions must be a list of sessions, got 5"),
        ({"sessions": [(0, 1.0)]}, "sessions must be a list of sessions, each a list of (arm, reward), got (0, 1.0)"),
        ({"sessions": [[(0, 1.0, 2)]]}, "each a list of (arm, reward), got [(0, 1.0, 2)]"),
        ({"history": (0, 1.0)}, "history must be a list of (arm, reward), got (0, 1.0)"),
        ({"history": [[(0, 1.0)]]}, "history must be a list of (arm, reward), got [[(0, 1.0)]]"),
        ({"history": [(0, "much")]}, "reward must be a number, or None if it is unknown, got"),
        ({"n": 3, "history": [([0, 1], [1.0, 0.0])]}, "arm must be one value or 3 of them, got [0, 1]"),
    ],
)
def test_what_was_before_must_have_the_right_form(given, said):
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        PLAN.policy.start(**given)
    if isinstance(given.get("features"), int | list):
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            PRIOR.weights(given["features"])
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            lmab.Greedy(BANDIT).start(**given)
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            lmab.simulate(BANDIT, PLAN.policy, n_sessions=1, horizon=3, type_prior=PRIOR, **given, rng=0)
    if "history" in given and "n" not in given and given["history"] != [(0, "much")]:
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            PLAN.policy.act_on(given["history"])


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "exploring"])
def test_the_best_arms_are_those_played_where_better_ones_are_closed(name):
    policy = POLICIES[name]
    state = policy.start()
    best = policy.top(state, 3)
    assert sorted(best.tolist()) == [0, 1, 2]
    assert best[0] == policy.act(state)
    assert best[1] == policy.act(state, allowed=np.arange(3) != best[0])
    np.testing.assert_array_equal(policy.top(policy.start(2), 2), [best[:2]] * 2)
    assert best[0] not in policy.top(state, 2, allowed=np.arange(3) != best[0])


def test_lists_of_random_policies_need_a_generator():
    policy = lmab.Thompson(BANDIT)
    assert set(policy.top(policy.start(), 2, rng=0).tolist()) <= {0, 1, 2}
    with pytest.raises(InvalidArgument, match="rng"):
        policy.top(policy.start(), 2)


@pytest.mark.parametrize(
    ("k", "allowed", "wanted"),
    [
        (0, None, "k must be"),
        (4, None, "k must be at most the 3 arms that are allowed, got 4"),
        (2, [True, False, False], "k must be at most the 1 arms that are allowed, got 2"),
    ],
)
def test_how_long_a_list_may_be(k, allowed, wanted):
    with pytest.raises(InvalidArgument, match=wanted):
        PLAN.policy.top(PLAN.policy.start(), k, allowed=allowed)
    with pytest.raises(InvalidArgument, match="does not know how many arms"):
        of_any_arms().top(of_any_arms().start(), 1)


def test_errors_say_what_to_call_instead():
    policy = PLAN.policy
    wanted = r"state must be what policy.start\(\) or policy.observe\(\) returned, got a list; policy.act_on takes"
    with pytest.raises(InvalidArgument, match=wanted):
        policy.act([(0, 1.0)])
    with pytest.raises(InvalidArgument, match="state must be what"):
        policy.observe([(0, 1.0)], 0, 1.0)
