"""The laws of states and of single decisions: probabilities, late rewards, histories, JSON, compact forms."""

from __future__ import annotations

import json

import numpy as np

from .report import Law, expect, refusal
from .sessions import Sessions, decide, decide_all


def _chances(case: Sessions) -> str | None:
    n_arms, rng = case.bandit.n_arms, np.random.default_rng(6)
    unknown = refusal(lambda: case.policy.distribution(case.policy.start(), n_arms=n_arms))
    if unknown is not None:
        return unknown
    for step, state in enumerate(case.states()):
        rows = rng.random((case.n, n_arms)) < 0.5
        rows[np.arange(case.n), rng.integers(n_arms, size=case.n)] = True
        unknown = refusal(lambda state=state, rows=rows: case.policy.probabilities(state, allowed=rows))  # type: ignore[misc]
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


def _late(case: Sessions) -> None:
    if not case.policy.order_free:
        return  # it says that the order matters, so a late reward may be refused
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


def _unknown_rewards(case: Sessions) -> None:
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
        if not refusal(lambda: case.policy.belief(again)):
            same = np.allclose(case.policy.belief(state), case.policy.belief(again), atol=1e-12)
            expect(same, f"the belief changed at step {step}, though no reward was known")


def _returning(case: Sessions) -> None:
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


def _as_json(case: Sessions) -> None:
    for step, state in enumerate(case.states()):
        text = case.policy.to_json(state)
        json.loads(text, parse_constant=lambda name: expect(False, f"{name} is not JSON"))
        again = case.policy.from_json(text)
        same = np.array_equal(again.memory, state.memory, equal_nan=True)
        alike = same and (again.step, again.single) == (state.step, state.single)
        expect(alike, f"the state at step {step} is another after to_json and from_json")


def _compact(case: Sessions) -> None:
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


STATE_LAWS: dict[str, Law[Sessions]] = {
    "probabilities respect masks": _chances,
    "a step without a reward counts and tells nothing": _unknown_rewards,
    "a late reward tells the same": _late,
    "a history informs the first step": _returning,
    "a state survives JSON": _as_json,
    "the compact form decides the same": _compact,
}
