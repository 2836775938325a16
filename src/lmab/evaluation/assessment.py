"""Assessment and Verdict: confidence intervals from a log, and whether a gain was demonstrated."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from .. import _registry, files
from .._html import best_fixed, card, count, steps_of
from .._shapes import Array, Float
from ..errors import InvalidFile, Status
from ..estimation.assumptions import STEP, TESTS, Assumption, Assumptions
from ..estimation.check import Calibration, Check, Gain, Replay
from ..planning.problem import Plan
from .calibration import CALIBRATION, LEAST_MODELS, Interval
from .messages import CALENDAR, NOT_TESTABLE, RESIDUALS, WITHIN, Finding, findings

CLAIMS = ("value", "optimum", "regret", "gain")
THIN = 25  # plays of an arm per type below which data about it are sparse
THIN_SHARE = 0.1  # share of the plan's steps on arms with sparse data from which the assessment reports it
WEAK = 3.0  # information about the types, in nats per parameter, below which they are weakly identified
LIVE_WIDTH = 0.05  # half width, as a share of the value, of the interval from a live test
PAYS, MAY_PAY, NO_GAIN = "pays", "may pay", "no gain demonstrated"
_ROUNDING = 1e-9  # a gain below this is none
_NOTHING = 1e-4  # nats per session that count as no gain
_NOT_CHECKED = "The latent types were not tested on held-out sessions; `lmab fit` does so by default."
_TOO_SHORT = "The time limit left {0} drawn models, and an interval requires 20; give a longer one (--time-limit)."
_CONTRADICTED = "The log contradicts an assumption."
_DECIMALS = 4  # at most
_BETTER_PLAN: dict[str, str] = {
    Status.CERTIFIED: "; plan again with a smaller gap (--gap)",
    Status.TIME_LIMIT: "; plan again with a longer time limit (--time-limit)",
}  # by status of the plan; of other plans no option of the planner is known to help
_NEXT_TO_NOTHING = 0.02  # share of the longest interval below which a regret needs no further decimals


@dataclass(frozen=True)
class HeldOutTests:
    """Residual tests on held-out sessions."""

    step: Assumption
    repeats: Assumption
    previous: Assumption
    pairs: Assumption
    calendar: Assumption
    silent: Assumption

    @classmethod
    def untested(cls, reason: str) -> HeldOutTests:
        """Return tests that were not run, with the reason as their sentence."""
        return cls(*[Assumption(False, 0.0, reason)] * len(RESIDUALS))

    @property
    def by_name(self) -> dict[str, Assumption]:
        """The tests by name; *step* is among the assumptions of the fit."""
        return {name: getattr(self, name) for name in RESIDUALS if name != STEP}


@dataclass(frozen=True, eq=False)
class Ends:
    """How the sessions of a log end, and the value of a policy for sessions that end in this way."""

    horizon: int
    reached: float  # share of the sessions that reach the horizon
    rewards: Float[Array, "Z"]  # values after which leaving is counted
    leaving: Float[Array, "Z"]  # probability of leaving after each
    value: float | None  # of the policy per *started* session, on the estimate; None: not computed

    @property
    def table(self) -> dict[str, str]:
        """The rows of an assessment."""
        pairs = zip(self.rewards, self.leaving, strict=True)
        chances = ", ".join(f"{chance:.0%} after {reward:g}" for reward, chance in pairs)
        reached = f"{self.reached:.0%} in the log; probability of leaving: {chances}"
        rows = {f"sessions that reach step {self.horizon}": reached}
        if self.value is not None:
            rows["value per started session"] = f"about {self.value:.3g}, if sessions end as in the log"
        return rows


@dataclass(frozen=True, eq=False)
class Assessment:
    """Confidence intervals for the value of a policy, its gain over the best fixed arm or list, and the optimum.

    Each of the four intervals contains the true value with probability `confidence` on average, provided that the true
    number of types is at most that of the estimate. A claim that the log contradicts is None:
    see `assumptions`.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=rng)
        >>> estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=rng)
        >>> assessment = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=5), log, rng=rng)
        >>> assessment.value[0] <= 3.35771 <= assessment.value[1]
        True
    """

    value: Interval | None  # expected reward of a session under the policy
    optimum: Interval | None  # value of the best policy
    regret: Interval | None  # optimum less value: (0.0, the bound)
    gain: Interval | None  # value less that of the best fixed arm, or without repeats of the best fixed list of arms
    planning_gap: float  # share of the bound on the regret that better planning could remove; the rest requires data
    confidence: float
    horizon: int
    n_types: int
    n_sessions: int
    n_steps: int
    n_parameters: int
    draws: Float[Array, "B 4"] = field(repr=False)
    # on model b: the optimum, the policy; on the estimate: b's plan; on model b: the best fixed choice
    bounds: Interval  # bounds of the plan on the estimate, which identify the plan
    tested: Assumptions  # tests of the assumptions of the fit; see `assumptions`
    held_out: HeldOutTests  # residual tests on held-out sessions; see `assumptions`
    planned: str  # status of the plan, from which advice on planning follows
    repeats: bool  # whether a session may repeat an arm
    logged: float  # mean reward of a session of this length as logged
    corrected: bool = False  # whether value and gain are corrected for effects within sessions
    check: Check | None = None  # held-out check of the fit; None: not computed
    n_factors: int | None = None  # active factors of a traits model; None: types
    ends: Ends | None = None  # how sessions end; None: all have the same length
    people_leave: bool = False  # whether the model includes attrition, so that the claims are per started session
    baselines: tuple[tuple[str, float, float], ...] = ()  # name, and interval of the policy's gain over it
    left_out: int = 0  # models that were drawn and not planned for, because of the time limit
    found: tuple[tuple[str, tuple[float, ...]], ...] = ()  # codes of findings with their data; see `findings`

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The circumstances that weaken an interval, or that a reader must know."""
        return findings(self.found)

    @property
    def best_fixed(self) -> str:
        """The baseline of `gain` in words."""
        return best_fixed(self.repeats)

    @property
    def sentence(self) -> str:
        """The assessment in three sentences for somebody who has to decide; `table` has the details."""
        return " ".join(part for part in (self.claims, self.verdict.short, self._not_beaten) if part)

    @property
    def claims(self) -> str:
        """The claims about value, gain and optimum, without the verdict."""
        return " ".join(part for part in (self._earns, self._best) if part)

    @property
    def assumptions(self) -> dict[str, Assumption]:
        """The assumptions of the claims, tested on the log: "exposure", "leaving", "drift", "step", "repeats",
        "previous", "pairs", "calendar" and "silent".
        """
        return self.tested.by_name | self.held_out.by_name

    @property
    def _fired(self) -> list[Assumption]:
        """The assumptions that the log contradicts, first the ones for which nothing was corrected."""
        corrects = (*WITHIN, CALENDAR) if self.corrected else (CALENDAR,)
        fired = [(name in corrects, found) for name, found in self.assumptions.items() if found.fires]
        return [found for _, found in sorted(fired, key=lambda pair: pair[0])]

    @property
    def _stopped(self) -> bool:
        """Whether the time limit left too few drawn models for any claim."""
        return self.left_out > 0 and len(self.draws) < LEAST_MODELS

    @property
    def _earns(self) -> str:
        if self.value is None:
            fired = [found.sentence for found in self._fired]
            why = _TOO_SHORT.format(len(self.draws)) if self._stopped else [*fired, _CONTRADICTED][0]
            return f"No confidence interval for this policy: {why[0].lower()}{why[1:]}"
        steps, places = steps_of(self.horizon, people_leave=self.people_leave), self._places
        low, high = (f"{end:.{places}f}" for end in self.value)
        over = ""
        if self.gain is not None:
            less, more = (f"{round(end, places) + 0.0:+.{places}f}" for end in self.gain)  # no -0.00
            over = f", {less} to {more} over {self.best_fixed}"
        level = f" ({self.confidence:.0%} confidence {'intervals' if over else 'interval'})"
        return f"A session of {steps} earns {low} to {high} under this policy{over}{level}."

    @property
    def _best(self) -> str:
        if self.optimum is None:
            return ""
        low, high = (f"{end:.{self._places}f}" for end in self.optimum)
        if self.regret is None:
            return f"The best possible policy earns {low} to {high}."
        share = f" ({self.regret[1] / self.optimum[1]:.1%})" if self.optimum[1] > 0 else ""
        more = f"at most {self.regret[1]:.{self._places}f} more than this one{share}"
        return f"The best possible policy earns {low} to {high}, {more}."

    @property
    def _not_beaten(self) -> str:
        """The baselines over which no gain was demonstrated, if the gain over the best fixed arm or list was."""
        names = [name for name, low, _ in self.baselines if low <= 0]
        if not names or self.verdict.word != PAYS:
            return ""
        return f"No gain over {' or '.join(names)} was demonstrated."

    @property
    def _places(self) -> int:
        """Decimals that show two digits of the shortest interval; a negligible regret does not count."""
        widths = [claim[1] - claim[0] for claim in (self.value, self.optimum) if claim is not None]
        if self.regret is not None and self.regret[1] > _NEXT_TO_NOTHING * max(widths, default=0.0):
            widths.append(self.regret[1])
        return min(max(1 - int(np.floor(np.log10(max(min(widths, default=1.0), 1e-6)))), 0), _DECIMALS)

    @property
    def table(self) -> dict[str, str]:
        """The details behind the claims, by name."""
        names = TESTS | {name: title for name, (title, *_) in RESIDUALS.items()}
        rows = {names[name]: found.sentence for name, found in self.assumptions.items() if found.fires}
        steps = steps_of(self.horizon, people_leave=self.people_leave)
        rows["as logged"] = f"a session of {steps} earned {self.logged:.{self._places}f} on average"
        for name, low, high in self.baselines:
            rows[f"gain over {name}"] = f"{low:+.{self._places}f} to {high:+.{self._places}f}"
        if self.regret is not None:
            rows["regret"] = self._remedy
        if self.ends is not None:
            rows |= self.ends.table
        rows |= {finding.code: finding.text for finding in self.findings if self._applies(finding)}
        rows["held-out check"] = _NOT_CHECKED if self.check is None else self.check.verdict
        if self.value is not None or self.optimum is not None or self.baselines:
            rows["confidence"] = self._coverage
        return rows | {"not testable": NOT_TESTABLE, "basis": self.note}

    def _applies(self, finding: Finding) -> bool:
        """Return whether a finding is reported: not one about types that held-out sessions do not support."""
        return finding.code != "number of types" or self.check is None or self.check.agrees

    @property
    def verdict(self) -> Verdict:
        """Whether a gain was demonstrated: its interval and the held-out check of the fit must agree."""
        return Verdict(
            self.gain, self.check, self.gain is None, self.best_fixed, self._stopped,
            doubtful=any(found.fires for found in self.assumptions.values()),
        )  # fmt: skip

    @property
    def note(self) -> str:
        """The data and the draws behind the intervals."""
        drawn = count(len(self.draws), "model")
        return (
            f"{drawn} drawn from the approximate posterior given {count(self.n_sessions, 'session')}; calibration "
            f"{CALIBRATION.version} of the intervals"
        )

    @property
    def _coverage(self) -> str:
        return (
            f"each interval contains the true value for {self.confidence:.0%} of logs on average, if {self._assumption}"
        )

    @property
    def _assumption(self) -> str:
        if self.n_factors is None:
            return f"the true number of types is at most {self.n_types}" if self.n_types > 1 else "there is one type"
        return f"sessions differ in at most {count(self.n_factors, 'latent factor')}"

    @property
    def _remedy(self) -> str:
        if self.planning_gap < 0.005:
            return "limited data accounts for all of the bound; more planning cannot reduce it"
        advice = _BETTER_PLAN.get(self.planned, "") if self.planning_gap > 0.5 else ""
        return f"more planning could remove at most {self.planning_gap:.0%} of the bound, the rest needs data{advice}"

    def is_about(self, plan: Plan) -> bool:
        """Return whether this assessment has the horizon and the bounds of `plan`."""
        return self.horizon == plan.horizon and self.bounds == (plan.lower, plan.upper)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the assessment to `path`; `lmab.load` returns it unchanged."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        """Return the assessment as a file holds it."""
        return files.encode(self, "assessment")

    @classmethod
    def from_record(cls, record: files.Record) -> Assessment:
        """Return the assessment in a file; raise `InvalidFile` if its draws are not a table."""
        if record.arrays["draws"].ndim != 2:
            raise InvalidFile(f"damaged: draws must be a table, got shape {record.arrays['draws'].shape}")
        parts = (Check, Gain, Replay, Calibration, Assumption, Assumptions, HeldOutTests, Ends)
        return files.decode(record, cls, {part.__name__: part for part in parts})

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        rows = {
            "value of this policy": _shown(self.value),
            f"gain over {self.best_fixed}": _shown(self.gain, "+"),
            "value of the best policy": _shown(self.optimum),
            "regret at most": "not claimed" if self.regret is None else f"{self.regret[1]:.4g} per session",
            "verdict": self.verdict.sentence,
        }
        return card("Assessment", rows | self.table)


def _shown(interval: Interval | None, sign: str = "") -> str:
    return "not claimed" if interval is None else f"{interval[0]:{sign}.4g} to {interval[1]:{sign}.4g}"


def too_few(one_more: tuple[float, float]) -> bool:
    """Return whether one more type improves the held-out log-likelihood by more than a standard error."""
    gain, error = one_more
    return gain > max(error, _NOTHING)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a gain was demonstrated, by the assessment and the held-out check of the fit together.

    An interval of the gain that lies above 0 relies on the fitted types. So held-out sessions must support these types:
    they must be predicted better than by one type, and better than by independent arms.

    Examples:
        >>> Verdict(gain=(0.1, 0.3), check=None).sure
        False
    """

    gain: tuple[float, float] | None  # interval of an assessment, over the best fixed arm or list; None: none
    check: Check | None  # held-out check of the fit; None: not computed
    refused: bool = False  # whether an assessment was made that claims no gain
    best_fixed: str = "the best fixed arm or list"  # the baseline in words
    stopped: bool = False  # whether the time limit left too few drawn models for any claim
    doubtful: bool = False  # whether the log contradicts an assumption, even if the claims allow for it

    @property
    def word(self) -> str:
        """Whether the policy "pays", "may pay", or has "no gain demonstrated".

        It pays if the interval of the gain lies above 0, held-out sessions support the types, and the log contradicts
        no assumption. It may pay if most of the interval lies above 0 and held-out sessions do not reject the types.
        """
        if self.gain is None or sum(self.gain) < _ROUNDING or (self.check is not None and not self.check.agrees):
            return NO_GAIN
        return PAYS if self.sure and not self.doubtful else MAY_PAY

    @property
    def sure(self) -> bool:
        """Whether the interval of the gain lies above 0 and held-out sessions support the types."""
        return self.gain is not None and self.gain[0] > 0 and self.check is not None and self.check.agrees

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to decide, with that of the held-out check."""
        if self.check is None:
            return f"{self._about_gain} {_NOT_CHECKED}"
        return f"{self._about_gain if self.check.agrees else f'{self._no_gain}.'} {self.check.verdict}"

    @property
    def short(self) -> str:
        """The verdict in one sentence, without that of the held-out check."""
        if self.check is not None and not self.check.agrees:
            return f"{self._no_gain}: {self.check.refusal}."
        return self._about_gain

    @property
    def _no_gain(self) -> str:
        return f"No gain over {self.best_fixed} was demonstrated"

    @property
    def _about_gain(self) -> str:
        if self.stopped:
            return f"{self._no_gain}, because the time limit was too short to estimate its confidence interval."
        if self.refused:
            return f"{self._no_gain}, because the log contradicts an assumption of the model."
        if self.gain is None:
            return (
                f"The gain over {self.best_fixed} is predicted by the model; `lmab evaluate --assess` estimates its "
                "confidence interval from the log of the fit."
            )
        if self.gain[0] <= 0:
            return f"{self._no_gain}: its confidence interval is not entirely above 0."
        if not self.sure:
            return f"{self._no_gain}, because the latent types were not tested on held-out sessions."
        if self.doubtful:
            return (
                f"A gain over {self.best_fixed} is likely: its confidence interval is above 0, but the log contradicts "
                "an assumption of the model."
            )
        return (
            f"A gain over {self.best_fixed} was demonstrated: its confidence interval is above 0, and held-out "
            "sessions support the latent types."
        )


_registry.register("assessment", Assessment)
