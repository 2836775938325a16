"""`lmab report`: write one HTML file about a model and a policy."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from .. import reporting
from .._html import best_fixed, steps_of
from ..checks import check_writable
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.result import Estimate, estimate_of
from ..evaluation.assess import assess
from ..evaluation.assessment import Assessment
from ..model.bandit import LatentBandit
from ..planning.problem import Plan
from ..policies.belief_policies import BeliefPolicy
from ..policies.policy import Policy
from .options import (
    COLUMNS,
    Columns,
    Json,
    arms_behind,
    bandit_of,
    estimate_behind,
    load_assessment,
    load_fitted,
    load_planned,
    with_columns,
)
from .output import counting, note, say, show_json, working

_LEAST = 1.0  # seconds that are left for planning after an assessment, at least
_SEED = 0  # An assessment draws its models with this seed.


@with_columns
def report(
    model: Annotated[Path, typer.Argument(help="The model: a file from `lmab fit` or `LatentBandit.save`.")],
    policy: Annotated[Path | None, typer.Argument(help="The policy; without one, a policy is planned.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    logs: Annotated[Path | None, typer.Option(help="Held-out sessions, on which the model is checked.")] = None,
    assessed: Annotated[Path | None, typer.Option("--assess", help="The log that the model was fitted to.")] = None,
    assessment: Annotated[
        Path | None, typer.Option(help="An assessment that `lmab evaluate --assess` saved, instead of a new one.")
    ] = None,
    columns: Columns = COLUMNS,
    horizon: Annotated[
        int | None, typer.Option(help="Steps per session; by default the policy's, or 5.", min=1)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds at most for assessment and planning.", min=0.1)] = 60.0,
    as_json: Json = False,
) -> None:
    """Write an HTML report: latent types, estimated gain, first steps of the policy, and calibration.

    Example: lmab report model.lmab policy.lmab --logs heldout.parquet
    """
    check_writable(output)
    fitted, planned = load_fitted(model), None if policy is None else load_planned(policy)
    began = perf_counter()
    found = _assessment(policy, planned, assessed, assessment, columns, time_limit)
    left = time_limit if assessed is None else max(time_limit - (perf_counter() - began), _LEAST)
    given = {
        "model file": model, "policy file": policy, "held-out log": logs, "log of the fit": assessed,
        "assessment file": assessment,
    }  # fmt: skip
    write_report(
        fitted, planned, output, horizon=horizon,
        sessions=None if logs is None else columns.read(logs, arms_of=fitted), assessment=found, time_limit=left,
        files={name: path for name, path in given.items() if path is not None}, as_json=as_json,
    )  # fmt: skip


def write_report(
    fitted: LatentBandit | Estimate,
    planned: Policy | Plan | None,
    output: Path,
    *,
    horizon: int | None = None,
    sessions: Sessions | None = None,
    assessment: Assessment | None = None,
    time_limit: float,
    files: dict[str, Path],
    as_json: bool,
) -> None:
    """Write the page about a model and a policy, and print its main results; `files` are named at its end."""
    with working("measuring"):
        contents = reporting.gather(
            fitted,
            _with_bounds(planned, bandit_of(fitted), horizon),
            horizon=horizon,
            sessions=sessions,
            assessment=assessment,
            time_limit=time_limit,
            settings={name: path.name for name, path in files.items()} | _check(fitted),
        )
    reporting.write(contents, output)
    _tell(contents, output, as_json)


def _assessment(
    path: Path | None,
    planned: Policy | Plan | None,
    assessed: Path | None,
    saved: Path | None,
    columns: Columns,
    time_limit: float,
) -> Assessment | None:
    """Return the assessment to quote, from the log of the fit or from a file; None if no option asks for one."""
    if assessed is None and saved is None:
        return None
    if assessed is not None and saved is not None:
        raise InvalidArgument("--assess and --assessment must not be given together, got both")
    option = "--assess" if saved is None else "--assessment"
    if path is None or planned is None:
        raise InvalidArgument(f"{option} needs the policy to assess, as the second argument")
    if assessed is not None:
        log = columns.read(assessed, arms_of=arms_behind(planned))
        return assess_plan(*estimate_behind(path, planned), log, time_limit)
    assert saved is not None
    found = load_assessment(saved)
    if not isinstance(planned, Plan) or not found.is_about(planned):
        raise InvalidArgument(f"{saved} must be an assessment of the plan in {path}, got one of another policy")
    return found


def assess_plan(estimate: Estimate, planned: Plan, log: Sessions, time_limit: float) -> Assessment:
    """Return the assessment of a plan from the log of its fit, with a progress bar."""
    with counting("assessing") as shown:
        return assess(estimate, planned, log, rng=_SEED, time_limit=time_limit, progress=shown)


def _with_bounds(planned: Policy | Plan | None, bandit: LatentBandit, horizon: int | None) -> Policy | Plan | None:
    """Return the plan if its bounds hold (for its own model and horizon), otherwise its policy."""
    if not isinstance(planned, Plan):
        return planned
    policy = planned.policy
    source = estimate_of(planned.source) if planned.fixed else policy
    own = source.bandit if isinstance(source, BeliefPolicy | Estimate) else None
    return planned if own == bandit and horizon in (None, planned.horizon) else policy


def _check(fitted: LatentBandit | Estimate) -> dict[str, str]:
    """Return the verdict of the held-out check, for the table at the end of the report."""
    check = fitted.check if isinstance(fitted, Estimate) else None
    return {} if check is None else {"held-out check of the fit": check.verdict}


def _tell(contents: reporting.Contents, output: Path, as_json: bool) -> None:
    worth = contents.worth
    if as_json:
        values = {
            "fixed": worth.fixed,
            "policy": worth.policy.mean,
            "upper": worth.upper,
            "known": worth.known,
            "logged": contents.logged,
            "baselines": dict(worth.baselines),
        }
        verdict = {"word": contents.verdict.word, "verdict": contents.verdict.sentence}
        held = None if contents.held_out is None else {"is_log_of_fit": contents.held_out.fitted}
        show_json({"output": str(output), "horizon": contents.horizon, **values, **verdict, "held_out": held})
        return
    fixed = best_fixed(contents.repeats)
    if contents.fixed:
        say(f"This policy is {fixed}, which earns {worth.fixed:.4g} per session on the model.")
    else:
        steps = steps_of(contents.horizon, people_leave=contents.bandit.leaving is not None)
        bound = f"; no policy earns more than {worth.upper:.4g}" if contents.supports_types else ""
        say(
            f"On the model a session of {steps} earns {worth.policy.mean:.4g} under this policy and "
            f"{worth.fixed:.4g} with {fixed}{bound}."
        )
    for sentence in contents.contradicted:
        note(sentence)
    if contents.assessment is not None:
        say(contents.assessment.claims)
    if contents.logged is not None:
        say(f"As logged, a session earned {contents.logged:.4g} on average.")
    if contents.held_out is not None and contents.held_out.fitted:
        note(contents.held_out.verdict(sure=False))
    say(contents.verdict.sentence)
    say(f"Report written to {output.resolve()}")
