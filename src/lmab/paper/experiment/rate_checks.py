"""Checks of statements that the paper argues without a figure: rates, normal rewards, and rewards on several values.

The rules were fixed before the rows were run. An exponent agrees if it is within `_TOLERANCE` of the one that the paper
argues, or within two of its standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from .analysis import Evidence, Finding, Mean
from .checks import together
from .methods import COORDINATES, CORE, ED_MLE, ED_MLE_EVENTS, ED_MOMENTS
from .slopes import LEVEL, NEAR, Rate, by_label, measured_rates, successes
from .studies import N_VALUES

_TOLERANCE = 0.05  # of an exponent; the paper's exponents differ by .07 and more
_GOOD = 0.95  # fraction of the genie that is good
_OFTEN = 0.9  # share of instances on which a method succeeds


def parameters_fall_slowly(evidence: Evidence) -> Finding | None:
    """Judge if parameters fall as N^(-1/(4M-2)) in the worst case, and as N^(-1/2) at fixed types."""
    return _as_argued(evidence, "parameters", 4)


def values_fall_fast(evidence: Evidence) -> Finding | None:
    """Judge if values fall as N^(-1/2) with fewer than 2M - 1 steps, for M = 2 and 3."""
    return _as_argued(evidence, "values", 2)


def _as_argued(evidence: Evidence, beginning: str, n_lines: int) -> Finding | None:
    lines = by_label(measured_rates(evidence.rows), "rate-parameters")
    rates = [rate for label, rate in lines.items() if label.startswith(beginning)]
    if len(rates) < n_lines:
        return None
    texts = [f"{rate.label}: {told(rate.exponent)} (argued: {rate.theory:+.3f})" for rate in rates]
    return Finding(all(_near(rate) for rate in rates), "; ".join(texts))


def _near(rate: Rate) -> bool:
    return rate.theory is not None and abs(rate.exponent.mean - rate.theory) <= max(
        _TOLERANCE, 2 * rate.exponent.stderr
    )


def told(exponent: Mean) -> str:
    """Return an exponent with its standard error."""
    return f"{exponent.mean:+.3f} ± {exponent.stderr:.3f}"


def sampling_needs_more_with_arms(evidence: Evidence) -> Finding | None:
    """Judge if coordinates need A^(l/2) sessions or more for moments of order l; the core set's cost stays."""
    lines = by_label(measured_rates(evidence.rows), "rate-sampling")
    coordinates = [rate for label, rate in lines.items() if label.startswith("coordinates")]
    core = [rate for label, rate in lines.items() if label.startswith("arms from the core set")]
    if len(coordinates) < len(COORDINATES) or len(core) < 2 * len(CORE):
        return None
    grows = all(rate.exponent.mean - (rate.theory or 0.0) > 2 * rate.exponent.stderr for rate in coordinates)
    stays = all(rate.exponent.mean <= _TOLERANCE for rate in core)
    texts = [f"{rate.label}: A^{told(rate.exponent)}" for rate in (*coordinates, *core)]
    return Finding(grows and stays, "; ".join(texts))


def sessions_are_polynomial(evidence: Evidence) -> Finding | None:
    """Judge if Algorithm 1's sessions grow more slowly than A^4, the power that Lemma 3.7 asks for."""
    (rate,) = by_label(measured_rates(evidence.rows), "rate-arms").values() or (None,)
    if rate is None:
        return None
    text = f"sessions for {LEVEL:g} of the genie: A^{told(rate.exponent)}, "
    text += ", ".join(f"{n:,.0f} at A = {a:,.0f}" for a, n in zip(rate.places, rate.values, strict=True))
    return Finding(rate.exponent.exceeds(4.0) is False, text)


def perturbations_help(evidence: Evidence) -> Finding | None:
    """Judge if EM reaches the maximum and finds the types with the largest perturbation, but not without one."""
    counts = successes(evidence.rows)
    if not counts:
        return None
    most = max(one.n_sessions for one in counts)
    ends = {one.size: one for one in counts if one.n_sessions == most}
    least, largest = ends[min(ends)], ends[max(ends)]
    if least is largest:
        return None
    text = f"N = {most:,}: " + ", ".join(
        f"sigma {one.size:g}: {one.near:.0%} within {NEAR:g} of the truth, {one.maximal:.0%} at the maximum"
        for one in ends.values()
    )
    helps = largest.near >= _OFTEN and largest.near > least.near
    return Finding(helps and all(one.maximal >= _OFTEN for one in ends.values()), text)


def normal_rewards_are_learned(evidence: Evidence) -> Finding | None:
    """Judge if Algorithm 1 has .95 of the genie at the largest log at every horizon, also below 2M - 1."""
    budgets, horizons = (evidence.places(column, ED_MOMENTS) for column in ("n_sessions", "horizon"))
    if not budgets or len(horizons) < 2:
        return None
    means = {h: evidence.mean("fraction", ED_MOMENTS, horizon=h, n_sessions=budgets[-1]) for h in horizons}
    known: dict[int, Mean] = {h: mean for h, mean in means.items() if mean is not None}
    if len(known) < len(horizons):
        return None
    text = f"Algorithm 1 at N = {budgets[-1]:,}: " + ", ".join(f"H = {h}: {mean}" for h, mean in known.items())
    return Finding(together([mean.exceeds(_GOOD) for mean in known.values()]), text)


def events_save_a_factor(evidence: Evidence) -> Finding | None:
    """Judge if core events give nearer parameters than core pairs with five values; report all Z."""
    budgets = evidence.places("n_sessions", ED_MLE_EVENTS)
    if not budgets:
        return None
    texts: list[str] = []
    differences: Sequence[Mean | None] = [
        evidence.difference("distance", ED_MLE, ED_MLE_EVENTS, kind=f"values-{z}", n_sessions=budgets[-1])
        for z in N_VALUES
    ]
    for z, difference in zip(N_VALUES, differences, strict=True):
        if difference is None:
            return None
        texts.append(f"Z = {z}: {difference.mean:+.4f} ± {difference.stderr:.4f}")
    last = differences[-1]
    text = f"distance from core pairs minus distance from core events at N = {budgets[-1]:,}: " + ", ".join(texts)
    return None if last is None else Finding(last.exceeds(0.0), text)
