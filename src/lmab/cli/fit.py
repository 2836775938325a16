"""`lmab fit`: fit latent types to a log, and check them on held-out sessions."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._html import count, percent
from ..checks import NOT_NEGATIVE, check_writable
from ..checks import check as check_value
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import ClusterLost, InvalidArgument, InvalidData, Status
from ..estimation.assumptions import TESTS
from ..estimation.check import Check
from ..estimation.em import EM
from ..estimation.families import FAMILIES
from ..estimation.fit import fit as find_types
from ..estimation.fit import largest_first
from ..estimation.leaving import FORMS, dependences
from ..estimation.passes import require_backend
from ..estimation.result import Curve, Estimate, Estimator, Progress, Selection
from ..estimation.traits.surface import Factors
from ..estimation.traits.traits import Traits
from ..evaluation import diagnostics
from ..evaluation.assess import assess
from ..evaluation.diagnostics import Identifiability
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.rewards import MAX_VALUES
from ..parallel import connected
from ..planning.plan import plan
from .options import COLUMNS, INTERRUPTED, PLACE, ClusterAddress, Columns, Json, Seed, n_types, with_columns
from .output import collected_warnings, error, interruptible, note, progress, say, show_json, show_table, working
from .then import parse_commands, run_commands

_NO_SHARE = 5e-4  # Share of the sessions below which a type is not shown: it would read as 0.0%.
_FIT, _OUTPUT = "Fit", "Checks and output"  # Groups of options in the help.
Family = StrEnum("Family", {name: name for name in FAMILIES})  # type: ignore[misc]
Form = StrEnum("Form", {name: name for name in FORMS})  # type: ignore[misc]
_AUTO = Form("auto")


class Device(StrEnum):
    """Device for passes over the log."""

    cpu = "cpu"
    gpu = "gpu"


class Selected(StrEnum):
    """Whether types explain which arms were shown as well."""

    auto = "auto"
    true = "true"
    false = "false"


@dataclass(frozen=True)
class SampleSize:
    """How many more sessions are needed for a stated regret."""

    regret: float
    bound: float  # on the regret now
    sessions: int  # more of them


@dataclass(frozen=True)
class ExcludedArms:
    """The arms that --min-plays and --top-arms leave out."""

    labels: tuple[str | int, ...] = ()
    steps: float = 0.0  # share of the steps that played them
    sessions: int = 0  # that played nothing else

    @property
    def _names(self) -> str:
        shown = ", ".join(map(str, self.labels[:5]))
        return shown + (f" and {len(self.labels) - 5:,} more" if len(self.labels) > 5 else "")

    def sentence(self, estimate: Estimate) -> str:
        """Return a sentence on the excluded arms, and on their use in the service."""
        law = estimate.law_of_arms
        values = estimate.bandit.rewards.values
        known = "the service explores them"
        if law is not None:
            mean = float(law) if np.ndim(law) == 0 else float(law @ values)
            known = f"the service explores them with the prior mean reward of {mean:.3g} for every type"
        gone = f", and {count(self.sessions, 'session')} that played nothing else" if self.sessions else ""
        return (
            f"Left out: {count(len(self.labels), 'arm')} with {self.steps:.1%} of the steps{gone} ({self._names}); "
            f"{known}, and `lmab refit` fits them once they have been played."
        )


@with_columns
def fit(
    log: Annotated[
        list[Path], typer.Argument(help="The log, one row per step: Parquet, CSV, JSON lines; files or folders.")
    ],
    columns: Columns = COLUMNS,
    types: Annotated[
        str, typer.Option(help="Number of latent types; auto selects it by held-out likelihood.")
    ] = "auto",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model.")] = Path("model.lmab"),
    rewards: Annotated[
        Family | None,
        typer.Option(
            help="Distribution of rewards; binned for money or time [default: categorical if few].",
            rich_help_panel=_FIT,
        ),
    ] = None,
    traits: Annotated[
        bool,
        typer.Option("--traits", help="Fit continuous latent factors instead of types.", rich_help_panel=_FIT),
    ] = False,
    factors: Annotated[
        int, typer.Option(help="Maximum number of factors with --traits.", min=1, rich_help_panel=_FIT)
    ] = 8,
    prior: Annotated[
        str,
        typer.Option(
            help="learned: prior of the arms estimated from all arms; or pseudo-counts per type and arm.",
            rich_help_panel=_FIT,
        ),
    ] = "learned",
    min_plays: Annotated[
        int, typer.Option(help="Leave out arms that were played less often.", min=1, rich_help_panel=_FIT)
    ] = 1,
    top_arms: Annotated[
        int | None, typer.Option(help="Keep only the arms that were played most.", min=1, rich_help_panel=_FIT)
    ] = None,
    restarts: Annotated[int, typer.Option(help="Number of random starts.", min=1, rich_help_panel=_FIT)] = 20,
    numeric: Annotated[
        list[str] | None,
        typer.Option(help="Feature whose numbers are not cut into bins; repeatable.", rich_help_panel=_FIT),
    ] = None,
    leaving: Annotated[
        Form,
        typer.Option(
            help="Attrition, if --ended or --limit is given: by arm and reward (shown), also by type, or none.",
            rich_help_panel=_FIT,
        ),
    ] = _AUTO,
    selected: Annotated[
        Selected,
        typer.Option(
            help="Types also explain which arms were shown; auto: if that improves predicted rewards.",
            rich_help_panel=_FIT,
        ),
    ] = Selected.auto,
    check: Annotated[
        bool, typer.Option(help="Check predictions on held-out sessions.", rich_help_panel=_OUTPUT)
    ] = True,
    regret: Annotated[
        float | None, typer.Option(help="Estimate how many more sessions this regret needs.", rich_help_panel=_OUTPUT)
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            help="Steps of a session, for --regret and --then [default: the median of the log].",
            min=1,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(help="Continue in this process: plan, or plan,report with the log.", rich_help_panel=_OUTPUT),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the statistics behind the verdict.", rich_help_panel=_OUTPUT)
    ] = False,
    device: Annotated[
        Device, typer.Option(help="Device for passes over the log; gpu needs the extra [gpu].", rich_help_panel=PLACE)
    ] = Device.cpu,
    cluster: ClusterAddress = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit latent types to a log of sessions, and check them on held-out sessions.

    A log larger than memory is packed first, with `lmab pack`; give its folder here. With --then plan,report the
    command continues with policy.lmab and report.html, like `lmab plan` and `lmab report --assess`, which saves the
    start of two programs.

    Example: lmab fit shop.csv --session session --arm item --reward click
    """
    check_writable(output)
    following = parse_commands(then)
    backend = _backend(device, cluster)
    method = _method(traits, types, prior, restarts, factors)
    number, rng = None if method.capabilities.chooses_n_types else n_types(types), np.random.default_rng(seed)
    with working("reading the log"):
        sessions, rare = _read_log(log, columns, min_plays, top_arms)
    _require_types(sessions, number, rewards, columns)
    _require_packed(sessions, cluster)
    with collected_warnings() as remarks:
        decides = check and number == "auto"
        options = FitOptions(number, rewards, str(leaving), _SELECTED[selected], tuple(numeric or ()), decides)
        estimate = _estimate(sessions, options, method, rng, backend, cluster, output)
        estimate = replace(largest_first(estimate), left_out=rare.labels, columns=columns.for_model())
        estimate.save(output)  # before the checks, so that the fit is kept if they fail
        if estimate.status is Status.INTERRUPTED:
            error(f"stopped: the best model so far is written to {output}, without the checks")
            raise typer.Exit(INTERRUPTED)
        if check:
            with working("checking on held-out sessions"):
                estimate = _checked(estimate, rng)
            estimate.save(output)
        with working("checking identifiability"):
            known = diagnostics.identify(estimate, rng=rng)
        sample_size = None if regret is None else _sample_size(estimate, regret, horizon, rng)
    steps = horizon or _median_length(sessions)
    if as_json:
        show_json(_result_for_json(estimate, known, sample_size, remarks, output))
    else:
        if rare.labels:
            say(rare.sentence(estimate))
        _print_results(estimate, known, sample_size, remarks, verbose=verbose)
        following_command = "" if following else f" Next: lmab plan {output} --horizon {steps} -o policy.lmab"
        say(f"Model written to {output}.{following_command}")
    run_commands(following, estimate, sessions, model=output, log=log[0], horizon=steps, as_json=as_json)


