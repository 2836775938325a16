"""The whole loop against a simulated population: from no model to a policy near the optimum, while the page fills."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation import value_of
from ..model import LatentBandit, random_bandit
from ..planning import plan
from ..policies import Relabelled
from .messages import Ask, Reward
from .refit import refit
from .run import Options, make_service, server
from .service import Service
from .stores import open_store
from .versions import UNIFORM, Defaults, read_version
from .wishes import Night, Wishes

HORIZON = 6


@dataclass(frozen=True)
class Population:
    """People with a hidden type each; `n_nights` times, `per_night` of them come and then the policy is refitted."""

    bandit: LatentBandit
    per_night: int = 1500
    n_nights: int = 10
    at_once: int = 64
    seed: int = 0


def population(seed: int = 0) -> Population:
    """Three types and twelve arms."""
    return Population(random_bandit(3, 12, rng=seed), seed=seed)


def play_demo(
    options: Options, say: Callable[[str], None], people: Population | None = None, stay: bool = True
) -> None:
    """Serve, play and refit; then keep serving until Ctrl-C if `stay`."""
    asyncio.run(_demo(options, say, people or population(), stay))


async def _demo(options: Options, say: Callable[[str], None], people: Population, stay: bool) -> None:
    labels = tuple(f"arm-{i}" for i in range(people.bandit.n_arms))
    settings = replace(options.settings, defaults=Defaults(HORIZON, floor=0.1))
    options = replace(options, arms=labels, settings=settings, policy=None, secret=b"demo")
    service = make_service(options)
    running = server(options, service)
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
            found = await asyncio.to_thread(_refit, options.store, folder, people.seed + night)
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


def _refit(where: str, folder: Path, seed: int) -> Night:
    """In a thread with a loop of its own, so that the service answers meanwhile."""

    async def work() -> Night:
        store = open_store(where)
        await store.open()
        try:
            wishes = Wishes(-0.05, canary=0.5, horizon=HORIZON, repeats=True, time_limit=10.0, unproven=True)
            return await refit(store, folder, wishes, rng=seed)
        finally:
            await store.close()

    return asyncio.run(work())


async def play_sessions(service: Service, people: Population, night: int) -> None:
    """One night's sessions, many at a time."""
    bandit = people.bandit
    names = {f"arm-{arm}": arm for arm in range(bandit.n_arms)}
    turns = asyncio.Semaphore(people.at_once)

    async def session(index: int) -> None:
        rng = np.random.default_rng([people.seed, night, index])  # sessions end in any order
        type_ = rng.choice(bandit.n_types, size=1, p=bandit.weights)
        async with turns:
            name, reward = f"night{night}-{index}", None
            for step in range(HORIZON):
                told = await service.decide(Ask(name, step, reward))
                arm = np.array([names[str(told.label)]])
                reward = float(bandit.rewards.sample(type_, arm, rng=rng)[0])
            assert reward is not None
            await service.reward([Reward(name, HORIZON - 1, reward)])

    await asyncio.gather(*(session(index) for index in range(people.per_night)))


async def value_in_force(service: Service, bandit: LatentBandit) -> float:
    """What the policy in force earns in truth, without its exploration."""
    version = service.register.turn.active
    body: Any = None if version == UNIFORM else await service.store.version(version)
    compact = None if body is None else read_version(body, service.settings.defaults).compact
    if compact is None:
        rate = float((bandit.weights @ bandit.means).mean())
        return rate * HORIZON
    policy = Relabelled(compact.policy, [f"arm-{i}" for i in range(bandit.n_arms)])
    return float(value_of(policy, bandit, horizon=HORIZON, rng=0).mean)
