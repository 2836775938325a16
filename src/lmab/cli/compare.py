"""`lmab compare`: the difference of two policies, on a model, from a log, or from live sessions of both."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._html import count
from ..checks import check_writable
from ..errors import InvalidArgument, InvalidData, InvalidFile, first_line
from ..estimation.result import Estimate, estimate_of
from ..evaluation.compare import Comparison
from ..evaluation.compare import compare as compare_policies
from ..evaluation.off_policy import ENOUGH, METHODS
from ..model.bandit import LatentBandit
from ..planning.plan import plan as make_plan
from ..planning.problem import Plan, policy_of
from ..policies.policy import Policy, underlying_bandit
from ..policies.ranking import Ranking
from .options import (
    COLUMNS,
    Columns,
    Json,
    Seed,
    arms_behind,
    bandit_of,
    load_either,
    load_fitted,
    load_planned,
    with_columns,
)
from .output import remark, say, show_json, working


@with_columns
def compare(
    new: Annotated[Path, typer.Argument(help="The new policy, or a model: then a policy is planned for it.")],
    old: Annotated[Path | None, typer.Argument(help="The policy to compare with; without one, --ranking.")] = None,
    ranking: Annotated[
        Path | None, typer.Option(help="CSV file with the arms in the order of a ranking, one per line, best first.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="A model to compare on; with --logs it reduces noise.")] = None,
    logs: Annotated[Path | None, typer.Option(help="Sessions with propensities, or of both policies.")] = None,
    version: Annotated[str | None, typer.Option(help="Column with the policy of each session.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="The two labels in that column, new,old [default: as the service names them].")
    ] = None,
    night: Annotated[str | None, typer.Option(help="Column of the night or day in which a session began.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Where to draw the nights, as SVG.")] = None,
    gain: Annotated[
        float, typer.Option(help="Gain, as a part of the reward, for which live sessions are counted.", min=0.001)
    ] = 0.02,
    columns: Columns = COLUMNS,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: the policy's].", min=1)] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the interval.", min=0.5, max=0.999)] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare two policies, and estimate how many live sessions a test of the difference needs.

    The second policy is a file, or a ranking of the arms. Without --logs the policies are compared on a model: that of
    --model, or else the model of the first argument.

    Example: lmab compare model.lmab --ranking products.csv --horizon 6
    """
    if (old is None) == (ranking is None):
        raise InvalidArgument("give a second policy or --ranking (a CSV file), got " + ("both" if old else "neither"))
    if picture is not None:
        check_writable(picture)
    first, fitted = _first(new, horizon)
    where: Any = fitted if model is None else load_fitted(model)
    bandit = None if model is None else bandit_of(where)
    second: Policy | Plan
    if old is not None:
        second = load_planned(old)
    else:
        assert ranking is not None
        second = read_ranking(ranking, first, None if where is None else bandit_of(where))
    if logs is not None:
        columns = columns.of_model(arms_behind(first) if fitted is None else fitted)
        known = [columns.features, version, night]
        columns = replace(columns, features=",".join(name for name in known if name) or None)
        where = columns.read(logs, arms_of=arms_behind(first))
    if where is None:
        raise InvalidArgument("give --logs (sessions with propensities, or of both policies) or --model (a model)")
    names = None
    if version is not None:
        names = _labels(labels, new, old if old is not None else new)
    found = compare_policies(
        [first, second], where, horizon=horizon, versions=version, labels=names, nights=night, model=bandit,
        confidence=confidence, rng=seed,
    )  # fmt: skip
    if picture is not None:
        picture.write_text(found.picture(), "utf-8")
    if as_json:
        numbers = {"needed": found.needed(gain * abs(found.other)), "needed_for_difference": found.needed()}
        show_json({**_plain(found), **_finite(numbers)})
    else:
        _tell(found, gain, confidence, "the old one" if ranking is None else f"the ranking in {ranking.name}")


def _first(path: Path, horizon: int | None) -> tuple[Policy | Plan, LatentBandit | Estimate | None]:
    """Return the policy in a file, or planned for the model in it, and its model; None: it has none."""
    value = load_either(path)
    if isinstance(value, LatentBandit | Estimate):
        if horizon is None:
            raise InvalidArgument(f"--horizon must be given to plan for the model {path}")
        with working("planning"):
            return make_plan(value, horizon=horizon), value
    planned: Policy | Plan = value
    source = estimate_of(planned.source) if isinstance(planned, Plan) else None
    return planned, source or underlying_bandit(policy_of(planned))


