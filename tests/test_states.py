"""Random walks over states: policies in the middle of sessions, runs of learners, and all saved kinds.

A state machine plays, forgets, reports rewards late, saves and loads in any order, and compares with the simplest
model, the list of events.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import serving
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import lmab
from lmab import learning
from lmab.errors import InvalidArgument
from lmab.testing.policies import same_record

BANDIT = lmab.LatentBandit.categorical(
    [0.2, 0.5, 0.3],
    [
        [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.5, 0.0, 0.5]],
        [[0.2, 0.2, 0.6], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.1, 0.9, 0.0]],
        [[0.4, 0.5, 0.1], [0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]],
    ],
    [-1.0, 0.0, 2.0],
)
HORIZON = 6


def posterior(steps: list[tuple[int, float | None]]) -> np.ndarray:
    """Return the posterior by Bayes' rule over the steps with known rewards."""
    chances = BANDIT.weights.copy()
    for arm, reward in steps:
        if reward is not None:
            chances = chances * BANDIT.rewards.probabilities[:, arm, list(BANDIT.rewards.values).index(reward)]
    return chances / chances.sum()


class Session(RuleBasedStateMachine):
    """One session of a policy that keeps a belief."""

    policy: lmab.Policy

    def __init__(self) -> None:
        super().__init__()
        self.state = self.policy.start()
        self.steps: list[tuple[int, float | None]] = []

    def left(self) -> bool:
        return len(self.steps) < HORIZON

    def late(self) -> list[int]:
        return [place for place, (_, reward) in enumerate(self.steps) if reward is None]

    def possible(self, place: int | None, arm: int) -> list[float]:
        """Rewards of the arm that some type can pay after all that is known."""
        belief = posterior(self.steps)
        chances = belief @ BANDIT.rewards.probabilities[:, arm]
        return [value for value, chance in zip(BANDIT.rewards.values.tolist(), chances, strict=True) if chance > 0]

    @precondition(left)
    @rule(data=st.data(), known=st.booleans(), own=st.booleans())
    def play(self, data, known, own):
        arm = int(self.policy.act(self.state)) if own else data.draw(st.integers(0, BANDIT.n_arms - 1))
        reward = data.draw(st.sampled_from(self.possible(None, arm))) if known else None
        self.state = self.policy.observe(self.state, arm, reward)
        self.steps.append((arm, reward))

    @precondition(late)
    @rule(data=st.data())
    def tell(self, data):
        place = data.draw(st.sampled_from(self.late()))
        arm = self.steps[place][0]
        reward = data.draw(st.sampled_from(self.possible(place, arm)))
        self.state = self.policy.tell(self.state, arm, reward)
        self.steps[place] = arm, reward

    @rule()
    def write_and_read_the_state(self):
        self.state = self.policy.from_json(self.policy.to_json(self.state))

    @rule()
    def save_and_load_the_policy(self):
        with tempfile.TemporaryDirectory() as folder:
            self.policy.save(Path(folder) / "policy.lmab")
            self.policy = lmab.load(Path(folder) / "policy.lmab")

    @invariant()
    def the_belief_is_bayes(self):
        np.testing.assert_allclose(self.policy.belief(self.state), posterior(self.steps), atol=1e-9)
        assert self.state.step == len(self.steps)

    @invariant()
    def the_decision_is_that_of_a_session_told_in_order(self):
        if self.left() and not self.late():
            assert self.policy.act(self.state) == self.policy.act_on(self.steps)


class Compact(Session):
    """The same, and beside it the compact form, which decides at every step as the policy does."""

    @invariant()
    def the_compact_form_decides_the_same(self):
        compact = self.policy.compact()
        small, whole = compact.start(), self.policy.start()
        for arm, reward in self.steps:
            small, whole = compact.observe(small, arm, reward), self.policy.observe(whole, arm, reward)
        if self.left():
            assert compact.act(small) == self.policy.act(whole)
        np.testing.assert_allclose(compact.belief(small), posterior(self.steps), atol=1e-9)


@pytest.mark.parametrize("kind", [Session, Compact])
@pytest.mark.parametrize("made", ["greedy", "certified"])
def test_a_session_in_any_order_of_events_is_bayes(kind, made, monkeypatch):
    planned = lmab.plan(BANDIT, horizon=HORIZON, method=lmab.Certified(gap=0.2)).policy
    monkeypatch.setattr(Session, "policy", lmab.Greedy(BANDIT, horizon=HORIZON) if made == "greedy" else planned, False)
    run_state_machine_as_test(kind, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))


