"""Assessment and Verdict: confidence intervals from a log, and whether a gain was demonstrated."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from .. import _registry, files
from .._html import best_fixed, card, count, steps_of
from .._shapes import Array, Float
from ..errors import InvalidFile, Status
from ..estimation.assumptions import TESTS, Assumption, Assumptions, reacts
from ..estimation.check import Calibration, Check, Gain, Replay
from ..planning.problem import Plan

Interval = tuple[float, float]
THIN = 25  # plays of an arm per type below which data about it are sparse
_HARDLY = 3.0  # information about the types, in nats per parameter, below which they are weakly identified: see `told`
_NOTHING = 1e-4  # nats per session that count as no gain
_NOT_CHECKED = "The latent types were not tested on held-out sessions; `lmab fit` does so by default."
LEAST_MODELS = 20  # drawn models without which nothing is claimed: the ends of a 90% interval would be their extremes
_TOO_SHORT = "The time limit left {0} drawn models, and an interval requires 20; give a longer one (--time-limit)."
_CONTRADICTED = "The log contradicts an assumption."
_DECIMALS = 4  # at most
_BETTER_PLAN: dict[str, str] = {
    Status.CERTIFIED: "; plan again with a smaller gap (--gap)",
    Status.TIME_LIMIT: "; plan again with a longer time limit (--time-limit)",
}  # by status of the plan; of other plans no option of the planner is known to help
_NEXT_TO_NOTHING = 0.02  # share of the longest interval below which a regret needs no further decimals
_OFTEN = 0.1  # share of the plan's steps on arms with sparse data from which the assessment reports it


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
    number of types is at most that of the estimate, or one more if `too_few`. A claim that the log contradicts is None:
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
    n_unplayed: int  # arms that the log never plays
    n_parameters: int
    n_floored: int  # directions in parameter space about which the log contains almost no information
    thin_share: float  # share of the plan's steps that go to arms played fewer than THIN times per type
    unplayed_share: float  # share of the optimum earned with arms that the log never plays, by the prior of arms
    one_more: tuple[float, float]  # held-out log-likelihood of a session with one more type, and its standard error
    draws: Float[Array, "B 4"] = field(repr=False)
    # on model b: the optimum, the policy; on the estimate: b's plan; on model b: the best fixed choice
    bounds: Interval | None = None  # bounds of the plan on the estimate, which identify the plan
    check: Check | None = None  # held-out check of the fit; None: not computed
    n_factors: int | None = None  # active factors of a traits model; None: types
    tested: Assumptions | None = None  # tests of the assumptions behind the claims; see `assumptions`
    ends: Ends | None = None  # how sessions end; None: all have the same length
    people_leave: bool = False  # whether the model includes attrition, so that the claims are per started session
    reaction: float = 0.0  # dependence of the log's next arm on the reward, in standard deviations
    planned: str = ""  # status of the plan, from which advice on planning follows; empty in older files
    told: float | None = None  # information of all sessions about their types, in nats per parameter; None: one type
    logged: float | None = None  # mean reward of a session of this length as logged
    baselines: tuple[tuple[str, float, float], ...] = ()  # name, and interval of the policy's gain over it
    left_out: int = 0  # models that were drawn and not planned for, because of the time limit
    repeats: bool | None = None  # whether a session may repeat an arm; None in older files

    @property
    def best_fixed(self) -> str:
        """The baseline of `gain` in words."""
        return "the best fixed arm or list" if self.repeats is None else best_fixed(self.repeats)

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
        """The assumptions of the claims, tested on the log: "shown", "leaving", "drift" and "step"."""
        return {} if self.tested is None else self.tested.by_name

    @property
    def _fired(self) -> list[Assumption]:
        return [found for found in self.assumptions.values() if found.fires]

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
        if not names or not self.sure:
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
        rows = {TESTS[name]: found.sentence for name, found in self.assumptions.items() if found.fires}
        if self.logged is not None:
            steps = steps_of(self.horizon, people_leave=self.people_leave)
            rows["as logged"] = f"a session of {steps} earned {self.logged:.{self._places}f} on average"
        for name, low, high in self.baselines:
            rows[f"gain over {name}"] = f"{low:+.{self._places}f} to {high:+.{self._places}f}"
        if self.regret is not None:
            rows["regret"] = self._remedy
        if self.ends is not None:
            rows |= self.ends.table
        for name, applies, text in self._conditions:
            if applies:
                rows[name] = text
        rows["held-out check"] = _NOT_CHECKED if self.check is None else self.check.verdict
        if self.value is not None or self.optimum is not None or self.baselines:
            rows["confidence"] = self._coverage
        return rows | {"basis": self.note}

    @property
    def _conditions(self) -> tuple[tuple[str, bool, str], ...]:
        """The circumstances that changed an interval or weaken it: name, whether it applies, and its effect."""
        arms = "1 arm was" if self.n_unplayed == 1 else f"{self.n_unplayed} arms were"
        share = f"{self.unplayed_share:.0%} of the value of the best policy"
        planned, drawn = len(self.draws), len(self.draws) + self.left_out
        return (
            ("sparse data", self.thin, self._thinness),
            (
                "number of types",
                self.too_few and self._types_found,
                f"{self.n_types + 1} types predict held-out sessions better than {self.n_types}; the intervals allow "
                f"for one more type",
            ),
            (
                "weak identification",
                self.hardly_told,
                "the log contains little information about the types, so upper limits are increased",
            ),
            (
                "adaptive arms",
                self.reacts,
                "the next arm depends on the reward before it, so lower limits are decreased",
            ),
            (
                "unplayed arms",
                self.n_unplayed > 0,
                f"{arms} never played; {share} is based on assumed mean rewards",
            ),
            (
                "time limit",
                self.left_out > 0,
                f"{planned:,} of {drawn:,} drawn models were planned for, so the intervals are less precise than with "
                f"a longer time limit",
            ),
        )

    @property
    def _types_found(self) -> bool:
        """Whether held-out sessions support the types, or were not used to test them."""
        return self.check is None or self.check.agrees

    @property
    def verdict(self) -> Verdict:
        """Whether a gain was demonstrated: its interval and the held-out check of the fit must agree."""
        return Verdict(self.gain, self.check, self.gain is None, self.best_fixed, stopped=self._stopped)

    @property
    def sure(self) -> bool:
        """Whether the interval of the gain lies above 0 and held-out sessions support the types."""
        return self.verdict.sure

    @property
    def too_few(self) -> bool:
        """Whether one more type predicts held-out sessions better; the intervals allow for it."""
        return too_few(self.one_more)

    @property
    def reacts(self) -> bool:
        """Whether the log's arms depend on earlier rewards; lower limits are decreased, since values come out high."""
        return reacts(self.reaction)

    @property
    def hardly_told(self) -> bool:
        """Whether types are weakly identified; upper limits are increased, since values come out low."""
        return hardly_told(self.told)

    @property
    def thin(self) -> bool:
        """Whether more than a tenth of the plan's steps go to arms with sparse data."""
        return self.thin_share > _OFTEN

    @property
    def note(self) -> str:
        """The data and the draws behind the intervals."""
        unknown = (
            f"; the log contains almost no information about {self.n_floored} of the {self.n_parameters} directions in "
            f"parameter space"
            if self.n_floored
            else ""
        )
        drawn = count(len(self.draws), "model")
        return f"{drawn} drawn from the approximate posterior given {count(self.n_sessions, 'session')}{unknown}"

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
    def _thinness(self) -> str:
        per = "type" if self.n_factors is None else "parameter"
        return f"{self.thin_share:.0%} of the plan's steps go to arms played fewer than {THIN} times per {per}"

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
        parts = (Check, Gain, Replay, Calibration, Assumption, Assumptions, Ends)
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


def hardly_told(told: float | None) -> bool:
    """Return whether a log contains so little information about types that values of drawn models come out low."""
    return told is not None and told < _HARDLY


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
        return (
            f"A gain over {self.best_fixed} was demonstrated: its confidence interval is above 0, and held-out "
            "sessions support the latent types."
        )


_registry.register("assessment", Assessment)
