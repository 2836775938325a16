"""`lmab plan`: make a session policy with bounds from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._html import steps_of
from ..checks import check_writable
from ..errors import Status
from ..model.bandit import LatentBandit
from ..planning.certified import Certified
from ..planning.plan import plan as make_plan
from ..planning.problem import Plan
from .options import Json, bandit_of, check_summary, load_fitted, tell_check
from .output import progress, say, show_json


def plan(
    model: Annotated[Path, typer.Argument(help="The model: a file from `lmab fit` or `LatentBandit.save`.")],
    horizon: Annotated[int, typer.Option(help="Steps of a session.", min=1)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the policy.")] = Path("policy.lmab"),
    repeats: Annotated[bool, typer.Option(help="May a session play an arm twice?")] = True,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Plan with types that held-out sessions do not support.")
    ] = False,
    gap: Annotated[
        float | None,
        typer.Option(help="Stop when this relative gap to the optimum is proved [default: 0.01].", min=0.0),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds at most; the bounds hold after any time.", min=0.1)] = 60.0,
    as_json: Json = False,
) -> None:
    """Plan sessions: make a policy, and prove how close it is to the best one.

    Example: lmab plan model.lmab --horizon 5 --no-repeats -o policy.lmab
    """
    check_writable(output)
    fitted, method = load_fitted(model), None if gap is None else Certified(gap=gap)
    with progress() as bar:
        task = bar.add_task("planning", total=None)
        made = make_plan(
            fitted, horizon=horizon, method=method, time_limit=time_limit, repeats=repeats, anyway=anyway,
            progress=lambda now: bar.update(task, description=f"planning: {now.lower:.4f} to {now.upper:.4f}"),
        )  # fmt: skip
    made.save(output)
    summary = _summary(made, bandit_of(fitted), output)
    if as_json:
        show_json(summary)
        return
    tell_check(made)
    if made.fixed:
        other = "" if bandit_of(fitted).n_types == 1 else " Say --anyway to plan with the types."
        say(f"So the plan is the best fixed choice, which earns {made.lower:.4f}.{other}")
        say(f"Policy written to {output}.")
        return
    if made.status is not Status.CERTIFIED or ";" in made.message:  # else the bounds below say it all
        say(made.message)
    steps = f" of {steps_of(horizon, people_leave=True)}" if made.people_leave else ""
    say(
        f"On this model a session{steps} is proved to earn at least {made.lower:.4f}; "
        f"no policy earns more than {made.upper:.4f}."
    )
    say(f"A fixed choice earns {summary['fixed']:.4f}. The first arm is {summary['first_arm']}.")
    say(f"Policy written to {output}. Next: lmab report {model} {output} --certify LOG, with the log of the fit")


def _summary(made: Plan, bandit: LatentBandit, output: Path) -> dict[str, Any]:
    return {
        "output": str(output),
        "horizon": made.horizon,
        "status": made.status,
        "message": made.message,
        "lower": made.lower,
        "upper": made.upper,
        "gap": made.gap,
        "fixed": bandit.best_fixed(made.horizon, made.repeats),
        "follows_the_check": made.fixed,
        "first_arm": bandit.label(made.policy.act_on([])),
        "check": check_summary(made),
    }