def read_ranking(path: Path, beside: Policy | Plan, model: LatentBandit | None) -> Ranking:
    """Return the ranking in a CSV file as a policy for the sessions of another policy.

    The labels of the arms stand in the first column, the best first; a first line that names no arm is a header. Arms
    of the model that the file lacks come last, by their mean reward on the model; other labels are left out.
    """
    policy = policy_of(beside)
    labels = policy.arm_labels or (None if model is None else model.arm_labels)
    n_arms = policy.n_arms or (None if model is None else model.n_arms)
    if n_arms is None:
        raise InvalidArgument(f"--ranking needs a policy whose number of arms is known, got {type(policy).__name__}")
    numbers = {str(label): number for number, label in enumerate(labels or range(n_arms))}
    with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        names = [row[0].strip() for row in csv.reader(file) if row and row[0].strip()]
    if names and names[0] not in numbers:
        names = names[1:]
    order = list(dict.fromkeys(numbers[name] for name in names if name in numbers))
    if not order:
        shown = ", ".join(list(numbers)[:3])
        raise InvalidData(
            f"{path}: must have arms of the model, such as {shown}, in its first column, got none of them"
        )
    unknown, last = [name for name in names if name not in numbers], set(range(n_arms)) - set(order)
    if unknown:
        remark(f"{path} names {count(len(unknown), 'arm')} that the model does not have: {', '.join(unknown[:3])}")
    if last:
        remark(f"{count(len(last), 'arm')} of the model {'is' if len(last) == 1 else 'are'} not in {path}: ranked last")
    means = np.zeros(n_arms) if model is None else model.weights @ model.means
    order += sorted(last, key=lambda arm: -means[arm])
    return Ranking(order, horizon=policy.horizon, repeats=policy.repeats, arm_labels=labels)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error of reading into one that names the file."""
    try:
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(f"{path}: cannot be read as CSV in UTF-8: {first_line(error)}") from None


def _labels(labels: str | None, *paths: Path) -> tuple[str, str]:
    """Return the labels of the two policies, by default the names that the service gives to these files."""
    if labels is None:
        first, second = (hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in paths)
        return first, second
    parts = labels.split(",")
    if len(parts) != 2:
        raise InvalidArgument(f"--labels must be two labels with a comma between them, got {labels!r}")
    return parts[0], parts[1]


def _plain(found: Comparison) -> dict[str, Any]:
    """Return the comparison for JSON, without NaN."""
    looks = [look._asdict() for look in found.looks]
    return _finite({**asdict(found), "difference": found.difference, "looks": looks})


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value or value == float("inf") else value for name, value in values.items()}


def _tell(found: Comparison, gain: float, confidence: float, other: str = "the old one") -> None:
    if found.interval is None:
        size = f"effective sample size {found.effective:.0f}, {ENOUGH:.0f} needed"
        say(
            f"A live test is needed: too few of these {found.n_sessions:,} sessions agree with both policies ({size}). "
            f"{_live(found, gain)}"
        )
    how = {"model": "On the model", "live": f"In {found.n_sessions:,} live sessions of both policies"}
    start = how.get(found.method, f"On {found.n_sessions:,} logged sessions ({found.method})")
    say(f"{start} the new policy earns {found.value:.4f} per session and {other} {found.other:.4f}.")
    if found.interval is None:
        say(f"Difference: {found.difference:+.4f}, without an interval.")
    elif found.stderr == 0:
        say(f"Difference: {found.difference:+.4f}, exactly.")
    else:
        low, high = found.interval
        say(f"Difference: {found.difference:+.4f} ({confidence:.0%} CI {low:+.4f} to {high:+.4f}).")
    if found.looks:
        nights = len(found.looks)
        say(
            f"The interval holds at all {nights} nights together." if nights > 1 else "All sessions count as one night."
        )
    if found.interval is not None:
        say(_live(found, gain))


def _live(found: Comparison, gain: float) -> str:
    """Return how long a live test takes for the difference that was found, and for a stated gain."""
    wanted = gain * abs(found.other)
    stated = f"a gain of {gain:.0%} ({wanted:.4f}) after {found.needed(wanted):,.0f}"
    if found.difference == 0 or (found.interval is None and found.method != METHODS[2]):  # noise, without a model
        return f"A live test with half of the sessions for each policy shows {stated} sessions."
    return (
        f"A live test with half of the sessions for each policy shows this difference after "
        f"{found.needed():,.0f} sessions, and {stated}."
    )