class Campaign(RuleBasedStateMachine):
    """Run of a learner that receives its sessions in parts, and is saved and loaded in between."""

    def __init__(self) -> None:
        super().__init__()
        self.run = learning.Run(learning.UCB(), n_arms=BANDIT.n_arms, horizon=3, n_sessions=30, rng=4)
        self.told: list[lmab.Sessions] = []
        self.seed = 0

    def going_on(self) -> bool:
        return not self.run.finished

    def sessions(self, number: int) -> lmab.Sessions:
        self.seed += 1
        asked = self.run.ask()
        if asked.policy is not None:
            return lmab.simulate(BANDIT, asked.policy, n_sessions=number, horizon=3, rng=self.seed)
        return lmab.simulate(BANDIT, np.resize(asked.arms, (number, asked.arms.shape[1])), rng=self.seed)

    @precondition(going_on)
    @rule(share=st.floats(0, 1))
    def tell(self, share):
        asked = self.run.ask()
        sessions = self.sessions(max(1, round(share * asked.n_sessions)))
        self.run.tell(sessions)
        self.told.append(sessions)

    @precondition(going_on)
    @rule(more=st.integers(1, 3))
    def too_many_are_refused(self, more):
        asked = self.run.ask()
        with pytest.raises(InvalidArgument, match=f"at most the {asked.n_sessions} asked for"):
            self.run.tell(self.sessions(asked.n_sessions + more))
        assert self.going_on()

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run.save(Path(folder) / "run.lmab")
            self.run = lmab.load(Path(folder) / "run.lmab")

    @invariant()
    def what_was_told_is_counted(self):
        n = sum(map(len, self.told))
        assert self.run.sessions_used == n
        assert self.run.finished == (n == 30)
        if self.going_on():
            assert 1 <= self.run.ask().n_sessions <= 30 - n

    def teardown(self):
        """Compare the state with a run that received the same sessions without a break."""
        again = learning.Run.resume(self.run.learner, self.run.task, self.run.seed, self.told)
        assert again.finished == self.run.finished
        if again.finished:
            assert same_record(again.learned.policy.record(), self.run.learned.policy.record())
        else:
            assert again.ask().n_sessions == self.run.ask().n_sessions


def test_a_run_told_in_parts_saved_and_loaded_is_the_run_itself():
    run_state_machine_as_test(Campaign, settings=settings(max_examples=25, stateful_step_count=12, deadline=None))


NAMES = ("a", "b")
REPLICAS = st.integers(0, 1)
REWARDS = st.sampled_from([None, 0.0, 1.0])
ALLOWED = st.sampled_from([None, None, ["green", "blue"]])


class Served(RuleBasedStateMachine):
    """Sessions of two replicas on one store with repeated requests, late rewards, restarts and delays."""

    policy: lmab.Policy  # the served policy, without exploration
    WINDOW = 100.0

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop, self.clock = asyncio.Runner(), serving.Clock()
        self.replicas: list[tuple[serving.Client, AsyncExitStack]] = []
        self.answers: dict[str, list[dict]] = {name: [] for name in NAMES}
        self.rewards: dict[str, list[float | None]] = {name: [] for name in NAMES}
        self.late: set[tuple[str, int]] = set()
        for policy in (serving.policy_bytes(floor=0.0), None):
            self.replicas.append(self.loop.run(self.open(policy)))

    async def open(self, policy: bytes | None) -> tuple[serving.Client, AsyncExitStack]:
        stack = AsyncExitStack()
        where = str(Path(self.folder.name) / "events.db")
        made = serving.served(where, policy, clock=self.clock, window=self.WINDOW)
        return await stack.enter_async_context(made), stack

    def ask(self, replica: int, name: str, step: int, reward: float | None = None, **more):
        return self.loop.run(self.replicas[replica][0].decide(name, step, reward, **more))

    def expected(self, name: str, allowed: list[str] | None) -> int:
        """Return the policy's arm after the known part of the session."""
        state = self.policy.start()
        for answer, reward in zip(self.answers[name], self.rewards[name], strict=True):
            state = self.policy.observe(state, answer["arm"], reward)
        mask = None if allowed is None else np.isin(serving.LABELS, allowed)
        return int(self.policy.act(state, allowed=mask))

    def refusal(self, name: str, step: int, reward: float) -> tuple[int, str] | None:
        """Return the reason for refusing a reward, or None."""
        known = self.rewards[name][step]
        if known is None:
            return (410, "too-late") if (name, step) in self.late else None
        return None if known == reward else (409, "other-reward")

    @rule(replica=REPLICAS, name=st.sampled_from(NAMES), reward=REWARDS, allowed=ALLOWED)
    def next_step(self, replica, name, reward, allowed):
        step = len(self.answers[name])
        if step == 0:
            reward = None
        no = None if reward is None else self.refusal(name, step - 1, reward)
        answer = self.ask(replica, name, step, reward, **({} if allowed is None else {"allowed": allowed}))
        if no is None and step == serving.HORIZON:
            no = 422, "beyond-horizon"
        if no is not None:
            return serving.refused(answer, *no)
        if reward is not None:
            self.rewards[name][-1] = reward
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["arm"] == self.expected(name, allowed)
        assert (told["step"], told["propensity"], told["recorded"], told["fallback"]) == (step, 1.0, True, False)
        self.answers[name].append(told)
        self.rewards[name].append(None)

    def played(self) -> list[tuple[str, int]]:
        return [(name, step) for name, answers in self.answers.items() for step in range(len(answers))]

    @precondition(played)
    @rule(replica=REPLICAS, data=st.data())
    def the_same_question_again(self, replica, data):
        name, step = data.draw(st.sampled_from(self.played()))
        assert self.ask(replica, name, step).json() == self.answers[name][step]

    @precondition(played)
    @rule(replica=REPLICAS, reward=st.sampled_from([0.0, 1.0]), data=st.data())
    def a_reward_by_itself(self, replica, reward, data):
        name, step = data.draw(st.sampled_from(self.played()))
        answer = self.loop.run(self.replicas[replica][0].reward(name, step, reward))
        no = self.refusal(name, step, reward)
        if no is not None:
            return serving.refused(answer, *no)
        assert answer.status_code == 200, answer.text
        self.rewards[name][step] = reward

    @rule(replica=REPLICAS, name=st.sampled_from(NAMES))
    def a_step_too_far(self, replica, name):
        step = len(self.answers[name])
        no = (409, "out-of-order") if step else (404, "unknown-session")
        serving.refused(self.ask(replica, name, step + 1), *no)

    @rule()
    def the_window_passes(self):
        self.clock.now += self.WINDOW + 1
        self.late = set(self.played())

    @rule(replica=REPLICAS)
    def a_restart(self, replica):
        self.loop.run(self.replicas[replica][1].aclose())
        self.replicas[replica] = self.loop.run(self.open(None))

    def teardown(self):
        try:
            self.the_store_has_what_was_answered_and_told()
        finally:
            for _, stack in self.replicas:
                self.loop.run(stack.aclose())
            self.loop.close()
            self.folder.cleanup()

    def the_store_has_what_was_answered_and_told(self):
        for name in NAMES:
            found = self.loop.run(self.replicas[0][0].http.get(f"/v1/sessions/{name}"))
            if not self.answers[name]:
                serving.refused(found, 404, "unknown-session")
                continue
            rows = found.json()["steps"]
            assert [row["label"] for row in rows] == [answer["label"] for answer in self.answers[name]]
            assert [row["reward"] for row in rows] == self.rewards[name]


