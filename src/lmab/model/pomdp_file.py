"""Latent bandits as files in Cassandra's POMDP format, for other solvers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .._shapes import Array, Float
from ..checks import check_count, check_writable
from ..errors import InvalidArgument
from .bandit import LatentBandit
from .categorical import Categorical


def export_pomdp(
    bandit: LatentBandit, horizon: int, path: str | os.PathLike[str], *, discount: float = 1 - 1e-9
) -> None:
    """Write a session of `horizon` steps as a .pomdp file (Cassandra's format), which other solvers read.

    States are (step, type), numbered step * M + type, and one last state in which nothing is earned: a session that
    ended. Actions are arms, observations are the indices of the reward values, and the reward of an action is its
    expected value, so that the value of the file's problem is that of the bandit. If sessions may end early, the state
    after a step is the last one with the probability of leaving, and observations are given that the session goes on.

    Args:
        bandit: latent bandit whose rewards take finitely many values.
        horizon: H, the steps of a session.
        path: the file to write.
        discount: most solvers need a discount below 1; the default changes values by a factor of at most 1 - H / 10^9.

    Examples:
        >>> import lmab, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bandit.pomdp"
        >>> lmab.export_pomdp(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.3]]), 2, path)
        >>> path.read_text().splitlines()[2:6]
        ['discount: 0.999999999', 'values: reward', 'states: 5', 'actions: 2']
    """
    check_count("horizon", horizon)
    if not 0 < discount <= 1:
        raise InvalidArgument(f"discount must be in (0, 1], got {discount!r}")
    rewards = bandit.rewards
    if not isinstance(rewards, Categorical):
        raise InvalidArgument(
            f"bandit must have rewards on finitely many values, got {type(rewards).__name__} rewards: cut them with "
            "lmab.model.Bins"
        )
    check_writable(path)
    text = "\n".join(_lines(bandit, rewards, horizon, discount)) + "\n"
    Path(path).write_text(text, "utf-8")


def _lines(bandit: LatentBandit, rewards: Categorical, horizon: int, discount: float) -> Iterator[str]:
    n_types, n_arms, end = bandit.n_types, bandit.n_arms, horizon * bandit.n_types
    stays = bandit.channel()
    goes_on = np.minimum(stays.sum(axis=2), 1.0)  # (M, A); solvers refuse probabilities that rounding puts above 1
    shown = np.divide(
        stays, goes_on[..., None], out=np.full_like(stays, 1 / stays.shape[2]), where=goes_on[..., None] > 0
    )
    yield f"# A latent bandit over {horizon} steps: state = step * {n_types} + type, and {end} is the end of a session."
    yield f"# Observation z is the reward value number z of {', '.join(f'{value:g}' for value in rewards.values)}."
    yield f"discount: {float(discount)!r}"
    yield "values: reward"
    yield f"states: {end + 1}"
    yield f"actions: {n_arms}"
    yield f"observations: {stays.shape[2]}"
    yield "start: " + _row(np.concatenate([bandit.weights, np.zeros(end + 1 - n_types)]))
    yield f"T: * : {end} : {end} 1"
    yield f"O: * : {end}"
    yield _row(np.eye(1, stays.shape[2])[0])  # the end always shows the first observation
    for step in range(horizon):
        for type_ in range(n_types):
            state = step * n_types + type_
            for arm in range(n_arms):
                chance = goes_on[type_, arm] if step + 1 < horizon else 0.0
                if chance > 0:
                    yield f"T: {arm} : {state} : {state + n_types} {chance:.17g}"
                if chance < 1:
                    yield f"T: {arm} : {state} : {end} {1 - chance:.17g}"
                yield f"R: {arm} : {state} : * : * {bandit.means[type_, arm]:.17g}"
                yield f"O: {arm} : {state}"  # of arriving there by this arm; nothing arrives at the first step
                yield _row(shown[type_, arm])


def _row(numbers: Float[Array, "n"]) -> str:
    return " ".join(f"{number:.17g}" for number in numbers)
