"""`lmab serve --demo`: service, refits and canaries against a simulated population, from no model to a good policy.

It runs the defaults of `lmab serve` and `lmab refit`. Only the clock is simulated: a night takes as long as its
sessions take to play, and counts as a day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..evaluation.value import value_of
from ..model.bandit import LatentBandit
from ..model.instances import random_bandit
from ..planning.plan import plan
from ..serve.messages import Question, Reward
from ..serve.refit import RefitOptions, RefitResult, in_force, refit
from ..serve.run import Options, make_service, server
from ..serve.service import Service
from ..serve.stores import open_store

HORIZON = 6
_DAY = 86_400.0


@dataclass(frozen=True)
class Population:
    """Simulated persons; each of `n_nights` has `per_night` sessions and then a refit."""

    bandit: LatentBandit
    per_night: int = 1500
    n_nights: int = 10
    at_once: int = 64
    seed: int = 0


def population(seed: int = 0) -> Population:
    """Return a population of three types for twelve arms."""
    return Population(random_bandit(3, 12, rng=seed), seed=seed)


def play_demo(
    options: Options, say: Callable[[str], None], people: Population | None = None, stay: bool = True
) -> None:
    """Serve, play and refit; then keep serving until Ctrl-C if `stay`."""
    asyncio.run(_demo(options, say, people or population(), stay))


async def _demo(options: Options, say: Callable[[str], None], people: Population, stay: bool) -> None:
    labels = tuple(f"arm-{i}" for i in range(people.bandit.n_arms))
    settings = replace(options.settings, defaults=replace(options.settings.defaults, horizon=HORIZON))
    options = replace(options, arms=labels, settings=settings, policy=None, secret=b"demo")
    n_played = 0  # nights; each makes the clock of the service jump by a day

    def clock() -> float:
        return time.time() + _DAY * (n_played - people.n_nights)

    service = make_service(options, clock)
    running = server(options, service, say)
    task = asyncio.create_task(running.serve())
    while not running.started and not task.done():
        await asyncio.sleep(0.05)
    optimum = plan(people.bandit, horizon=HORIZON).lower
    folder = Path(f"{options.store}.policies")
    try:
        for night in range(people.n_nights):
            if task.done():
                break
            await play_sessions(service, people, night)
            n_played += 1
            night_work = _refit(options.store, folder, people.seed + night, clock())
            found = await asyncio.to_thread(asyncio.run, night_work)  # in a loop of its own: the service goes on
            await service.register.refresh()
            share = await value_in_force(service, people.bandit) / optimum
            say(f"Night {night + 1}: the policy in force earns {share:.1%} of the optimum.")
            for line in found.lines:
                say(f"  {line}")
        if stay:
            say("The page stays open; Ctrl-C stops.")
            await task
    finally:
        running.should_exit = True
        await asyncio.wait([task])


async def _refit(where: str, folder: Path, seed: int, now: float) -> RefitResult:
    store = open_store(where)
    await store.open()
    try:
        return await refit(store, folder, RefitOptions(), rng=seed, now=now)
    finally:
        await store.close()


async def play_sessions(service: Service, people: Population, night: int) -> None:
    """Play the sessions of one night, many at a time."""
    bandit = people.bandit
    names = {f"arm-{arm}": arm for arm in range(bandit.n_arms)}
    places = asyncio.Semaphore(people.at_once)

    async def session(index: int) -> None:
        rng = np.random.default_rng([people.seed, night, index])  # sessions end in any order
        hidden = rng.choice(bandit.n_types, size=1, p=bandit.weights)
        async with places:
            name, reward = f"night{night}-{index}", None
            for step in range(HORIZON):
                answer = await service.decide(Question(name, step, reward))
                arm = np.array([names[str(answer.label)]])
                reward = float(bandit.rewards.sample(hidden, arm, rng=rng)[0])
            assert reward is not None
            await service.reward([Reward(name, HORIZON - 1, reward)])

    await asyncio.gather(*(session(index) for index in range(people.per_night)))


async def value_in_force(service: Service, bandit: LatentBandit) -> float:
    """Return the true value of the policy in force without its exploration."""
    labels = [f"arm-{i}" for i in range(bandit.n_arms)]
    policy = await in_force(service.store, service.register.rollout.active, labels, HORIZON)
    return float(value_of(policy, bandit, horizon=HORIZON, rng=0).mean)