def test_sessions_of_two_replicas_are_those_of_the_policy_in_any_order_of_events(monkeypatch):
    planned = lmab.plan(serving.BANDIT, horizon=serving.HORIZON).policy
    monkeypatch.setattr(Served, "policy", planned, False)
    few = settings(max_examples=4, stateful_step_count=30, deadline=None, phases=[Phase.generate])
    run_state_machine_as_test(Served, settings=few)


@pytest.fixture(scope="module")
def nouns():
    """Return one value of every saved kind."""
    bandit = lmab.random_bandit(2, 4, rng=0)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=300, horizon=4, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2), rng=0, check=False)
    plan = lmab.plan(estimate, horizon=3)
    run = learning.Run(learning.UCB(), n_arms=4, horizon=3, n_sessions=10, rng=0)
    return {
        "LatentBandit": bandit,
        "Estimate": estimate,
        "Plan": plan,
        "Policy": plan.policy,
        "Assessment": lmab.assess(estimate, plan, log, n_draws=20, rng=0),
        "Design": lmab.moments.design(lmab.moments.subspace(log, rank=2)),
        "Run": run,
        "TypePrior": lmab.model.TypePrior.by_value("country", {"de": [0.8, 0.2], "fr": [0.3, 0.7]}, keep=0.5),
        "traits": lmab.fit(log, method=lmab.Traits(n_factors=1, n_points=9), rng=0, check=False),
    }


NOUNS = ["LatentBandit", "Estimate", "Plan", "Policy", "Assessment", "Design", "Run", "TypePrior", "traits"]


def test_every_kind_of_file_has_its_noun(nouns):
    assert {"bandit", "assessment", "design", "estimate", "plan", "run", "type_prior"} <= {
        noun.record().kind for noun in nouns.values()
    }
    assert list(nouns) == NOUNS


@pytest.mark.parametrize("name", NOUNS)
def test_what_is_saved_comes_back_and_is_saved_as_the_same_bytes(nouns, name, tmp_path):
    noun = nouns[name]
    noun.save(tmp_path / "first.lmab")
    again = lmab.load(tmp_path / "first.lmab")
    assert type(again) is type(noun)
    assert same_record(again.record(), noun.record())
    again.save(tmp_path / "second.lmab")
    assert (tmp_path / "first.lmab").read_bytes() == (tmp_path / "second.lmab").read_bytes()