@dataclass(frozen=True)
class FitOptions:
    """Arguments of `lmab.fit` that the command line sets."""

    n_types: int | str | None
    rewards: str | None  # family of the reward distribution
    leaving: str  # form of attrition
    selected: bool | str  # whether the types explain selective exposure
    numeric: tuple[str, ...]  # columns whose numbers are not cut into bins
    check: bool  # whether the held-out check decides the number of types


_SELECTED: dict[Selected, bool | str] = {Selected.auto: "auto", Selected.true: True, Selected.false: False}


def _read_log(
    path: list[Path], columns: Columns, min_plays: int, top_arms: int | None
) -> tuple[Sessions | Packed, ExcludedArms]:
    """Read the log, and exclude its rare arms before the steps beyond `--at-most`; return the excluded arms too."""
    if min_plays == 1 and top_arms is None:
        return columns.open(path), ExcludedArms()
    log = replace(columns, at_most=None).open(path)
    if isinstance(log, Packed):
        raise InvalidArgument("--min-plays and --top-arms must be given with a log that is not packed")
    kept = log.frequent_arms(min_plays, top_arms)
    if len(kept) == 0:
        raise InvalidArgument(
            f"--min-plays must leave some arm, got {min_plays}: the most played one has {log.plays.max():,} plays"
        )
    few, names = log if len(kept) == log.n_arms else log.only_arms(kept), log.arm_labels or range(log.n_arms)
    left_out = tuple(names[arm] for arm in np.setdiff1d(np.arange(log.n_arms), kept).tolist())
    rare = ExcludedArms(left_out, 1 - few.n_steps / log.n_steps, len(log) - len(few)) if left_out else ExcludedArms()
    return few if columns.at_most is None else few.first_steps(columns.at_most), rare


