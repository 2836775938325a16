"""Commands that `lmab fit --then` continues with in the same process, with their default file names."""

from __future__ import annotations

from pathlib import Path

from ..checks import check_writable
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.result import Estimate

FILES = {"plan": Path("policy.lmab"), "report": Path("report.html")}  # what each command writes, in their order

_TIME_LIMIT = 60.0  # seconds, the default of `lmab plan` and `lmab report`


def parse_commands(text: str | None) -> tuple[str, ...]:
    """Return the commands that --then names; raise if one is unknown or out of order, or its file cannot be written.

    Examples:
        >>> parse_commands("plan,report")
        ('plan', 'report')
    """
    if text is None:
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if names not in (("plan",), ("plan", "report")):
        raise InvalidArgument(f"--then must be plan or plan,report; got {text}")
    for name in names:
        check_writable(FILES[name])
    return names


def run_commands(
    names: tuple[str, ...],
    estimate: Estimate,
    sessions: Sessions | Packed,
    *,
    model: Path,
    log: Path,
    horizon: int,
    as_json: bool,
) -> None:
    """Run `lmab plan` and then `lmab report --assess` on a model and its log, without reading their files again."""
    if "plan" not in names:
        return
    from .plan import make_policy, show_plan

    made = make_policy(estimate, horizon)
    made.save(FILES["plan"])
    show_plan(made, estimate, model, FILES["plan"], as_json=as_json)
    if "report" not in names:
        return
    from .report import assess_plan, write_report

    files = {"model file": model, "policy file": FILES["plan"], "log of the fit": log}
    assessment = assess_plan(estimate, made, sessions.load(), _TIME_LIMIT)
    write_report(
        estimate, made, FILES["report"],
        assessment=assessment, time_limit=_TIME_LIMIT, files=files, as_json=as_json,
    )  # fmt: skip
