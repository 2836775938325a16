"""`lmab evaluate`: an honest number for what a policy is worth, from a log or on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..checks import check_writable
from ..data import Episodes
from ..errors import InvalidArgument
from ..evaluation import Certificate, LogEvidence, LogValue, certify, value_of, weigh
from ..model import LatentBandit
from ..planning import policy_of
from ..policies import Policy
from .columns import COLUMNS, Columns, with_columns
from .inputs import Json, Seed, estimate_behind, load_model, load_planned
from .output import note, say, show_json, show_table


@with_columns
def evaluate(
    policy: Annotated[Path, typer.Argument(help="The policy: a file from `lmab plan` or `Policy.save`.")],
    logs: Annotated[Path | None, typer.Option(help="Sessions the model was not fitted to, with propensities.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model, to evaluate on and to steady the log's estimate.")
    ] = None,
    certified: Annotated[Path | None, typer.Option("--certify", help="The log the model was fitted to.")] = None,
    save_certificate: Annotated[
        Path | None, typer.Option(help="Where to write the certificate, for `lmab report --certificate`.")
    ] = None,
    columns: Columns = COLUMNS,
    fit_propensities: Annotated[bool, typer.Option(help="Fit the propensities, by step, to the log itself.")] = False,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session; else the policy's.", min=1)] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals from --logs.", min=0.5, max=0.999)] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say what a policy is worth: from logged sessions, on a model, or with a certificate.

    Example: lmab evaluate policy.lmab --logs heldout.parquet --propensity p
    """
    _require_something(logs, model, certified, save_certificate)
    planned, rng = load_planned(policy), np.random.default_rng(seed)
    chosen = policy_of(planned)
    steps = _horizon(chosen, horizon)
    bandit = None if model is None else load_model(model)
    summary: dict[str, Any] = {"policy": str(policy), "horizon": steps}
    if bandit is not None:
        summary["model"] = _on_model(chosen, bandit, steps, rng, quiet=as_json)
    if logs is not None:
        log = columns.read(logs, arms_of=chosen)
        guide = bandit if bandit is not None else getattr(chosen, "bandit", None)
        evidence = weigh(
            chosen, log, horizon=steps, model=guide, fit_propensities=fit_propensities, confidence=confidence, rng=rng
        )
        summary["logs"] = _from_log(evidence, log, confidence, quiet=as_json)
    if certified is not None:
        certificate = certify(*estimate_behind(policy, planned), columns.read(certified, arms_of=chosen), rng=rng)
        summary["certificate"] = _certificate(certificate, save_certificate, quiet=as_json)
    if as_json:
        show_json(summary)


def _require_something(logs: Path | None, model: Path | None, certified: Path | None, saved: Path | None) -> None:
    if logs is None and model is None and certified is None:
        raise InvalidArgument("give --logs (sessions to judge by), --model, or --certify (the log of the fit)")
    if saved is not None:
        if certified is None:
            raise InvalidArgument("--save-certificate needs --certify, the log of the fit")
        check_writable(saved)


def _horizon(policy: Policy, horizon: int | None) -> int:
    steps = horizon or policy.horizon
    if steps is None:
        raise InvalidArgument("--horizon must be given: this policy has none of its own")
    return steps


def _on_model(
    policy: Policy, bandit: LatentBandit, horizon: int, rng: np.random.Generator, *, quiet: bool
) -> dict[str, Any]:
    value = value_of(policy, bandit, horizon=horizon, rng=rng)
    fixed = bandit.best_fixed(horizon, policy.repeats)
    if not quiet:
        how = "exactly" if value.exact else f"± {value.stderr:.4f}"
        say(f"On the model a session of {horizon} steps earns {value.mean:.4f} ({how}).")
        say(f"The best choice that ignores what the session shows earns {fixed:.4f}.")
    return {"mean": value.mean, "stderr": value.stderr, "per_step": value.per_step.tolist(), "fixed": fixed}


def _from_log(evidence: LogEvidence, log: Episodes, confidence: float, *, quiet: bool) -> dict[str, Any]:
    values = evidence.values
    logged = log.mean_session(len(evidence.n_reached))
    if not quiet:
        _show_evidence(evidence, values, logged, confidence)
    return {
        "estimates": {
            name: None if value is None else {**vars(value), "per_step": value.per_step.tolist()}
            for name, value in values.items()
        },
        "logged": logged,
        "sessions": int(evidence.n_reached[0]),
        "effective_sizes": evidence.effective_sizes.tolist(),
        "enough": evidence.enough,
        "notes": evidence.notes,
    }


def _show_evidence(evidence: LogEvidence, values: dict[str, LogValue | None], logged: float, confidence: float) -> None:
    rows = [
        [name, "-", "-"] if value is None else [name, f"{value.mean:.4f}", "{:.4f} to {:.4f}".format(*value.interval)]
        for name, value in values.items()
    ]
    rows.append(["the log's own policy", f"{logged:.4f}", ""])
    show_table("Reward of a session", ["estimate", "value", f"{confidence:.0%} interval"], rows)
    sizes = ", ".join(f"{size:,.0f}" for size in evidence.effective_sizes)
    say(f"Sessions that speak for each step (effective number, of {evidence.n_reached[0]:,}): {sizes}.")
    if not evidence.enough:
        note("the log cannot tell by itself:")
    for remark in evidence.notes:
        note(remark)


def _certificate(certificate: Certificate, output: Path | None, *, quiet: bool) -> dict[str, Any]:
    if output is not None:
        certificate.save(output)
    if not quiet:
        say(certificate.sentence)
        note(certificate.note)
        if output is not None:
            say(f"Certificate written to {output}. Next: lmab report MODEL POLICY --certificate {output}")
    return {
        "output": None if output is None else str(output),
        "value": certificate.value,
        "optimum": certificate.optimum,
        "regret": certificate.regret,
        "planning_gap": certificate.planning_gap,
        "confidence": certificate.confidence,
        "sentence": certificate.sentence,
        "note": certificate.note,
    }
