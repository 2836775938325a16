from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import lmab

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra gym)")

from gymnasium.utils.env_checker import check_env  # noqa: E402

import lmab.gym  # noqa: E402
from lmab.errors import InvalidArgument  # noqa: E402

NAME = "lmab/LatentBandit-v0"
BANDIT = lmab.LatentBandit.categorical(
    [0.3, 0.7], [[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], [[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]]], [-1.0, 0.0, 2.0]
)


@pytest.mark.parametrize("observation", ["last", "belief"])
@pytest.mark.parametrize("bandit", [None, BANDIT], ids=["default", "categorical"])
def test_gymnasiums_own_checker_passes(bandit, observation):
    check_env(gymnasium.make(NAME, bandit=bandit, observation=observation, render_mode="ansi").unwrapped)
    check_env(gymnasium.make(NAME, bandit=bandit, observation=observation).unwrapped)


# gymnasium warns of unbounded observations, and normal rewards are unbounded.
@pytest.mark.filterwarnings("ignore:.*Box observation space (minimum|maximum) value is:UserWarning")
def test_the_checker_passes_with_normal_rewards():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
    check_env(gymnasium.make(NAME, bandit=bandit).unwrapped, skip_render_check=True)


def play(environment, policy, seed):
    """One session by a policy of the library."""
    environment.reset(seed=seed)
    state, total, over = policy.start(), 0.0, False
    while not over:
        arm = policy.act(state)
        _, reward, over, truncated, _ = environment.step(arm)
        state, total = policy.observe(state, arm, reward), total + reward
        assert not truncated
    return total


def test_sessions_pay_what_evaluate_says(seed):
    policy = lmab.Greedy(BANDIT)
    environment = gymnasium.make(NAME, bandit=BANDIT, horizon=4).unwrapped
    totals = np.array([play(environment, policy, 3000 * seed + number) for number in range(3000)])
    exact = lmab.evaluate(policy, BANDIT, horizon=4).mean
    assert abs(totals.mean() - exact) < 4 * totals.std() / np.sqrt(len(totals))


def test_a_session_ends_after_horizon_steps_and_replays_from_its_seed():
    environment = gymnasium.make(NAME, bandit=BANDIT, horizon=3).unwrapped
    runs = []
    for _ in range(2):
        environment.reset(seed=7)
        runs.append([environment.step(1)[:3] for _ in range(3)])
    assert [over for _, _, over in runs[0]] == [False, False, True]
    assert [reward for _, reward, _ in runs[0]] == [reward for _, reward, _ in runs[1]]


def test_observations_show_the_last_step_or_the_belief():
    last = gymnasium.make(NAME, bandit=BANDIT, horizon=4).unwrapped
    last.reset(seed=0)
    seen, reward, *_ = last.step(1)
    assert seen.tolist() == [0.0, 1.0, reward, 0.25]

    belief = gymnasium.make(NAME, bandit=BANDIT, horizon=4, observation="belief").unwrapped
    assert belief.reset(seed=0)[0] == pytest.approx([0.3, 0.7, 0.0])
    seen, reward, *_ = belief.step(0)
    joint = BANDIT.weights * BANDIT.rewards.probabilities[:, 0, [-1.0, 0.0, 2.0].index(reward)]
    assert seen[:2] == pytest.approx(joint / joint.sum(), abs=1e-6)


def test_the_type_can_be_fixed_and_is_told_aside():
    environment = gymnasium.make(NAME, bandit=BANDIT).unwrapped
    for type_ in (0, 1):
        _, info = environment.reset(options={"type": type_})
        assert info["type"] == type_
        *_, info = environment.step(0)
        assert info == {"type": type_, "expected": BANDIT.means[type_, 0], "best": BANDIT.means[type_].max()}


def test_a_saved_bandit_is_loaded(tmp_path):
    BANDIT.save(tmp_path / "model.lmab")
    assert gymnasium.make(NAME, bandit=str(tmp_path / "model.lmab")).unwrapped.bandit == BANDIT
    lmab.Greedy(BANDIT).save(tmp_path / "policy.lmab")
    with pytest.raises(InvalidArgument, match="bandit must be a LatentBandit or a file of one, got a Greedy"):
        gymnasium.make(NAME, bandit=str(tmp_path / "policy.lmab"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"horizon": 0}, "horizon must be"), ({"observation": "all"}, "observation must be 'last' or 'belief'")],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        gymnasium.make(NAME, bandit=BANDIT, **arguments)


def test_bad_arms_and_types_are_named():
    environment = gymnasium.make(NAME, bandit=BANDIT).unwrapped
    with pytest.raises(InvalidArgument, match=r"type must be in 0\.\.1, got 2"):
        environment.reset(options={"type": 2})
    environment.reset(seed=0)
    with pytest.raises(InvalidArgument, match=r"action must be an arm in 0\.\.1, got 5"):
        environment.step(5)


def test_the_session_is_rendered_as_text():
    environment = gymnasium.make(NAME, bandit=BANDIT, render_mode="ansi").unwrapped
    environment.reset(seed=0)
    assert environment.render() == "a session that has not begun"
    environment.step(1)
    assert environment.render().startswith("arm 1 paid ")


@pytest.mark.parametrize("imports", ["import lmab.gym", "import gymnasium; import lmab"])
def test_importing_registers_the_environment(imports):
    program = f"{imports}\nimport gymnasium\nprint(gymnasium.make('{NAME}').unwrapped.horizon)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7"


def test_the_observation_before_any_reward_is_in_the_space_where_all_rewards_are_above_or_below_zero():
    for values in ([1.0, 2.0], [-2.0, -1.0]):
        bandit = lmab.LatentBandit.categorical([1.0], [[[0.5, 0.5], [0.2, 0.8]]], values)
        environment = gymnasium.make(NAME, bandit=bandit, horizon=3).unwrapped
        seen, _ = environment.reset(seed=0)
        assert environment.observation_space.contains(seen)
        seen, *_ = environment.step(1)
        assert environment.observation_space.contains(seen)


def test_a_session_is_terminated_when_the_person_leaves_and_truncated_at_the_horizon():
    leaving = np.zeros((2, 2, 3))
    leaving[:, 1] = 1.0  # whoever is shown arm 1 goes
    environment = gymnasium.make(NAME, bandit=replace(BANDIT, leaving=leaving), horizon=2).unwrapped
    environment.reset(seed=0)
    assert environment.step(1)[2:4] == (True, False)
    environment.reset(seed=0)
    assert environment.step(0)[2:4] == (False, False)
    assert environment.step(0)[2:4] == (False, True)
    environment.reset(seed=0)
    environment.step(0)
    assert environment.step(1)[2:4] == (True, False)