def _method(traits: bool, types: str, prior: str, restarts: int, factors: int) -> Estimator:
    """Return the estimator for the options: `Traits` or `EM`."""
    if not traits:
        return EM(prior=_prior(prior), restarts=restarts)
    if types != "auto":
        raise typer.BadParameter(f"must not be given with --traits, got {types}", param_hint="--types")
    if prior != "learned":
        raise typer.BadParameter(f"must be learned with --traits, got {prior}", param_hint="--prior")
    return Traits(n_factors=factors)


def _prior(text: str) -> float | str:
    """Parse the option --prior."""
    try:
        return text if text == "learned" else float(check_value("--prior", float(text), NOT_NEGATIVE))
    except ValueError:
        raise typer.BadParameter(
            f"must be learned or a number of at least 0, got {text!r}", param_hint="--prior"
        ) from None


def _require_types(
    sessions: Sessions | Packed, number: int | str | None, rewards: str | None, columns: Columns
) -> None:
    if number != 1 and sessions.horizon == 1:
        raise InvalidData(
            f"column {columns.session or 'session'!r} gives every session one step, but types can be estimated only "
            f"from sessions of two or more steps; name the column of the session with --session, or use --types 1"
        )
    if isinstance(sessions, Packed):
        many = sessions.values is None or len(sessions.values) > MAX_VALUES
    else:
        many = len(np.unique(sessions.rewards[:100_000])) > MAX_VALUES
    if rewards is None and many:
        raise InvalidData(
            f"column {columns.reward!r} holds more than {MAX_VALUES} distinct rewards: use --rewards binned for "
            f"amounts such as money or seconds, --rewards counts for items or pages, --rewards gaussian for "
            f"measurements around a mean, or --rewards categorical for categories"
        )


