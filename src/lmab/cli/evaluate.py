"""`lmab evaluate`: the value of a policy, from a log, on a model, or with an assessment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._html import best_fixed, steps_of
from ..checks import check_writable
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.result import Estimate
from ..evaluation.assess import assess
from ..evaluation.assessment import Assessment
from ..evaluation.baselines import Baselines, segments_of
from ..evaluation.off_policy import METHODS, LogEvidence, LogValue
from ..evaluation.value import prior_behind, value_of, weigh
from ..model.bandit import LatentBandit
from ..planning.problem import Plan, policy_of
from ..policies.policy import Policy
from .options import (
    COLUMNS,
    Columns,
    Json,
    Seed,
    arms_behind,
    bandit_of,
    check_summary,
    contradicted,
    estimate_behind,
    load_fitted,
    load_planned,
    tell_check,
    with_columns,
)
from .output import counting, note, say, show_json, show_table


@with_columns
def evaluate(
    policy: Annotated[Path, typer.Argument(help="The policy: a file from `lmab plan` or `Policy.save`.")],
    logs: Annotated[Path | None, typer.Option(help="Held-out sessions with propensities.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model to evaluate on; with --logs it reduces noise.")] = None,
    assessed: Annotated[Path | None, typer.Option("--assess", help="The log that the model was fitted to.")] = None,
    save_assessment: Annotated[
        Path | None, typer.Option(help="Where to write the assessment, for `lmab report --assessment`.")
    ] = None,
    columns: Columns = COLUMNS,
    fit_propensities: Annotated[
        bool, typer.Option(help="Estimate the propensities of each step from the log.")
    ] = False,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: the policy's].", min=1)] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the intervals from --logs.", min=0.5, max=0.999)
    ] = 0.95,
    time_limit: Annotated[float, typer.Option(help="Seconds for the assessment, about.", min=0.1)] = 60.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Estimate the value of a policy: from held-out sessions, on a model, or with an assessment.

    Example: lmab evaluate policy.lmab --logs heldout.parquet --propensity p
    """
    _require_something(logs, model, assessed, save_assessment)
    planned, rng = load_planned(policy), np.random.default_rng(seed)
    chosen = policy_of(planned)
    steps = _horizon(chosen, horizon)
    fitted = None if model is None else load_fitted(model)
    bandit = None if fitted is None else bandit_of(fitted)
    summary: dict[str, Any] = {"policy": str(policy), "horizon": steps, "check": check_summary(planned)}
    summary["contradicted"] = contradicted(planned)
    log = None if logs is None else columns.read(logs, arms_of=arms_behind(planned))
    if fitted is not None:
        summary["model"] = _on_model(planned, fitted, steps, rng, log, quiet=as_json)
    if log is not None:
        guide = bandit if bandit is not None else getattr(chosen, "bandit", None)
        if log.propensities is None and not fit_propensities:
            raise InvalidArgument(
                "--propensity must name the column with the probability of each choice; if choices did not depend on "
                "rewards, use --fit-propensities, got neither"
            )
        evidence = weigh(
            planned, log, horizon=steps, model=guide, fit_propensities=fit_propensities, confidence=confidence, rng=rng
        )
        summary["logs"] = _from_log(evidence, confidence, quiet=as_json)
    if assessed is not None:
        log = columns.read(assessed, arms_of=arms_behind(planned))
        with counting("assessing") as shown:
            behind = estimate_behind(policy, planned)
            assessment = assess(*behind, log, rng=rng, time_limit=time_limit, progress=shown)
        summary["assessment"] = _assessment(assessment, save_assessment, quiet=as_json)
    if as_json:
        show_json(summary)
    elif assessed is None:  # an assessment has the check in its table
        tell_check(planned)


def _require_something(logs: Path | None, model: Path | None, assessed: Path | None, saved: Path | None) -> None:
    if logs is None and model is None and assessed is None:
        raise InvalidArgument("give --logs (held-out sessions), --model (a model) or --assess (the log of the fit)")
    if saved is not None:
        if assessed is None:
            raise InvalidArgument("--save-assessment needs --assess, the log of the fit")
        check_writable(saved)


def _horizon(policy: Policy, horizon: int | None) -> int:
    steps = horizon or policy.horizon
    if steps is None:
        raise InvalidArgument("--horizon must be given, because this policy works for any horizon")
    return steps


