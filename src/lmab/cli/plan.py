"""`lmab plan`: plan a session policy for a model, with bounds on the best one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._html import best_fixed, steps_of
from ..checks import check_writable
from ..errors import Status
from ..estimation.result import Estimate, estimate_of
from ..model.bandit import LatentBandit
from ..planning.certified import Certified
from ..planning.plan import plan as make_plan
from ..planning.problem import Plan
from .options import Json, bandit_of, check_of, check_summary, contradicted, load_fitted, tell_check
from .output import note, progress, say, show_json

_MODEL_ONLY = (
    "These values hold for the model only: the log contradicts an assumption of the model, so real sessions may earn "
    "less."
)


def plan(
    model: Annotated[Path, typer.Argument(help="The model: a file from `lmab fit` or `LatentBandit.save`.")],
    horizon: Annotated[int, typer.Option(help="Steps of a session.", min=1)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the policy.")] = Path("policy.lmab"),
    repeats: Annotated[
        bool | None,
        typer.Option("--repeats/--no-repeats", help="Allow sessions to play an arm twice [default: as in the log]."),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Arms to plan with, such as tea,milk [default: all that were not withdrawn before its end]."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Plan with types that held-out sessions do not support.")
    ] = False,
    gap: Annotated[
        float | None,
        typer.Option(help="Stop when the relative gap of the bounds is this small [default: 0.01].", min=0.0),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds at most; the bounds hold after any time.", min=0.1)] = 60.0,
    as_json: Json = False,
) -> None:
    """Plan a session policy for a model, with bounds on the value of the best policy.

    Example: lmab plan model.lmab --horizon 5 --no-repeats -o policy.lmab
    """
    check_writable(output)
    fitted = load_fitted(model)
    made = make_policy(fitted, horizon, repeats=repeats, arms=arms, anyway=anyway, gap=gap, time_limit=time_limit)
    made.save(output)
    show_plan(made, fitted, model, output, follows=repeats is None, named=arms is not None, as_json=as_json)


def make_policy(
    fitted: LatentBandit | Estimate,
    horizon: int,
    *,
    repeats: bool | None = None,
    arms: str | None = None,
    anyway: bool = False,
    gap: float | None = None,
    time_limit: float = 60.0,
) -> Plan:
    """Return a plan for a model, with a progress bar; the arguments are those of the command."""
    with progress() as bar:
        task = bar.add_task("planning", total=None)
        return make_plan(
            fitted, horizon=horizon, method=None if gap is None else Certified(gap=gap), time_limit=time_limit,
            repeats=repeats, arms=None if arms is None else _labels(arms, bandit_of(fitted)), anyway=anyway,
            progress=lambda now: bar.update(task, description=f"planning: {now.lower:.4f} to {now.upper:.4f}"),
        )  # fmt: skip


def show_plan(
    made: Plan,
    fitted: LatentBandit | Estimate,
    model: Path,
    output: Path,
    *,
    follows: bool = True,
    named: bool = False,
    as_json: bool = False,
) -> None:
    """Print the value and the rules of a plan; `follows` the log about repeats, or with arms that were `named`."""
    summary = _summary(made, bandit_of(fitted), output)
    if as_json:
        show_json(summary)
        return
    tell_check(made)
    fixed = best_fixed(made.repeats)
    _tell_log(made, follows=follows, named=named)
    if made.fixed:
        other = "" if bandit_of(fitted).n_types == 1 else " Use --anyway to plan with the types."
        say(f"The plan is therefore {fixed}, which earns {made.lower:.4f} per session on the model.{other}")
        if contradicted(made):
            note(_MODEL_ONLY)
        say(f"Policy written to {output}.")
        return
    planner = _without_reason(made)
    if made.status is not Status.CERTIFIED or ";" in planner:  # if certified, the bounds below are enough
        say(f"Planner: {planner}.")
    steps = f" of {steps_of(made.horizon, people_leave=True)}" if made.people_leave else ""
    check = check_of(made)
    if check is not None and not check.agrees:
        say(
            f"On this model the policy earns at least {made.lower:.4f} per session{steps}. No bound on other policies "
            "is given, because held-out sessions do not support latent types."
        )
    else:
        say(
            f"On this model the policy earns at least {made.lower:.4f} per session{steps}, and no policy earns more "
            f"than {made.upper:.4f} (proved bounds)."
        )
    say(f"{fixed[0].upper()}{fixed[1:]} earns {summary['fixed']:.4f}. The policy starts with {summary['first_arm']}.")
    say(f"Policy written to {output}. Next: lmab report {model} {output} --assess LOG, with the log of the fit")


def _labels(text: str, bandit: LatentBandit) -> list[str | int]:
    """Return the labels of the arms that --arms names."""
    names = {str(label): label for label in bandit.arm_labels or range(bandit.n_arms)}
    return [names.get(part.strip(), part.strip()) for part in text.split(",")]


def _without_reason(made: Plan) -> str:
    """Return the message of the planner without the reason why no arm repeats, which `_tell_log` prints."""
    estimate = estimate_of(made.source)
    if estimate is None or estimate.log_summary is None:
        return made.message
    return made.message.replace(f"; no arm is played twice, because {estimate.log_summary.reason}", "")


def _tell_log(made: Plan, *, follows: bool, named: bool) -> None:
    """Print the rules that follow from the log: whether arms repeat, and which arms were withdrawn."""
    estimate = estimate_of(made.source)
    summary = None if estimate is None else estimate.log_summary
    if estimate is None or summary is None:
        return
    if follows and made.repeats:
        say(f"A session may play an arm twice, because {summary.reason}; --no-repeats forbids it.")
    elif follows:
        say(f"No session plays an arm twice, because {summary.reason}; --repeats allows it.")
    withdrawn = "" if named else summary.sentence_on_withdrawn(estimate.bandit)
    if withdrawn:
        note(f"{withdrawn} The plan leaves withdrawn arms out; use --arms to name the arms to plan with.")


def _summary(made: Plan, bandit: LatentBandit, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "horizon": made.horizon,
        "repeats": made.repeats,
        "status": made.status,
        "message": made.message,
        "lower": made.lower,
        "upper": made.upper,
        "gap": made.gap,
        "fixed": made.of_kept_arms(bandit).best_fixed(made.horizon, made.repeats),
        "follows_the_check": made.fixed,
        "first_arm": bandit.label(made.policy.act_on([])),
        "check": check_summary(made),
        "contradicted": contradicted(made),
    }