def _backend(device: Device, cluster: str | None) -> str | None:
    """Return the backend of `fit`; raise before the log is read, which may take minutes, if it is not available."""
    if device is Device.cpu:
        return None
    if cluster is not None:
        raise InvalidArgument(f"--device must be cpu with --cluster, got {device.value}")
    try:
        require_backend(device.value)
    except InvalidArgument as refused:
        raise InvalidArgument(str(refused).replace("backend must be None", "--device must be cpu", 1)) from None
    return device.value


def _require_packed(sessions: Sessions | Packed, cluster: str | None) -> None:
    if cluster is not None and not isinstance(sessions, Packed):
        raise InvalidArgument("--cluster must be given with a packed log, whose files the workers can see: `lmab pack`")


def _estimate(
    sessions: Sessions | Packed, options: FitOptions, method: Estimator,
    rng: np.random.Generator, backend: str | None, cluster: str | None, output: Path,
) -> Estimate:  # fmt: skip
    """Fit on this machine or on a cluster; if the cluster is lost, save the best model so far."""
    try:
        with nullcontext(backend) if cluster is None else connected(cluster) as place:
            return _fitted(sessions, options, method, rng, place)
    except ClusterLost as lost:
        if lost.estimate is None:
            raise
        lost.estimate.save(output)
        raise ClusterLost(f"{lost}; the best model so far is written to {output}, without the checks") from None


def _fitted(
    sessions: Sessions | Packed, options: FitOptions, method: Estimator,
    rng: np.random.Generator, backend: Any,
) -> Estimate:  # fmt: skip
    with progress() as bar, interruptible() as asked_to_stop:
        task = bar.add_task("fitting", total=None)

        def show(news: Progress) -> bool:
            description = f"fitting: {news.stage}, log-likelihood {news.log_likelihood:.1f}"
            bar.update(task, description=description, completed=news.iteration, total=news.max_iterations)
            return asked_to_stop()

        return find_types(
            sessions, method=method, rng=rng, progress=show, backend=backend, **vars(options),
        )  # fmt: skip


def _checked(estimate: Estimate, rng: np.random.Generator) -> Estimate:
    """Return the estimate with a held-out check; if the fit made one, add the comparison with traits."""
    asked = diagnostics.check if estimate.check is None else diagnostics.beside_traits
    return replace(estimate, check=asked(estimate, rng=rng))


def _sample_size(estimate: Estimate, regret: float, horizon: int | None, rng: np.random.Generator) -> SampleSize:
    """Sessions for a regret: the assessment's bound falls at least with the root of the number of sessions."""
    if regret <= 0:
        raise InvalidArgument(f"--regret must be above 0, got {regret}")
    made = plan(estimate, horizon=horizon or _median_length(estimate.sessions))
    assessment = assess(estimate, made, estimate.sessions, rng=rng)
    if assessment.regret is None:
        raise InvalidArgument(
            f"--regret needs a log that supports a claim, got one that does not: {assessment.sentence}"
        )
    bound = assessment.regret[1]
    return SampleSize(regret, bound, int(np.ceil(len(estimate.sessions) * max((bound / regret) ** 2 - 1, 0))))


def _median_length(sessions: Sessions | Packed) -> int:
    return int(sessions.median_length)