def _on_model(
    planned: Policy | Plan, model: LatentBandit | Estimate, horizon: int, rng: np.random.Generator,
    log: Sessions | None, *, quiet: bool,
) -> dict[str, Any]:  # fmt: skip
    bandit, policy = bandit_of(model), policy_of(planned)
    prior = prior_behind(policy, model)
    value = value_of(policy, bandit, horizon=horizon, type_prior=prior, rng=rng)
    some = planned.of_kept_arms(bandit) if isinstance(planned, Plan) else bandit
    fixed = some.best_fixed(horizon, policy.repeats)
    used = () if prior is None or policy.type_prior is None else prior.columns
    segments = () if log is None else segments_of(bandit, log, used)
    beside = Baselines.of(prior, some.n_arms, horizon, repeats=policy.repeats, segments=segments).table(some, prior)
    if not quiet:
        how = "exactly" if value.exact else f"± {value.stderr:.4f}"
        steps = steps_of(horizon, people_leave=bandit.leaving is not None)
        say(f"On the model a session of {steps} earns {value.mean:.4f} ({how}).")
        same = best_fixed(policy.repeats)
        say(f"{same[0].upper()}{same[1:]}, which is the same for everyone, earns {fixed:.4f}.")
        for name, worth in beside.items():
            say(f"{name[0].upper()}{name[1:]} earns {worth:.4f}.")
    per_step = value.per_step.tolist()
    return {"mean": value.mean, "stderr": value.stderr, "per_step": per_step, "fixed": fixed, "baselines": beside}


def _from_log(evidence: LogEvidence, confidence: float, *, quiet: bool) -> dict[str, Any]:
    values = evidence.values
    if not quiet:
        _show_evidence(evidence, values, confidence)
    return {
        "estimates": {name: None if value is None else _plain(value) for name, value in values.items()},
        "logged": evidence.logged,
        "sessions": int(evidence.n_reached[0]),
        "effective_sizes": evidence.effective_sizes.tolist(),
        "enough": evidence.enough,
        "notes": evidence.notes,
    }


def _plain(value: LogValue) -> dict[str, Any]:
    """Return a value for JSON, which has no NaN."""
    known = value.interval is not None
    return {**vars(value), "stderr": value.stderr if known else None, "per_step": value.per_step.tolist()}


def _show_evidence(evidence: LogEvidence, values: dict[str, LogValue | None], confidence: float) -> None:
    notes = evidence.notes
    if not evidence.enough:
        note(notes[0])
    rows = [[name, *_shown(name, value)] for name, value in values.items()]
    rows.append(["as logged", f"{evidence.logged:.4f}", ""])
    show_table("Estimated reward per session", ["estimator", "value", f"{confidence:.0%} interval"], rows)
    sizes = ", ".join(f"{size:,.0f}" for size in evidence.effective_sizes)
    say(f"Effective sample size at each step, of {evidence.n_reached[0]:,} sessions: {sizes}.")
    for remark in notes if evidence.enough else notes[1:]:
        note(remark)


def _shown(name: str, value: LogValue | None) -> tuple[str, str]:
    """Return a value and its interval as text, or the reason if there is none."""
    if value is None:
        missing = "no model given" if name == METHODS[2] else "fewer than 2 sessions agree"
        return "none", missing
    interval = "withheld" if value.interval is None else "{:.4f} to {:.4f}".format(*value.interval)
    return f"{value.mean:.4f}", interval


def _assessment(assessment: Assessment, output: Path | None, *, quiet: bool) -> dict[str, Any]:
    if output is not None:
        assessment.save(output)
    if not quiet:
        say(assessment.sentence)
        for name, text in assessment.table.items():
            note(f"{name}: {text}")
        if output is not None:
            say(f"Assessment written to {output}. Next: lmab report MODEL POLICY --assessment {output}")
    return {
        "output": None if output is None else str(output),
        "value": assessment.value,
        "optimum": assessment.optimum,
        "regret": assessment.regret,
        "gain": assessment.gain,
        "logged": assessment.logged,
        "baselines": {name: [low, high] for name, low, high in assessment.baselines},
        "word": assessment.verdict.word,
        "verdict": assessment.verdict.sentence,
        "planning_gap": assessment.planning_gap,
        "confidence": assessment.confidence,
        "sentence": assessment.sentence,
        "table": assessment.table,
        "assumptions": {name: vars(found) for name, found in assessment.assumptions.items()},
    }
