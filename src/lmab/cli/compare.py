"""`lmab compare`: what one policy earns more than another, on a model, from a log, or from a log that both made."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import check_writable
from ..errors import InvalidArgument
from ..evaluation.compare import Comparison
from ..evaluation.compare import compare as compare_policies
from .options import COLUMNS, Columns, Json, Seed, arms_behind, bandit_of, load_fitted, load_planned, with_columns
from .output import say, show_json


@with_columns
def compare(
    new: Annotated[Path, typer.Argument(help="The new policy: a file from `lmab plan` or `Policy.save`.")],
    old: Annotated[Path, typer.Argument(help="The policy that it is compared with.")],
    model: Annotated[Path | None, typer.Option(help="A model to compare on; with --logs it reduces noise.")] = None,
    logs: Annotated[Path | None, typer.Option(help="Sessions with propensities, or of both policies.")] = None,
    version: Annotated[str | None, typer.Option(help="Column that says which policy a session had.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="The two labels in that column, new,old [default: as the service names them].")
    ] = None,
    night: Annotated[str | None, typer.Option(help="Column of the night or day in which a session began.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Where to draw the nights, as SVG.")] = None,
    gain: Annotated[float, typer.Option(help="Part of the reward for which sessions are counted.", min=0.001)] = 0.02,
    columns: Columns = COLUMNS,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: the policy's].", min=1)] = None,
    confidence: Annotated[float, typer.Option(help="Of the interval.", min=0.5, max=0.999)] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare two policies, and say how many live sessions would tell them apart.

    Example: lmab compare new.lmab old.lmab --logs heldout.parquet --propensity p
    """
    if (logs is None) == (model is None) and logs is None:
        raise InvalidArgument("give --logs (sessions with propensities, or of both policies) or --model (a model)")
    if picture is not None:
        check_writable(picture)
    policies = [load_planned(path) for path in (new, old)]
    where: Any = None if model is None else load_fitted(model)
    bandit = None if where is None else bandit_of(where)
    if logs is not None:
        known = [columns.features, version, night]
        columns = replace(columns, features=",".join(name for name in known if name) or None)
        where = columns.read(logs, arms_of=arms_behind(policies[0]))
    names = None if version is None else _labels(labels, new, old)
    found = compare_policies(
        policies, where, horizon=horizon, versions=version, labels=names, nights=night, model=bandit,
        confidence=confidence, rng=seed,
    )  # fmt: skip
    if picture is not None:
        picture.write_text(found.picture(), "utf-8")
    if as_json:
        show_json({**_plain(found), "needed": found.needed(gain * abs(found.other))})
    else:
        _tell(found, gain, confidence)


def _labels(labels: str | None, *paths: Path) -> tuple[str, str]:
    """What the column says of the two policies: what was given, or what the service calls these files."""
    if labels is None:
        first, second = (hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in paths)
        return first, second
    parts = labels.split(",")
    if len(parts) != 2:
        raise InvalidArgument(f"--labels must be two labels with a comma between them, got {labels!r}")
    return parts[0], parts[1]


def _plain(found: Comparison) -> dict[str, Any]:
    """For JSON, which knows no NaN."""
    looks = [look._asdict() for look in found.looks]
    known = {**asdict(found), "difference": found.difference, "looks": looks}
    return {name: None if value != value or value == float("inf") else value for name, value in known.items()}


def _tell(found: Comparison, gain: float, confidence: float) -> None:
    how = {"model": "On the model", "live": f"In {found.n_sessions:,} sessions of both"}
    start = how.get(found.method, f"On {found.n_sessions:,} sessions of the log ({found.method})")
    say(f"{start} the new policy earns {found.value:.4f} a session, the old one {found.other:.4f}.")
    if found.interval is None:
        say(f"Difference {found.difference:+.4f}; only {found.effective:.0f} sessions count in full: no interval.")
    elif found.stderr == 0:
        say(f"Difference {found.difference:+.4f}, exactly.")
    else:
        low, high = found.interval
        say(f"Difference {found.difference:+.4f} ({low:+.4f} to {high:+.4f} at {confidence:.0%}).")
    if found.looks:
        nights = len(found.looks)
        say(f"The bounds hold at all {nights} nights together." if nights > 1 else "All sessions count as one night.")
    wanted = gain * abs(found.other)
    needed = found.needed(wanted)
    say(f"A live test of half and half would see a gain of {gain:.0%} ({wanted:.4f}) after {needed:,.0f} sessions.")
