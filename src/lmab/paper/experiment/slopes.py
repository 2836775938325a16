"""Measured exponents: slopes of straight lines through logarithms, with errors from a bootstrap over instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Float
from .analysis import Mean, crossing, measured
from .methods import COORDINATES, CORE, ED_MOMENTS, LIKELIHOOD, ONE_ARM, REBUILT, TWO_ARMS
from .store import Row

ACCURACY = 0.05  # standard error of moments for which sessions are counted
LEVEL = 0.97  # fraction of the genie for which the sessions of Algorithm 1 are counted
_DRAWS = 400  # of the bootstrap
_FIXED_BUDGETS = 3  # largest numbers of sessions, at which the rate of fixed types has set in

Curve = Callable[[Float[Array, "i s n"]], Float[Array, "n"]]  # from values by instance, separation and place


@dataclass(frozen=True, eq=False)
class Rate:
    """One line of a plot of rates: measured places, and the exponent of a power of the axis that fits them."""

    study: str
    label: str
    places: Float[Array, "n"]  # N, or A
    values: Float[Array, "n"]  # errors, or sessions
    exponent: Mean
    theory: float | None  # the exponent that the paper argues; None: it argues none
    color: str
    marker: str


def measured_rates(rows: Sequence[Row]) -> list[Rate]:
    """Return all lines for which rows are there."""
    made = (*_parameters(rows), *_sampling(rows), _arms(rows), *_perturbed(rows))
    return [rate for rate in made if rate is not None]


def _parameters(rows: Sequence[Row]) -> list[Rate | None]:
    """Return (a): parameters of one arm in the worst case and at fixed types, and values on two arms."""
    lines: list[Rate | None] = []
    for n_types, marker in ((2, "o"), (3, "s")):
        chosen = [row for row in rows if row.method == ONE_ARM.name and row.n_types == n_types]
        lines += [
            _line("rate-parameters", f"parameters, worst case, M = {n_types}", chosen, _worst, -1 / (4 * n_types - 2),
                  "#0072B2", marker),
            _line("rate-parameters", f"parameters, fixed types, M = {n_types}", chosen, lambda values: values[-1], -0.5,
                  "#56B4E9", marker, last=_FIXED_BUDGETS),
        ]  # fmt: skip
        chosen = [row for row in rows if row.method == TWO_ARMS.name and row.n_types == n_types]
        horizon = chosen[0].horizon if chosen else 0
        lines.append(
            _line("rate-parameters", f"values, worst case, M = {n_types}, H = {horizon}", chosen, _worst, -0.5,
                  TWO_ARMS.color, marker)
        )  # fmt: skip
    return lines


def _worst(values: Float[Array, "s n"]) -> Float[Array, "n"]:
    return values.max(axis=0)


def _line(
    study: str, label: str, rows: Sequence[Row], choose: Callable[[Float[Array, "s n"]], Float[Array, "n"]],
    theory: float | None, color: str, marker: str, *, column: str = "n_sessions", last: int | None = None,
    power: float = 1.0, factor: float = 1.0,
) -> Rate | None:  # fmt: skip
    """Return the line of `factor` error^`power`, or None without two places; `choose` reduces the separations."""
    places, gaps = sorted({getattr(row, column) for row in rows}), sorted({row.separation for row in rows})
    cells = {(row.instance, row.separation, getattr(row, column)): row.error for row in rows}
    instances = sorted({row.instance for row in rows})
    whole = [i for i in instances if all(cells.get((i, s, n)) is not None for s in gaps for n in places)]
    if len(places) < 2 or len(whole) < 2:
        return None
    table = np.array([[[cells[i, s, n] for n in places] for s in gaps] for i in whole], float)
    axis = np.array(places, float)

    def curve(chosen: Float[Array, "i s n"]) -> Float[Array, "n"]:
        return factor * choose(chosen.mean(axis=0)) ** power

    return Rate(study, label, axis, curve(table), _exponent(axis, table, curve, last), theory, color, marker)


def _exponent(places: Float[Array, "n"], table: Float[Array, "i s n"], curve: Curve, last: int | None = None) -> Mean:
    """Return the slope of the log of the curve against the log of the places, over the `last` ones or all."""
    logs = np.log(places)[-last:] if last else np.log(places)

    def slope(chosen: Float[Array, "i s n"]) -> float:
        values = np.log(np.maximum(curve(chosen), 1e-300))
        return float(np.polyfit(logs, values[-len(logs) :], 1)[0])

    draws = np.random.default_rng(0).integers(len(table), size=(_DRAWS, len(table)))
    return Mean(slope(table), float(np.std([slope(table[draw]) for draw in draws], ddof=1)), len(table))


def _sampling(rows: Sequence[Row]) -> list[Rate | None]:
    """Return (b): sessions for a standard error of .05 of moments of order 1, 2 and 3, against the arms."""
    lines: list[Rate | None] = []
    for kind, methods in (("uniform", COORDINATES), ("one-arm-apart", REBUILT), ("uniform", REBUILT), ("uniform", CORE),
                          ("one-arm-apart", CORE)):  # fmt: skip
        for order, method in methods.items():
            chosen = [row for row in rows if row.method == method.name and row.kind == kind]
            n_sessions = chosen[0].n_sessions if chosen else 0
            lines.append(_line(
                "rate-sampling", f"{method.label} ({kind})", chosen, _worst,
                order / 2 if methods is COORDINATES else 0.0 if methods is CORE else None, method.color, method.marker,
                column="n_arms", power=2.0, factor=n_sessions / ACCURACY**2,
            ))  # fmt: skip
    return lines


def _arms(rows: Sequence[Row]) -> Rate | None:
    """Return (c): sessions of Algorithm 1 for .97 of the genie, against the arms."""
    values = {
        (row.instance, row.n_arms, row.n_sessions): value
        for row, value in measured([row for row in rows if row.horizon == 3 and row.n_types == 2], "fraction")
        if row.method == ED_MOMENTS.name and row.kind == "spherical"
    }
    arms, budgets = sorted({key[1] for key in values}), sorted({key[2] for key in values})
    instances = sorted({key[0] for key in values})
    whole = [i for i in instances if all((i, a, n) in values for a in arms for n in budgets)]
    if len(arms) < 2 or len(budgets) < 2 or len(whole) < 2:
        return None
    table = np.array([[[values[i, a, n] for a in arms] for n in budgets] for i in whole])

    def needed(chosen: Float[Array, "i s n"]) -> Float[Array, "n"]:
        means = chosen.mean(axis=0)
        crossings = [crossing(np.array(budgets, float), means[:, place], LEVEL) for place in range(len(arms))]
        return np.minimum(np.array(crossings), budgets[-1])

    axis = np.array(arms, float)
    label = f"Algorithm 1, sessions for {LEVEL:g} of the genie"
    return Rate("rate-arms", label, axis, needed(table), _exponent(axis, table, needed), None, ED_MOMENTS.color,
                ED_MOMENTS.marker)  # fmt: skip


_SHADES = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00")  # of the sizes of perturbations


def _perturbed(rows: Sequence[Row]) -> list[Rate | None]:
    """Return (d): the distance of the most likely parameters against N, for each size of perturbation."""
    chosen = [row for row in rows if row.method == LIKELIHOOD.name]
    lines: list[Rate | None] = []
    for color, size in zip(_SHADES, sorted({row.separation for row in chosen}), strict=False):
        some = [_distance_as_error(row) for row in chosen if row.separation == size]
        lines.append(_line("rate-perturbed", f"sigma = {size:g}", some, _worst, None, color, LIKELIHOOD.marker))
    return lines


def _distance_as_error(row: Row) -> Row:
    return replace(row, error=row.distance)


@dataclass(frozen=True)
class Success:
    """How often maximum likelihood succeeds at one size of perturbation and number of sessions."""

    size: float
    n_sessions: int
    near: float  # share of instances with a distance of at most .1
    maximal: float  # share of instances in which EM is as likely as from the truth
    n_instances: int


NEAR = 0.1  # distance of a learned model that counts as found
_SLACK = 0.5  # log-likelihood of the whole log by which EM from the truth may be higher


def successes(rows: Sequence[Row]) -> list[Success]:
    """Return the successes of `LIKELIHOOD` by perturbation and number of sessions."""
    cells: dict[tuple[float, int], list[Row]] = {}
    for row in rows:
        if row.method == LIKELIHOOD.name and row.distance is not None and row.error is not None:
            cells.setdefault((row.separation, row.n_sessions), []).append(row)
    return [
        Success(
            *cell,
            near=float(np.mean([(row.distance or 0.0) <= NEAR for row in some])),
            maximal=float(np.mean([(row.error or 0.0) * row.n_sessions <= _SLACK for row in some])),
            n_instances=len(some),
        )
        for cell, some in sorted(cells.items())
    ]


def by_label(rates: Sequence[Rate], study: str) -> Mapping[str, Rate]:
    """Return the lines of one plot by their labels."""
    return {rate.label: rate for rate in rates if rate.study == study}