def _result_for_json(
    estimate: Estimate, known: Identifiability, sample_size: SampleSize | None, remarks: list[str], output: Path
) -> dict[str, Any]:
    sessions, curve, summary = estimate.sessions, estimate.curve, estimate.log_summary
    names = estimate.bandit.arm_labels or range(estimate.bandit.n_arms)
    sizes = {"sessions": len(sessions), "steps": sessions.n_steps, "arms": sessions.n_arms}
    return {
        "output": str(output),
        **sizes,
        "left_out": list(estimate.left_out),
        "withdrawn": [] if summary is None else [names[arm] for arm in summary.withdrawn],
        "types": estimate.n_types,
        "known_before": _features_for_json(estimate),
        "factors": None if estimate.factors is None else _factors_for_json(estimate.factors, estimate.bandit),
        "weights": estimate.bandit.weights.tolist(),
        "log_likelihood": estimate.log_likelihood,
        "bic": estimate.bic,
        "converged": estimate.converged,
        "message": estimate.message,
        "selection": None if estimate.selection is None else _exposure_for_json(estimate.selection),
        "components": {name: {"summary": one.summary, "table": one.table} for name, one in estimate.components.items()},
        "candidates": [vars(one) for one in estimate.candidates],
        "heldout_by_types": None if curve is None else dict(zip(curve.n_types, curve.log_likelihood, strict=True)),
        "check": None if estimate.check is None else _check_for_json(estimate.check),
        "identifiability": {**vars(known), "sentences": known.sentences},
        "sessions_wanted": None if sample_size is None else vars(sample_size),
        "notes": remarks,
    }


def _features_for_json(estimate: Estimate) -> dict[str, Any] | None:
    """Return the weights of the types by feature value, and the persistence of types, for JSON."""
    prior = estimate.type_prior
    if prior is None:
        return None
    shares = {
        column: {str(value): weights.tolist() for value, weights in values.items()}
        for column, values in prior.by_values().items()
    }
    return {"weights": shares, "keep": prior.keep, "gain": estimate.known}


def _feature_rows(estimate: Estimate) -> list[list[str]]:
    """Return a row for the frequent values of each column: the share of each type, the largest type first."""
    prior = estimate.type_prior
    if prior is None:
        return []
    order = estimate.bandit.types_by_weight
    return [
        [
            column.name,
            value,
            ", ".join(f"{rank + 1}: {percent(float(weights[m]))}" for rank, m in enumerate(order)),
        ]
        for column in prior.shown()
        for value, weights in column.rows
    ]


def _attrition(estimate: Estimate) -> str:
    """Return the model of attrition, and the variables on which tests show that it depends."""
    by_type = "type, " if estimate.bandit.has_informative_attrition else ""
    found = " and the ".join(dependences(estimate.sessions))
    tests = f"in the log it depends on the {found}" if found else "no dependence on arm or reward was demonstrated"
    return f"Attrition: the probability of leaving is modelled by {by_type}arm and reward; {tests}."


def _unused_columns(estimate: Estimate) -> list[str]:
    """Return a sentence for the features, and one for the persons, of the log that the fit does not use."""
    prior, sessions = estimate.type_prior, estimate.sessions
    given = {
        "The features are": (sessions.features, prior is not None and bool(prior.columns)),
        "The persons are": (sessions.persons, prior is not None and prior.keep is not None),
    }
    why = "not used, because held-out log-likelihood does not improve (--verbose prints the numbers)."
    return [f"{name} {why}" for name, (column, used) in given.items() if column is not None and not used]


def _omitted_values(estimate: Estimate) -> list[str]:
    """Return a sentence for each column that has more values than the table."""
    prior = estimate.type_prior
    return [] if prior is None else [column.remark for column in prior.shown() if column.remark]


def _check_for_json(checked: Check) -> dict[str, Any]:
    calibration = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(checked.calibration).items()
    }
    return {
        "verdict": checked.verdict,
        "sessions": checked.n_sessions,
        "log_likelihood": checked.log_likelihood,
        "over_one_type": vars(checked.over_one_type),
        "over_independent_arms": vars(checked.over_independent_arms),
        "calibration": calibration,
        "over_generosity": None if checked.over_generosity is None else vars(checked.over_generosity),
        "over_traits": None if checked.over_traits is None else vars(checked.over_traits),
        "masked_replay": None if checked.replay is None else vars(checked.replay),
    }


def _exposure_for_json(found: Selection) -> dict[str, Any]:
    """Return the model of selective exposure for JSON."""
    return {
        "kind": found.kind,
        "favour": found.favour.tolist(),
        "likelihood_ratio": found.ratio,
        "log_evidence": found.evidence,
        "gain": vars(found.gain),
    }


