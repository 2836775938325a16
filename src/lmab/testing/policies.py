"""check_policy: the laws that every policy keeps, the package's and yours."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..files import Record
from ..loading import load
from ..model.bandit import LatentBandit
from ..policies.policy import Policy, State
from .report import Law, Report, expect, expect_refusal, keep, refusal_message

N_SESSIONS = 12
_MAX_STEPS = 6  # Steps of the sessions; the law of the horizon goes to the end.
_SEED = 20221012


@dataclass(frozen=True, eq=False)
class Trials:
    """Trials of one type each, with random arms; a policy watches them and may be asked after every step."""

    policy: Policy
    bandit: LatentBandit
    n: int = N_SESSIONS

    @property
    def n_steps(self) -> int:
        """Return how many steps are decided; the last one is not observed."""
        return min(self.policy.horizon or _MAX_STEPS, _MAX_STEPS)

    @cached_property
    def played(self) -> tuple[Integer[Array, "T n"], Float[Array, "T n"]]:
        """Return arms and rewards of every step."""
        rng = np.random.default_rng(_SEED)
        types = rng.choice(self.bandit.n_types, size=self.n, p=self.bandit.weights / self.bandit.weights.sum())
        arms = rng.integers(self.bandit.n_arms, size=(self.n_steps, self.n))
        rewards = [self.bandit.rewards.sample(types, row, rng=rng) for row in arms]
        return arms, np.stack(rewards)

    def history(self, session: int, steps: int) -> list[tuple[int, float]]:
        """Return the first steps of one session."""
        arms, rewards = self.played
        return list(zip(arms[:steps, session].tolist(), rewards[:steps, session].tolist(), strict=True))

    def states(self, policy: Policy | None = None) -> list[State]:
        """Return the state of all sessions before every step."""
        policy = policy or self.policy
        arms, rewards = self.played
        found = [policy.start(self.n)]
        for step in range(self.n_steps - 1):
            found.append(policy.observe(found[-1], arms[step], rewards[step]))
        return found

    def states_of(self, session: int) -> list[State]:
        """Return the state of one session alone before every step."""
        found = [self.policy.start()]
        for arm, reward in self.history(session, self.n_steps - 1):
            found.append(self.policy.observe(found[-1], arm, reward))
        return found


def decide(policy: Policy, state: State, *, allowed: Any = None, seed: int = 0) -> Any:
    """Return the arms that the policy plays; a deterministic policy gets no generator."""
    return policy.act(state, allowed=allowed, rng=None if policy.deterministic else np.random.default_rng(seed))


def decide_all(policy: Policy, state: State, *, allowed: Any = None, seed: int = 0) -> Integer[Array, "n"]:
    """Return the arms of n sessions."""
    return np.asarray(decide(policy, state, allowed=allowed, seed=seed))


def _chances(case: Trials) -> str | None:
    n_arms, rng = case.bandit.n_arms, np.random.default_rng(6)
    unknown = refusal_message(lambda: case.policy.distribution(case.policy.start(), n_arms=n_arms))
    if unknown is not None:
        return unknown
    for step, state in enumerate(case.states()):
        rows = rng.random((case.n, n_arms)) < 0.5
        rows[np.arange(case.n), rng.integers(n_arms, size=case.n)] = True
        unknown = refusal_message(lambda state=state, rows=rows: case.policy.probabilities(state, allowed=rows))  # type: ignore[misc]
        if unknown is not None:
            return unknown
        found = case.policy.probabilities(state, allowed=rows)
        fine = found.shape == rows.shape and np.allclose(found.sum(axis=1), 1, atol=1e-9) and (found >= 0).all()
        expect(fine, f"at step {step} probabilities must be {rows.shape}, >= 0, with sum 1, got {found.tolist()}")
        expect(not found[~rows].any(), f"at step {step} an arm that is not allowed has a probability above 0")
        free = case.policy.probabilities(state, allowed=np.ones(n_arms, bool))
        same = np.allclose(free, case.policy.distribution(state, n_arms=n_arms), atol=1e-12)
        expect(same, f"at step {step} probabilities with every arm allowed are not those of distribution")
    alone = case.policy.probabilities(case.policy.start(), allowed=np.ones(n_arms, bool))
    expect(alone.shape == (n_arms,), f"probabilities of one session must be {(n_arms,)}, got {alone.shape}")
    return None


def _late(case: Trials) -> None:
    if not case.policy.order_free:
        return  # the order matters, so a late reward may be refused
    arms, rewards = case.played
    for step in range(1, case.n_steps):
        state = in_time = case.policy.start(case.n)
        for past in range(step):
            before = state.memory.copy()
            state = case.policy.observe(state, arms[past], None)
            in_time = case.policy.observe(in_time, arms[past], rewards[past])
            fine = state.step == past + 1
            expect(fine, f"a step without a reward must count: the state after step {past} is at step {state.step}")
        expect(before.shape == state.memory.shape, f"a step without a reward gave a memory of {state.memory.shape}")
        for past in reversed(range(step)):
            state = case.policy.tell(state, arms[past], rewards[past])
        expect(state.step == step, f"tell must count no step, got step {state.step} instead of {step}")
        late, timely = decide_all(case.policy, state), decide_all(case.policy, in_time)
        off = np.flatnonzero(late != timely)
        if len(off):
            history = case.history(off[0], step)
            expect(False, f"after {history} told late it plays arm {late[off[0]]}, told in time {timely[off[0]]}")


def _unknown_rewards(case: Trials) -> None:
    if not case.policy.order_free:
        return  # it may need every reward
    arms, _ = case.played
    state = case.policy.start(case.n)
    for step in range(case.n_steps):  # arms that were added after the fit
        decide_all(case.policy, state)
        state = case.policy.skip(state)
        expect(state.step == step + 1, f"a step with an unknown arm must count, got step {state.step}")
    state, (n_arms, again) = case.policy.start(case.n), (case.bandit.n_arms, case.policy.start(case.n))
    for step in range(case.n_steps):
        chosen = decide_all(case.policy, state)
        expect(bool((chosen < n_arms).all()), f"at step {step}, without rewards, it plays {chosen.tolist()}")
        kept = state.memory.copy()
        state, before = case.policy.observe(state, arms[step], None), state
        expect(np.array_equal(kept, before.memory, equal_nan=True), f"observe at step {step} changed the state")
        if not refusal_message(lambda: case.policy.belief(again)):
            same = np.allclose(case.policy.belief(state), case.policy.belief(again), atol=1e-12)
            expect(same, f"the belief changed at step {step}, though no reward was known")


def _returning(case: Trials) -> None:
    if not case.policy.order_free:
        return  # it may refuse a history
    for session in range(3):
        history = case.history(session, case.n_steps - 1)
        state, told = case.policy.start(history=[*history, (0, None)]), case.policy.start()
        for arm, reward in history:
            told = case.policy.tell(told, arm, reward)
        expect(state.step == 0, f"start(history={history}) must be at step 0, got {state.step}")
        mine, theirs = decide(case.policy, state), decide(case.policy, told)
        expect(mine == theirs, f"start(history={history}) plays arm {mine}, telling the same plays arm {theirs}")


def _as_json(case: Trials) -> None:
    for step, state in enumerate(case.states()):
        text = case.policy.to_json(state)
        json.loads(text, parse_constant=lambda name: expect(False, f"{name} is not JSON"))
        again = case.policy.from_json(text)
        same = np.array_equal(again.memory, state.memory, equal_nan=True)
        alike = same and (again.step, again.single) == (state.step, state.single)
        expect(alike, f"the state at step {step} is another after to_json and from_json")


def _compact(case: Trials) -> None:
    if not case.policy.deterministic:
        return  # it has no compact form
    compact, n_arms = case.policy.compact(), case.bandit.n_arms
    mask = np.arange(n_arms) % 2 == 0
    for session in range(4):
        states, mine = case.states_of(session), compact.start()
        for step, (state, played) in enumerate(
            zip(states, [*case.history(session, len(states) - 1), None], strict=True)
        ):
            for allowed in (None, mask):
                one, whole = compact.act(mine, allowed), decide(case.policy, state, allowed=allowed)
                seen = f"after {case.history(session, step)} compact() plays arm {one}, the policy arm {whole}"
                expect(one == whole, seen)
            if played is not None:
                mine = compact.observe(mine, *played)


STATE_LAWS: dict[str, Law[Trials]] = {
    "probabilities respect masks": _chances,
    "a step without a reward counts and tells nothing": _unknown_rewards,
    "a late reward tells the same": _late,
    "a history informs the first step": _returning,
    "a state survives JSON": _as_json,
    "the compact form decides the same": _compact,
}


_LONG = 200  # characters that a repr may have
_MANY = 4000  # sessions for counting arms


def check_policy(policy: Policy, bandit: LatentBandit) -> Report:
    """Check that `policy` keeps the laws of policies on sessions of `bandit`.

    These are the laws. One session and n sessions agree. `act_on` gives the same arm as playing step by step. A
    deterministic policy repeats its decisions; a random policy asks for `rng` and plays arms as often as its
    `distribution` predicts. Masks are respected. `observe` changes no state. `order_free`, `adaptive`, `repeats`,
    `n_arms` and `horizon` are true. Wrong arguments are refused by name. A saved policy makes the same decisions. The
    repr is short. `probabilities` respects masks. A step without a reward counts and carries no information; if a
    reward is late, it has the effect of one in time. A history informs the first step, a state survives JSON, and the
    compact form of a deterministic policy decides the same.

    Args:
        policy: the policy to check.
        bandit: the bandit that is played; it must have the policy's arms.

    Returns:
        A report of the laws that were kept. A broken one raises `BrokenLaw`, an `AssertionError`.

    Examples:
        >>> import lmab
        >>> from lmab.testing import check_policy
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> check_policy(lmab.Greedy(bandit), bandit)
        Report(Greedy keeps 26 laws)
    """
    return keep(type(policy).__name__, LAWS, Trials(policy, bandit))


def _arms_are_numbers(case: Trials) -> None:
    for step, state in enumerate(case.states()):
        arms = decide(case.policy, state)
        fine = isinstance(arms, np.ndarray) and arms.shape == (case.n,) and np.issubdtype(arms.dtype, np.integer)
        expect(fine, f"act on {case.n} sessions must return an array of {case.n} integers, got {arms!r} at step {step}")
        n_arms = case.bandit.n_arms
        low, high = int(arms.min()), int(arms.max())
        expect(low >= 0 and high < n_arms, f"arms must be in 0..{n_arms - 1}, got {low} to {high} at step {step}")
    arm = decide(case.policy, case.policy.start())
    expect(type(arm) is int, f"act on one session must return an int, got {arm!r}, a {type(arm).__name__}")


def _one_and_many(case: Trials) -> None:
    together = case.states()
    for session in range(4):
        for step, alone in enumerate(case.states_of(session)):
            after = f"after {case.history(session, step)}"
            expect(alone.step == together[step].step == step, f"{after} the state must be at step {step}")
            if case.policy.deterministic:
                mine, theirs = decide(case.policy, alone), int(decide_all(case.policy, together[step])[session])
                expect(mine == theirs, f"{after} one session plays arm {mine}, the same among {case.n} arm {theirs}")
            else:
                same = np.allclose(alone.memory[0], together[step].memory[session], rtol=1e-9, atol=0, equal_nan=True)
                expect(same, f"{after} one session remembers something else than the same session among {case.n}")


def _act_on_is_stepping(case: Trials) -> None:
    rng = [None if case.policy.deterministic else np.random.default_rng(5) for _ in range(2)]
    for session in range(4):
        for step, state in enumerate(case.states_of(session)):
            history = case.history(session, step)
            mine, theirs = case.policy.act_on(history, rng=rng[0]), case.policy.act(state, rng=rng[1])
            expect(mine == theirs, f"act_on({history}) is arm {mine}, stepping there plays arm {theirs}")


def _repeats_itself(case: Trials) -> None:
    for step, state in enumerate(case.states()):
        first = decide_all(case.policy, state)
        for _ in range(3):
            again = decide_all(case.policy, state)
            how = "without a generator" if case.policy.deterministic else "with the same seed"
            seen = f"at step {step}, asked twice {how}, it plays {first.tolist()} and {again.tolist()}"
            expect(np.array_equal(first, again), seen)


def _asks_for_rng(case: Trials) -> None:
    if case.policy.deterministic:
        return  # the policy is deterministic
    expect_refusal(lambda: case.policy.act(case.policy.start()), "acting without rng", "rng")


def _probabilities(case: Trials) -> str | None:
    n_arms = case.bandit.n_arms
    if not case.policy.deterministic:
        unknown = refusal_message(lambda: case.policy.distribution(case.policy.start(), n_arms=n_arms))
        if unknown is not None:
            return unknown
    for step, state in enumerate(case.states()):
        found = case.policy.distribution(state, n_arms=n_arms)
        expect(found.shape == (case.n, n_arms), f"distribution must be {(case.n, n_arms)}, got {found.shape}")
        total = found.sum(axis=1)
        fine = (found >= 0).all() and np.allclose(total, 1, atol=1e-9)
        expect(fine, f"at step {step} rows must be >= 0 and sum to 1, got sums {total.tolist()}, least {found.min()}")
    return None


def _plays_as_often(case: Trials) -> str | None:
    n_arms = case.bandit.n_arms
    if not case.policy.deterministic:
        unknown = refusal_message(lambda: case.policy.distribution(case.policy.start(), n_arms=n_arms))
        if unknown is not None:
            return unknown
    for session in range(3):
        state = case.policy.start(_MANY)
        history = case.history(session, min(session, case.n_steps - 1))
        for arm, reward in history:
            state = case.policy.observe(state, np.full(_MANY, arm), np.full(_MANY, reward))
        told = case.policy.distribution(state, n_arms=n_arms)[0]
        shares = np.bincount(decide_all(case.policy, state), minlength=n_arms) / _MANY
        off = np.abs(shares - told) > 5 * np.sqrt(told * (1 - told) / _MANY) + 1e-9
        seen = f"after {history} distribution says {told.tolist()}, {_MANY} sessions play {shares.tolist()}"
        expect(not off.any(), seen)
    return None


def _masks(case: Trials) -> None:
    rng, n_arms = np.random.default_rng(3), case.bandit.n_arms
    for step, state in enumerate(case.states()):
        rows = rng.random((case.n, n_arms)) < 0.4
        rows[np.arange(case.n), rng.integers(n_arms, size=case.n)] = True
        for mask in (rows, rows[0], rows[0].tolist()):
            arms = decide_all(case.policy, state, allowed=mask)
            fine = np.broadcast_to(np.asarray(mask), rows.shape)[np.arange(case.n), arms]
            seen = f"at step {step} allowed={np.asarray(mask).astype(int).tolist()} (1: may be played) plays"
            expect(fine.all(), f"{seen} {arms.tolist()}")
    for arm in range(n_arms):
        only = np.arange(n_arms) == arm
        chosen = decide(case.policy, case.policy.start(), allowed=only)
        expect(chosen == arm, f"with only arm {arm} allowed it plays arm {chosen}")


def _all_allowed(case: Trials) -> None:
    if not case.policy.deterministic:
        return  # it plays at random
    for step, state in enumerate(case.states()):
        free, masked = (decide_all(case.policy, state, allowed=a) for a in (None, np.ones(case.bandit.n_arms, bool)))
        seen = f"at step {step} it plays {free.tolist()}, and {masked.tolist()} with every arm allowed"
        expect(np.array_equal(free, masked), seen)


def _bad_masks(case: Trials) -> None:
    n_arms = case.bandit.n_arms
    one_row = np.ones((case.n, n_arms), bool)
    one_row[2] = False
    for what, state, mask in (
        ("a mask without an arm", case.policy.start(), np.zeros(n_arms, bool)),
        ("a mask with a row without an arm", case.policy.start(case.n), one_row),
        ("a mask with too many rows", case.policy.start(2), np.ones((3, n_arms), bool)),
    ):
        expect_refusal(lambda state=state, mask=mask: decide(case.policy, state, allowed=mask), what, "allowed")  # type: ignore[misc]


def _observing(case: Trials) -> None:
    arms, rewards = case.played
    for step, state in enumerate(case.states()):
        memory, single = state.memory.copy(), state.single
        first = case.policy.observe(state, arms[step], rewards[step])
        kept = first.memory.copy()
        other = np.roll(arms[step], 1), np.roll(rewards[step], 1)
        case.policy.observe(state, *other)
        again = case.policy.observe(state, arms[step], rewards[step])
        same = np.array_equal(state.memory, memory, equal_nan=True) and (state.step, state.single) == (step, single)
        expect(same, f"observe at step {step} changed the state it was given")
        alike = np.array_equal(first.memory, kept, equal_nan=True) and np.array_equal(first.memory, again.memory, True)
        expect(alike, f"observing the same at step {step} twice, with another session between, gave other states")
        fine = (first.step, first.single) == (step + 1, single)
        expect(fine, f"the state after step {step} must be at step {step + 1}, got {first.step}")


def _order_free(case: Trials) -> None:
    if not case.policy.order_free:
        return  # the order matters
    rng = np.random.default_rng(4)
    arms, rewards = case.played
    for step in range(2, case.n_steps):
        for _ in range(3):
            order = rng.permutation(step)
            states = [case.policy.start(case.n)] * 2
            for pair in zip(range(step), order, strict=True):
                states = [case.policy.observe(s, arms[t], rewards[t]) for s, t in zip(states, pair, strict=True)]
            chosen = [decide_all(case.policy, state) for state in states]
            off = np.flatnonzero(chosen[0] != chosen[1])
            if len(off):
                history = case.history(off[0], step)
                shuffled = [history[t] for t in order]
                plays = [int(arms[off[0]]) for arms in chosen]
                expect(False, f"it plays arm {plays[0]} after {history} and arm {plays[1]} after {shuffled}")


def _adaptive(case: Trials) -> None:
    if case.policy.adaptive:
        return  # the policy depends on rewards
    arms, rewards = case.played
    states = [case.policy.start(case.n)] * 2
    for step in range(case.n_steps - 1):
        others = np.roll(rewards[step], 1)
        states = [case.policy.observe(s, arms[step], r) for s, r in zip(states, (rewards[step], others), strict=True)]
        mine, theirs = (decide_all(case.policy, state) for state in states)
        seen = f"the same arms with other rewards lead to {mine.tolist()} and {theirs.tolist()} at step {step + 1}"
        expect(np.array_equal(mine, theirs), seen)


def _size(case: Trials) -> None:
    n_arms = case.policy.n_arms
    if n_arms is not None:
        expect(n_arms == case.bandit.n_arms, f"n_arms is {n_arms}, the bandit has {case.bandit.n_arms} arms")
        start, reward = case.policy.start(), float(case.played[1][0, 0])
        expect_refusal(lambda: case.policy.observe(start, n_arms, reward), f"observing arm {n_arms} of {n_arms}", "arm")
    labels = case.policy.arm_labels
    fine = labels is None or len(labels) == case.bandit.n_arms
    expect(fine, f"arm_labels must be None or {case.bandit.n_arms} labels, got {labels!r}")


def _repeats(case: Trials) -> None:
    if case.policy.repeats:
        return  # the policy may play an arm twice
    _, rewards = case.played
    steps = min(case.n_steps, case.bandit.n_arms)
    state, mine = case.policy.start(case.n), np.empty((case.n, 0), np.int64)
    for step in range(steps):
        chosen = decide_all(case.policy, state)
        again = np.flatnonzero((mine == chosen[:, None]).any(axis=1))
        mine = np.column_stack([mine, chosen])
        expect(not len(again), f"repeats is False, but a session plays the arms {mine[again[:1]].ravel().tolist()}")
        state = case.policy.observe(state, chosen, rewards[step])


def _horizon(case: Trials) -> None:
    horizon = case.policy.horizon
    state = case.policy.start()
    arm, reward = case.history(0, 1)[0]
    for step in range(horizon or 3 * case.n_steps):
        try:
            decide(case.policy, state)
        except ValueError as error:
            expect(False, f"horizon is {horizon}, but at step {step} it refuses to act: {error}")
        state = case.policy.observe(state, arm, reward)
    if horizon is not None:
        expect_refusal(lambda: decide(case.policy, state), f"acting at step {horizon}, past the horizon", "horizon")


def _bad_observations(case: Trials) -> None:
    policy, reward = case.policy, float(case.played[1][0, 0])
    one, two = policy.start(), policy.start(2)
    expect_refusal(lambda: policy.observe(one, -1, reward), "observing arm -1", "arm")
    expect_refusal(lambda: policy.observe(one, 0.5, reward), "observing arm 0.5", "arm")
    expect_refusal(lambda: policy.observe(two, np.array([0]), np.array([reward])), "one arm for two sessions", "arm")
    expect_refusal(lambda: policy.observe(two, np.array([0, 0]), reward), "one reward for two sessions", "reward")
    expect_refusal(lambda: policy.start(0), "starting 0 sessions", "n must be", "sessions")


def _saved(case: Trials) -> None:
    policy = case.policy
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.lmab"
        policy.save(path)
        again = load(path)
    expect(type(again) is type(policy), f"the file gives a {type(again).__name__}")
    for name in ("horizon", "n_arms", "arm_labels", "deterministic", "adaptive", "order_free"):
        mine, theirs = getattr(policy, name), getattr(again, name)
        expect(mine == theirs, f"{name} is {mine!r} before and {theirs!r} after")
    for step, states in enumerate(zip(case.states(), case.states(again), strict=True)):
        mine, theirs = (decide_all(p, s, seed=7) for p, s in zip((policy, again), states, strict=True))
        off = np.flatnonzero(mine != theirs)
        if len(off):
            history = case.history(off[0], step)
            expect(False, f"after {history} it plays arm {mine[off[0]]}, the loaded one arm {theirs[off[0]]}")


def _never_changes(case: Trials) -> None:
    before = case.policy.record()
    for state in case.states():
        decide(case.policy, state)
    expect(same_record(before, case.policy.record()), "record() was another before some sessions were played")


def _short(case: Trials) -> None:
    text = repr(case.policy)
    short = len(text) <= _LONG and "\n" not in text
    expect(short, f"repr must be one line of at most {_LONG} characters, got {text!r}")


def same_record(first: Record, second: Record) -> bool:
    """Return whether both have the same bits."""
    return (
        (first.kind, first.fields) == (second.kind, second.fields)
        and (first.arrays.keys(), first.records.keys()) == (second.arrays.keys(), second.records.keys())
        and all(_same_array(first.arrays[name], second.arrays[name]) for name in first.arrays)
        and all(same_record(first.records[name], second.records[name]) for name in first.records)
    )


def _same_array(first: Any, second: Any) -> bool:
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


LAWS: dict[str, Law[Trials]] = {
    "n_arms says the truth": _size,
    "an arm is a number": _arms_are_numbers,
    "observing changes no state": _observing,
    "the same state gives the same arm": _repeats_itself,
    "one session and n sessions agree": _one_and_many,
    "act_on is stepping through the history": _act_on_is_stepping,
    "a policy that plays at random asks for rng": _asks_for_rng,
    "probabilities sum to 1": _probabilities,
    "arms are played as often as distribution says": _plays_as_often,
    "only allowed arms are played": _masks,
    "allowing every arm changes nothing": _all_allowed,
    "a mask that leaves nothing to play is refused": _bad_masks,
    "order_free says the truth": _order_free,
    "adaptive says the truth": _adaptive,
    "repeats says the truth": _repeats,
    "horizon says the truth": _horizon,
    "bad arms and rewards are refused": _bad_observations,
    "a saved policy makes the same decisions": _saved,
    "a policy never changes": _never_changes,
    "the repr is short": _short,
    **STATE_LAWS,
}
