"""`lmab budget`: how many sessions the theory asks for, and how many are needed in practice."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import typer

from ... import simulation
from ...cli.options import Json
from ...cli.output import console, progress, show_json, show_table
from ...errors import InvalidArgument
from ...estimation.em import EM
from ...estimation.fit import fit
from ...evaluation.value import evaluate
from ...model.instances import random_bandit
from ...planning.certified import Certified
from ...planning.plan import plan
from ...policies.belief_policies import Uniform
from .. import theory
from ..lower_bounds import LowerBound, longest_horizon, sessions_below

_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000)


def budget(
    types: Annotated[int, typer.Option(help="Number of hidden types, M.", min=1)],
    arms: Annotated[int, typer.Option(help="Number of arms, A.", min=1)],
    horizon: Annotated[int, typer.Option(help="Steps of a session, H.", min=1)],
    epsilon: Annotated[float, typer.Option(help="Allowed loss per session against the best policy.")] = 0.1,
    values: Annotated[int | None, typer.Option(help="Values that a reward can take, Z [default: 2].", min=2)] = None,
    eta: Annotated[float, typer.Option(help="Probability of failure.")] = 0.1,
    w_min: Annotated[float | None, typer.Option(help="Least weight of a type [default: 1/M].")] = None,
    gaussian: Annotated[bool, typer.Option("--gaussian", help="Rewards are normal (Theorem B.2); no values.")] = False,
    gamma: Annotated[float | None, typer.Option(help="Assume also that types differ by this much on an arm.")] = None,
    measure: Annotated[int, typer.Option(help="Also measure the need on this many random bandits.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Seed of those bandits.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Print how many sessions the paper's theorems ask for, and how many are needed in practice.

    Constants in O(.) are taken as 1, so the theory's numbers are orders of magnitude for a worst case.

    Example: lmab budget --types 3 --arms 50 --horizon 5 --epsilon 0.1
    """
    if gaussian and values is not None:
        raise InvalidArgument(f"--values must not be given with --gaussian: normal rewards have none, got {values}")
    n_values = values or 2
    if gaussian:
        asked = theory.gaussian_budget(types, arms, horizon, epsilon, eta=eta, w_min=w_min)
    else:
        asked = theory.budget(types, arms, horizon, epsilon, n_values=n_values, eta=eta, w_min=w_min)
    apart = (
        None if gamma is None else _separated(asked, types, horizon, n_values, epsilon, gamma, w_min or 1 / types, eta)
    )
    below = _below(types, arms, horizon, epsilon, eta)
    needed = _measure(types, arms, horizon, epsilon, measure, seed) if measure else None
    if as_json:
        totals = {"total": asked.total, "likelihood_total": asked.likelihood_total}
        proved = {"sessions_below": below and float(below), "sessions_below_pair": below and _pair(below)}
        numbers = {**vars(asked), **totals, **(apart or {}), **proved, "measured": needed}
        show_json({name: None if number in (np.inf, -np.inf) else number for name, number in numbers.items()})
        return
    regime = "H >= 2M - 1: types can be identified" if asked.identifiable else "H < 2M - 1: only values can be learned"
    show_table(f"{types} types, {arms} arms, {horizon} steps, epsilon {epsilon:g} ({regime})",
               ["what", "number"], _rows(asked, apart, below))  # fmt: skip
    console.print("Constants in O(.) are taken as 1.")
    if apart is not None and horizon < apart["separated_horizon"]:
        console.print(
            f"Sessions of {horizon} steps are too short for --gamma {gamma:g}: Lemma C.2 promises nothing below "
            f"{_text(apart['separated_horizon'])} steps. Use longer sessions or a larger gamma."
        )
    if not measure:
        console.print("Add --measure 5 to measure the need in practice (maximum likelihood on uniform exploration).")
    else:
        enough = f"{needed:,}" if needed else f"more than {_SIZES[-1]:,}"
        console.print(
            f"In practice {enough} sessions are needed (DirectMLE's method, mean over {measure} random bandits)."
        )


