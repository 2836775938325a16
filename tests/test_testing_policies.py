"""check_policy catches: for every law a policy that breaks that law alone, and the message names it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from policies import always

import lmab
from lmab.policies.belief_policies import BeliefPolicy
from lmab.policies.policy import Policy, State, best_allowed
from lmab.testing.policies import LAWS, check_policy
from lmab.testing.report import BrokenLaw

BANDIT = lmab.LatentBandit.bernoulli(
    [0.3, 0.3, 0.4], [[0.9, 0.1, 0.4, 0.5], [0.2, 0.7, 0.5, 0.3], [0.3, 0.4, 0.8, 0.1]]
)


class Plain(BeliefPolicy):
    """Greedy, and right in everything."""

    kind = "toy-plain"

    def _choose(self, state, allowed, rng):
        return best_allowed(state.memory @ self.bandit.means, allowed)


class WrongSize(Plain):
    kind = "toy-wrong-size"

    def __init__(self, bandit, *, horizon=None):
        super().__init__(bandit, horizon=horizon)
        self.n_arms = bandit.n_arms + 1


class NoSuchArm(Plain):
    kind = "toy-no-such-arm"

    def _choose(self, state, allowed, rng):
        return super()._choose(state, allowed, rng) + 2


class FloatArms(Plain):
    kind = "toy-float-arms"

    def act(self, state, *, allowed=None, rng=None):
        return super().act(state, allowed=allowed, rng=rng) * 1.0


class Overwrites(Plain):
    kind = "toy-overwrites"

    def _remember(self, state, arms, rewards):
        state.memory[:] = super()._remember(state, arms, rewards)
        return state.memory


class OverwritesUnseen(Plain):
    """Counts steps without a reward in the state that it was given."""

    kind = "toy-overwrites-unseen"

    def _pass(self, state, arms):
        state.memory[:] = state.memory[:, ::-1].copy()
        return state.memory


class SecretlyRandom(Plain):
    kind = "toy-secretly-random"

    def _choose(self, state, allowed, rng):
        return np.random.default_rng().integers(self.n_arms, size=len(state.memory))


class MixesSessions(Plain):
    kind = "toy-mixes-sessions"

    def _choose(self, state, allowed, rng):
        scores = state.memory.sum(axis=0, keepdims=True) @ self.bandit.means
        return best_allowed(np.tile(scores, (len(state.memory), 1)), allowed)


class ForgetsHistory(Plain):
    kind = "toy-forgets-history"

    def act_on(self, history, *, allowed=None, rng=None):
        return super().act_on([], allowed=allowed, rng=rng)


class Random(Plain):
    """Any allowed arm, and right in everything."""

    kind, deterministic = "toy-random", False

    def _choose(self, state, allowed, rng):
        scores = rng.random((len(state.memory), self.n_arms))
        return best_allowed(scores, allowed)

    def distribution(self, state, *, n_arms):
        return np.full((len(state.memory), n_arms), 1 / n_arms)

    def _chances(self, state, allowed, n_arms):
        return allowed / allowed.sum(axis=1, keepdims=True)


class OwnGenerator(Random):
    kind = "toy-own-generator"

    def act(self, state, *, allowed=None, rng=None):
        return super().act(state, allowed=allowed, rng=0 if rng is None else rng)


class TooLittle(Random):
    kind = "toy-too-little"

    def distribution(self, state, *, n_arms):
        return 0.9 * super().distribution(state, n_arms=n_arms)


class SaysUniform(Random):
    kind = "toy-says-uniform"

    def _choose(self, state, allowed, rng):
        return best_allowed(state.memory @ self.bandit.means, allowed)


class IgnoresMasks(Plain):
    kind = "toy-ignores-masks"

    def _choose(self, state, allowed, rng):
        return super()._choose(state, None, rng)


class ShyUnderMasks(Plain):
    kind = "toy-shy-under-masks"

    def _choose(self, state, allowed, rng):
        scores = state.memory @ self.bandit.means
        return best_allowed(scores if allowed is None else -scores, allowed)


class AnyMask(Plain):
    kind = "toy-any-mask"

    def _mask(self, allowed, n):
        mask = np.asarray(allowed, bool)
        return np.broadcast_to(mask, (n, mask.shape[-1])) if mask.ndim == 1 else mask[:n]


class LastArm(Plain):
    """Plays the arm after the one that was played last: the order matters."""

    kind = "toy-last-arm"

    def _initial_memory(self):
        return np.zeros(1)

    def _remember(self, state, arms, rewards):
        return (arms[:, None] + 1.0) % self.n_arms

    def _choose(self, state, allowed, rng):
        scores = -((np.arange(self.n_arms) - state.memory) % self.n_arms)
        return best_allowed(scores, allowed)


class SaysBlind(Plain):
    kind = "toy-says-blind"
    adaptive = False


class SaysOnce(Plain):
    kind = "toy-says-once"
    repeats = False


class GivesUpEarly(Plain):
    kind = "toy-gives-up-early"

    def act(self, state, *, allowed=None, rng=None):
        if state.step >= 8:
            raise lmab.errors.InvalidArgument("state must be before step 8")
        return super().act(state, allowed=allowed, rng=rng)


class GoesOn(Plain):
    kind = "toy-goes-on"

    def act(self, state, *, allowed=None, rng=None):
        return super().act(State(min(state.step, 2), state.memory, state.single), allowed=allowed, rng=rng)


class TakesAnything(Plain):
    kind = "toy-takes-anything"

    def observe(self, state, arm, reward):
        arms = np.atleast_1d(np.asarray(arm)).astype(int)
        if (arms >= self.n_arms).any():
            raise lmab.errors.InvalidArgument("arm must be below 4")
        return State(state.step + 1, state.memory, state.single)

    def _choose(self, state, allowed, rng):
        return super()._choose(State(0, np.tile(self.bandit.weights, (len(state.memory), 1)), False), allowed, rng)


class NotAllSaved(Plain):
    kind = "toy-not-all-saved"

    def __init__(self, bandit, *, horizon=None, bonus=0.0):
        super().__init__(bandit, horizon=horizon)
        self.bonus = np.array([0, bonus, 0, 0])

    def _choose(self, state, allowed, rng):
        return best_allowed(state.memory @ self.bandit.means + self.bonus, allowed)


class HorizonNotSaved(Plain):
    kind = "toy-horizon-not-saved"

    def record(self):
        return replace(super().record(), fields={"horizon": None})


class NoKindOfItsOwn(lmab.Greedy):
    pass


class Counts(Plain):
    kind = "toy-counts"
    n_decisions = 0

    def _choose(self, state, allowed, rng):
        self.n_decisions += 1
        return super()._choose(state, allowed, rng)

    def record(self):
        base = super().record()
        return replace(base, fields={**base.fields, "n_decisions": self.n_decisions})

    @classmethod
    def from_record(cls, record):
        return super().from_record(replace(record, fields={"horizon": record.fields["horizon"]}))


class Chatty(Plain):
    kind = "toy-chatty"

    def __repr__(self):
        return f"Chatty({self.bandit.means.tolist() * 10})"


class ForgetsMasks(Plain):
    kind = "toy-forgets-masks"

    def probabilities(self, state, *, allowed=None):
        return super().probabilities(state)


class LearnsFromNothing(Plain):
    kind = "toy-learns-from-nothing"

    def _pass(self, state, arms):
        return state.memory * self.bandit.means[:, arms].T


class DropsLateRewards(Plain):
    kind = "toy-drops-late-rewards"

    def _learn(self, state, arms, rewards):
        return state.memory


class IgnoresHistory(Plain):
    kind = "toy-ignores-history"

    def start(self, n=None, *, features=None, sessions=None, history=None):
        return super().start(n)


class RoundsJson(Plain):
    kind = "toy-rounds-json"

    def to_json(self, state):
        return super().to_json(State(state.step, state.memory.round(2), state.single))


class OtherCompact(Plain):
    kind = "toy-other-compact"

    def compact(self):
        return always(1).compact()


BROKEN: dict[str, list[tuple[Policy, str]]] = {
    "n_arms says the truth": [(WrongSize(BANDIT), "n_arms is 5, the bandit has 4 arms")],
    "an arm is a number": [
        (NoSuchArm(BANDIT), r"arms must be in 0..3, got \d to [45] at step \d"),
        (FloatArms(BANDIT), "must return an array of 12 integers"),
    ],
    "observing changes no state": [(Overwrites(BANDIT), "observe at step 0 changed the state it was given")],
    "the same state gives the same arm": [(SecretlyRandom(BANDIT), "at step 0, asked twice without a generator")],
    "one session and n sessions agree": [
        (MixesSessions(BANDIT), r"after \[\(.*\)\] one session plays arm \d, the same among 12 arm \d")
    ],
    "act_on is stepping through the history": [
        (ForgetsHistory(BANDIT), r"act_on\(\[\(.*\)\]\) is arm \d, stepping there plays arm \d")
    ],
    "a policy that plays at random asks for rng": [(OwnGenerator(BANDIT), "acting without rng must raise")],
    "probabilities sum to 1": [(TooLittle(BANDIT), r"sum to 1, got sums \[0.9")],
    "arms are played as often as distribution says": [
        (SaysUniform(BANDIT), r"distribution says \[0.25.*4000 sessions play \[")
    ],
    "only allowed arms are played": [(IgnoresMasks(BANDIT), r"allowed=\[.*\] \(1: may be played\) plays \[")],
    "allowing every arm changes nothing": [(ShyUnderMasks(BANDIT), "with every arm allowed")],
    "a mask that leaves nothing to play is refused": [(AnyMask(BANDIT), "a mask without an arm must raise")],
    "order_free says the truth": [(LastArm(BANDIT), r"it plays arm \d after \[.*\] and arm \d after \[")],
    "adaptive says the truth": [(SaysBlind(BANDIT), "the same arms with other rewards lead to")],
    "repeats says the truth": [(SaysOnce(BANDIT), r"repeats is False, but a session plays the arms \[(\d), \1\]")],
    "horizon says the truth": [
        (GivesUpEarly(BANDIT, horizon=9), "horizon is 9, but at step 8 it refuses to act"),
        (GivesUpEarly(BANDIT), "horizon is None, but at step 8 it refuses to act"),
        (GoesOn(BANDIT, horizon=4), "acting at step 4, past the horizon must raise a ValueError"),
    ],
    "bad arms and rewards are refused": [(TakesAnything(BANDIT), "observing arm -1 must raise")],
    "a saved policy makes the same decisions": [
        (NotAllSaved(BANDIT, bonus=0.1), r"it plays arm \d, the loaded one arm \d"),
        (HorizonNotSaved(BANDIT, horizon=5), "horizon is 5 before and None after"),
        (NoKindOfItsOwn(BANDIT), "the file gives a Greedy"),
    ],
    "a policy never changes": [(Counts(BANDIT), "record() was another before")],
    "the repr is short": [(Chatty(BANDIT), "one line of at most 200 characters")],
    "probabilities respect masks": [(ForgetsMasks(BANDIT), "an arm that is not allowed has a probability above 0")],
    "a step without a reward counts and tells nothing": [
        (LearnsFromNothing(BANDIT), "the belief changed at step 0, though no reward was known"),
        (OverwritesUnseen(BANDIT), "observe at step 0 changed the state"),
    ],
    "a late reward tells the same": [
        (DropsLateRewards(BANDIT), r"after \[.*\] told late it plays arm \d, told in time \d")
    ],
    "a history informs the first step": [
        (IgnoresHistory(BANDIT), r"start\(history=\[.*\]\) plays arm \d, telling the same plays arm \d")
    ],
    "a state survives JSON": [(RoundsJson(BANDIT), "is another after to_json and from_json")],
    "the compact form decides the same": [
        (OtherCompact(BANDIT), r"after \[.*\] compact\(\) plays arm 1, the policy arm \d")
    ],
}


def test_every_law_is_broken_by_something():
    assert BROKEN.keys() == LAWS.keys()


@pytest.mark.parametrize(
    ("law", "policy", "seen"),
    [(law, *case) for law, cases in BROKEN.items() for case in cases],
    ids=lambda value: type(value).__name__ if isinstance(value, Policy) else "",
)
def test_a_broken_law_is_named_with_what_was_seen(law, policy, seen):
    with pytest.raises(BrokenLaw) as caught:
        check_policy(policy, BANDIT)
    assert str(caught.value).startswith(f"{type(policy).__name__} breaks ")
    message = caught.value.laws[law]  # others may be broken as well
    assert message in str(caught.value)
    assert re.search(seen, message) or seen in message, message
    assert isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("policy", [Plain(BANDIT), Plain(BANDIT, horizon=1), Plain(BANDIT, horizon=9), Random(BANDIT)])
def test_good_policies_pass(policy):
    report = check_policy(policy, BANDIT)
    assert report.kept == tuple(LAWS)
    assert repr(report) == f"Report({type(policy).__name__} keeps {len(LAWS)} laws)"


def test_a_policy_may_not_know_its_probabilities():
    class Unknown(Random):
        kind = "toy-unknown"
        distribution = Policy.distribution
        _chances = Policy._chances

    report = check_policy(Unknown(BANDIT), BANDIT)
    assert set(report.not_checked) == {
        "probabilities sum to 1",
        "arms are played as often as distribution says",
        "probabilities respect masks",
    }
    assert "which does not" in repr(report)


def test_a_random_policy_may_know_its_probabilities_without_masks_alone():
    class Unmasked(Random):
        kind = "toy-unmasked"
        _chances = Policy._chances

    report = check_policy(Unmasked(BANDIT), BANDIT)
    assert set(report.not_checked) == {"probabilities respect masks"}
    np.testing.assert_array_equal(Unmasked(BANDIT).probabilities(Unmasked(BANDIT).start()), [0.25] * 4)


def test_an_error_of_the_policy_is_a_broken_law():
    class Stumbles(Plain):
        def _choose(self, state, allowed, rng):
            raise IndexError("no such row")

    with pytest.raises(BrokenLaw, match="an arm is a number': it raised IndexError: no such row"):
        check_policy(Stumbles(BANDIT), BANDIT)


def test_normal_rewards():
    normal = lmab.LatentBandit.gaussian([0.6, 0.4], [[1.0, 0.2, 0.5], [0.0, 0.9, 0.5]], scale=0.6)
    check_policy(Plain(normal), normal)
    with pytest.raises(BrokenLaw, match="adaptive says the truth"):
        check_policy(SaysBlind(normal), normal)