def _factors_for_json(factors: Factors, bandit: LatentBandit) -> dict[str, Any]:
    """Return the factors for JSON."""
    return {
        "offered": factors.n_factors,
        "alive": factors.n_alive,
        "sizes": factors.size.tolist(),
        "ends": [[[bandit.label(arm) for arm in end] for end in factors.ends(i)] for i in range(factors.n_alive)],
        "change_with_twice_the_points": factors.doubled,
        "tell_arms_apart": factors.tell_arms_apart,
        "arms_ranked_by_mean_reward": factors.by_mean,
    }


@dataclass(frozen=True)
class _Results:
    """The results of a fit that the command prints."""

    estimate: Estimate
    identifiability: Identifiability
    sample_size: SampleSize | None
    warnings: list[str]
    verbose: bool


def _print_results(
    estimate: Estimate, known: Identifiability, sample_size: SampleSize | None, warnings: list[str], *, verbose: bool
) -> None:
    """Print the sections of a result, the verdict first; with `verbose` also the statistics behind them."""
    results = _Results(estimate, known, sample_size, warnings, verbose)
    for section in _SECTIONS:
        section(results)


def _print_verdict(results: _Results) -> None:
    """Print the verdict of the held-out check, and the assumptions that the log contradicts."""
    if results.estimate.check is not None:
        say(results.estimate.check.verdict)
    for assumption in results.estimate.assumptions.values():
        if assumption.fires:
            note(assumption.sentence)


def _print_sizes(results: _Results) -> None:
    """Print the size of the log, the status of the fit, withdrawn arms, and how rewards were cut."""
    estimate, sessions = results.estimate, results.estimate.sessions
    sizes = (count(len(sessions), "session"), count(sessions.n_steps, "step"), count(sessions.n_arms, "arm"))
    say(f"Log: {', '.join(sizes)}. Fit: {estimate.status}.")
    withdrawn = "" if estimate.log_summary is None else estimate.log_summary.sentence_on_withdrawn(estimate.bandit)
    if withdrawn:
        note(f"{withdrawn} `lmab plan` leaves withdrawn arms out unless --arms names them.")
    if estimate.bins is not None:
        say(_bins(estimate.bins))


def _print_selection(results: _Results) -> None:
    """Print the reason for the number of types."""
    estimate = results.estimate
    if estimate.curve is not None:
        say(f"{_number_of_types(estimate, estimate.curve, verbose=results.verbose)}.")


def _print_model(results: _Results) -> None:
    """Print the table of the types, or of the factors of a traits model."""
    estimate = results.estimate
    if estimate.factors is not None:
        say(f"Continuous latent factors, {count(estimate.n_types, 'integration point')}: {estimate.factors}.")
        head = ["", "size", "one end (loading)", "other end (loading)"]
        show_table("Factors", head, _factor_rows(estimate.factors, estimate.bandit))
        return
    people_leave, rows = estimate.bandit.leaving is not None, _type_rows(estimate.bandit)
    leave = ["leaving per step"] if people_leave else []
    show_table("Latent types", ["", "share of sessions", *leave, "mean reward", "best arms (mean reward)"], rows)
    if people_leave:
        say(_attrition(estimate))
    if len(rows) < estimate.n_types:
        say(f"Not shown: {count(estimate.n_types - len(rows), 'type')} with a share below {_NO_SHARE:.2%}.")


def _print_features(results: _Results) -> None:
    """Print the shares of types by feature value, and the columns that are not used."""
    estimate = results.estimate
    for sentence in _unused_columns(estimate):
        say(sentence)
    rows = _feature_rows(estimate)
    if rows:
        show_table("Shares of the types by feature", ["feature", "value", "types"], rows)
        for sentence in _omitted_values(estimate):
            say(sentence)