def _separated(
    asked: theory.Budget, types: int, horizon: int, values: int, epsilon: float, gamma: float, w_min: float, eta: float
) -> dict[str, float]:
    if not 0 < gamma <= 2:
        raise InvalidArgument(f"--gamma must be in (0, 2], an L1 distance of two reward distributions, got {gamma}")
    steps = theory.separated_horizon(asked.core_size, types, values, gamma, epsilon, w_min)
    played = max(horizon, math.ceil(steps))  # shorter sessions promise nothing, however many there are
    return {
        "separated_horizon": steps,
        "separated_sessions": theory.separated_sessions(asked.core_size, types, played, epsilon, w_min, eta),
    }


def _below(types: int, arms: int, horizon: int, epsilon: float, eta: float) -> LowerBound | None:
    """Return the lower bound on sessions; None if no pair is searched for: one arm, a large eta, long sessions."""
    if arms < 2 or eta >= 0.25 or horizon > longest_horizon():
        return None
    return sessions_below(types, horizon, epsilon, eta, n_arms=arms)


def _pair(below: LowerBound) -> list[dict[str, Any]]:
    return [{"weights": each.weights.tolist(), "means": each.means.tolist()} for each in below.pair]


def _rows(asked: theory.Budget, apart: dict[str, float] | None, below: LowerBound | None) -> list[list[str]]:
    rows: list[tuple[str, float | None]] = [
        ("core pairs n (Theorem 2.4)", asked.core_size),
        ("values that normal rewards are cut into", asked.grid_size),
        ("accuracy of the subspace, delta_sub", asked.delta_sub),
        ("sessions for the subspace, N0 (Lemma 3.7)", asked.subspace_sessions),
        ("highest moment matched", asked.order),
        ("accuracy of a moment, delta_tsr", asked.delta_tsr),
        ("sessions per moment, N1", asked.sessions_per_entry),
        ("sessions for all moments", asked.tensor_sessions),
        ("total (Theorem 3.8; B.2 for normal rewards)", asked.total),
        ("total by maximum likelihood, N0 + N (Lemma 4.1)", asked.likelihood_total),
    ]
    if apart is not None:
        rows += [
            ("steps from which types are told apart in a session (Lemma C.2)", apart["separated_horizon"]),
            ("sessions that then suffice", apart["separated_sessions"]),
        ]
    if below is not None:
        rows.append(("no learner succeeds with fewer (lower bound, Bernoulli rewards)", float(below)))
    return [[name, _text(number)] for name, number in rows if number is not None]


def _text(number: float) -> str:
    if isinstance(number, int):
        return f"{number:,}"
    return "more than 1e308" if number == np.inf else f"{number:.3g}"


def _measure(types: int, arms: int, horizon: int, epsilon: float, n_bandits: int, seed: int) -> int | None:
    """Return the smallest size on a grid at which the mean loss over random bandits is at most epsilon."""
    with progress() as bar:
        for size in bar.track(_SIZES, description="sessions"):
            losses = [_loss(types, arms, horizon, size, np.random.default_rng([seed, one])) for one in range(n_bandits)]
            if np.mean(losses) <= epsilon:
                return size
    return None


def _loss(types: int, arms: int, horizon: int, size: int, rng: Any) -> float:
    """Return how much less a policy learned from `size` sessions earns than the best policy."""
    bandit = random_bandit(types, arms, rng=rng)
    log = simulation.simulate(bandit, Uniform(arms), n_sessions=size, horizon=horizon, rng=rng)
    fitted = fit(log, n_types=types, method=EM(prior=1.0), rng=rng).bandit
    learned = plan(fitted, horizon=horizon, method=Certified(gap=0.005), time_limit=10)
    best = plan(bandit, horizon=horizon, method=Certified(gap=0.005), time_limit=10)
    return best.lower - evaluate(learned.policy, bandit, horizon=horizon).mean
