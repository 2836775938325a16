"""`lmab demo`: let learners play a random bandit, and show how much more a policy earns that finds out the type."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .. import reporting
from ..checks import check_writable
from ..evaluation import evaluate
from ..learning import EDMLE, UCB, DirectMLE, Genie, Learned, Learner, learn
from ..model import LatentBandit, random_bandit
from ..planning import Certified
from ..policies import Policy, Stationary, Uniform
from ..simulation import Simulator, simulate
from .inputs import Json
from .output import console, progress, say, show_json, show_table

_CONTEXTS, _ARMS, _HORIZON, _EPISODES = 4, 20, 7, 20_000
_HELD_OUT = 5_000  # sessions that the report checks the model on
_PLANNER = Certified(gap=0.003)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: float  # expected reward of a session, exact
    sessions: int  # spent on learning
    seconds: float  # of learning and planning
    per_step: Sequence[float] = field(repr=False)


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the bandit and of the sessions.", min=0)] = 0,
    figure: Annotated[Path, typer.Option(help="Where to write the figure of rewards by step.")] = Path("lmab-demo.png"),
    report: Annotated[Path, typer.Option(help="Where to write the report on DirectMLE.")] = Path("lmab-demo.html"),
    as_json: Json = False,
) -> None:
    """Draw a latent bandit, let learners play 20,000 sessions with it, and compare the policies that they learn.

    Example: lmab demo --seed 3
    """
    check_writable(figure)
    check_writable(report)
    bandit = random_bandit(_CONTEXTS, _ARMS, rng=np.random.default_rng(seed))
    _compile()
    rows, upper, found = _compare(bandit, seed)
    drawn = _draw(rows, upper, bandit, figure)
    _report(found, bandit, seed, report)
    if as_json:
        settings = {"seed": seed, "types": _CONTEXTS, "arms": _ARMS, "horizon": _HORIZON, "sessions": _EPISODES}
        optimum = {"lower": rows[-1].value, "upper": upper}
        files = {"figure": str(figure) if drawn else None, "report": str(report)}
        show_json({**settings, "rows": [vars(row) for row in rows], "optimum": optimum, **files})
        return
    console.print(f"[bold]A latent bandit[/]: {_CONTEXTS} hidden types, {_ARMS} arms, sessions of {_HORIZON} steps.")
    cells = [
        [row.name, f"{row.value:.4f}", f"{row.value / upper:.1%}", f"{row.sessions:,}", f"{row.seconds:.1f}"]
        for row in rows
    ]
    cells.append(["optimum, between", f"{rows[-1].value:.4f}, {upper:.4f}", "100.0%", "", ""])
    header = ["policy", "reward of a session", "of the bound", "sessions", "seconds"]
    show_table(f"What the learned policies earn (seed {seed}; rewards are exact)", header, cells)
    say(f"figure: {figure.resolve()}" if drawn else "no figure: pip install 'lmab[plot]'")
    say(f"report: {report.resolve()}")


def _compile() -> None:
    """Learn on a tiny bandit first, so that the time to compile the kernels is not counted as time to learn."""
    with progress() as bar:
        bar.add_task("compiling (on the first run only)", total=None)
        rng = np.random.default_rng(0)
        environment = Simulator(random_bandit(2, _ARMS, rng=rng), horizon=_HORIZON, rng=rng)
        learn(environment, EDMLE(2), n_sessions=200, rng=rng, planner=_PLANNER)


def _compare(bandit: LatentBandit, seed: int) -> tuple[list[Row], float, Learned]:
    """The rows (the genie's is the last), a bound that no policy exceeds, and what DirectMLE learned."""
    best_arm = bandit.best_fixed_arms(_HORIZON)[0]
    rows = [_row("best fixed arm", Stationary(best_arm), bandit, 0, 0.0)]
    learners: dict[str, Learner] = {
        "UCB": UCB(),
        "ED+MLE": EDMLE(_CONTEXTS),
        "DirectMLE": DirectMLE(_CONTEXTS),
        "genie": Genie(bandit),
    }
    upper, found = np.inf, dict[str, Learned]()
    with progress() as bar:
        for name, learner in bar.track(learners.items(), description="learning"):
            rng, start = np.random.default_rng([seed, len(rows)]), time.perf_counter()
            environment = Simulator(bandit, horizon=_HORIZON, rng=rng.spawn(1)[0])
            found[name] = learned = learn(environment, learner, n_sessions=_EPISODES, rng=rng, planner=_PLANNER)
            seconds = time.perf_counter() - start
            rows.append(_row(name, learned.policy, bandit, learned.sessions_used, seconds))
            upper = learned.plan.upper if learned.plan is not None else upper  # the last plan is on the truth
    return rows, upper, found["DirectMLE"]


def _report(found: Learned, bandit: LatentBandit, seed: int, path: Path) -> None:
    """The report on the model and policy of DirectMLE, checked on sessions that it has not seen."""
    rng = np.random.default_rng([seed, _HELD_OUT])
    held_out = simulate(bandit, Uniform(_ARMS), n_sessions=_HELD_OUT, horizon=_HORIZON, rng=rng)
    settings = {"model": f"DirectMLE, {_EPISODES:,} sessions of a bandit drawn with seed {seed}"}
    title = "What DirectMLE learned in the demonstration"
    assert found.bandit is not None  # only learners that ignore types have none
    reporting.write(reporting.gather(found.bandit, found.plan, sessions=held_out, title=title, settings=settings), path)


def _row(name: str, policy: Policy, bandit: LatentBandit, sessions: int, seconds: float) -> Row:
    value = evaluate(policy, bandit, horizon=_HORIZON)
    return Row(name, value.mean, sessions, seconds, value.per_step.tolist())


def _draw(rows: Sequence[Row], upper: float, bandit: LatentBandit, path: Path) -> bool:
    """Draw the expected reward by step; it rises where a policy learns the type. False: matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    picture = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = picture.add_subplot()
    steps = np.arange(1, _HORIZON + 1)
    for row, style in zip(rows, ("k:", "C7.-", "C0s-", "C3o-", "k--"), strict=True):
        axes.plot(steps, row.per_step, style, label=f"{row.name}: {row.value:.3f}", markersize=5)
    known = bandit.known_type(_HORIZON)
    axes.axhline(known / _HORIZON, color="C2", linewidth=1, label=f"type known from the start: {known:.3f}")
    axes.set(xlabel="step of the session", ylabel="expected reward", xticks=steps)
    axes.set_title(f"{_EPISODES:,} sessions of learning; no policy earns more than {upper:.3f}", fontsize=10)
    picture.legend(title="reward of a session", loc="outside lower center", ncols=3, fontsize=8, title_fontsize=8)
    picture.savefig(path, dpi=130)
    return True