def _print_components(results: _Results) -> None:
    """Print the summary of each component, of which the tables above say nothing; if verbose, all candidates."""
    for name, component in results.estimate.components.items():
        if name not in _IN_TABLES:
            say(component.summary)
    candidates = results.estimate.candidates
    if results.verbose and candidates:
        rows = [
            [one.name, f"{one.gain:+.4f}", f"{one.stderr:.4f}", "yes" if one.selected else ""] for one in candidates
        ]
        show_table("Candidates on held-out sessions", ["", "gain per session", "standard error", "selected"], rows)


def _print_sample_size(results: _Results) -> None:
    """Print how many more sessions the requested regret needs."""
    size = results.sample_size
    if size is not None:
        more = f"at most about {size.sessions:,} more sessions of this kind"
        say(f"Regret bound with this log: {size.bound:.4f}. A bound of {size.regret:g} needs {more}.")


def _print_warnings(results: _Results) -> None:
    """Print the warnings of the library."""
    for text in results.warnings:
        note(text)


def _print_statistics(results: _Results) -> None:
    """Print the statistics behind the verdict if `verbose`, otherwise the other comparisons of the check."""
    if results.verbose:
        _show_details(results.estimate, results.identifiability)
    elif results.estimate.check is not None:
        for sentence in results.estimate.check.sentences:
            say(sentence)


_IN_TABLES = ("features", "leaving", "traits")  # components that sections of their own describe
_SECTIONS = (
    _print_verdict, _print_sizes, _print_selection, _print_model, _print_features, _print_components,
    _print_sample_size, _print_warnings, _print_statistics,
)  # fmt: skip


def _number_of_types(estimate: Estimate, curve: Curve, *, verbose: bool) -> str:
    """Return the reason for the number of types, if `verbose` with the log-likelihood of each number."""
    said = curve.reason_beside(estimate.check)
    if not verbose:
        return said
    return str(curve) if said == curve.reason else f"{said} ({curve})"


def _show_details(estimate: Estimate, known: Identifiability) -> None:
    """Print the statistics behind the verdict, the tests of assumptions, and the identifiability of the model."""
    say(f"{estimate.message[:1].upper()}{estimate.message[1:]}.")
    if estimate.check is not None:
        rows = [[name, text] for name, text in estimate.check.details.items()]
        show_table("Held-out log-likelihood per session", ["", "gain"], rows)
        for sentence in estimate.check.sentences:
            say(sentence)
    for name, found in estimate.assumptions.items():
        say(f"Test of {TESTS[name]} (z = {found.score:.1f}): {found.sentence}")
    for sentence in known.sentences:
        say(sentence)


def _bins(bins: Bins) -> str:
    """Return a sentence on the bins of continuous rewards."""
    values = ", ".join(f"{value:.4g}" for value in bins.values)
    return f"Rewards are cut into {count(len(bins.values), 'value')}, the means of their bins: {values}."


def _factor_rows(factors: Factors, bandit: LatentBandit) -> list[list[str]]:
    """Return a row for each active factor, with the arms at its two ends."""
    rows = []
    for i in range(factors.n_alive):
        ends = [", ".join(f"{bandit.label(a)} ({factors.loadings[a, i]:+.2f})" for a in end) for end in factors.ends(i)]
        rows.append([f"factor {i + 1}", f"{factors.size[i]:.2f}", *ends])
    return rows


def _type_rows(bandit: LatentBandit) -> list[list[str]]:
    """Return a row for each type with a share of sessions, the most frequent first."""
    rows: list[list[str]] = []
    for m in bandit.types_by_weight:
        if rows and bandit.weights[m] < _NO_SHARE:
            break
        best = ", ".join(f"{bandit.label(a)} ({bandit.means[m, a]:.2f})" for a in np.argsort(-bandit.means[m])[:3])
        leave = [] if bandit.leaving is None else [f"{1 - bandit.stays[m].mean():.1%}"]
        share, mean = f"{bandit.weights[m]:.1%}", f"{bandit.means[m].mean():.3f}"
        rows.append([f"type {len(rows) + 1}", share, *leave, mean, best])
    return rows
