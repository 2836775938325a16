"""Certificate and Verdict: confidence intervals from a log, and whether the gain may be counted on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from .. import files
from .._html import card, count, steps_of
from .._shapes import Array, Float
from ..errors import InvalidFile, Status
from ..estimation.assumptions import Assumption, Assumptions, reacts
from ..estimation.check import Calibration, Check, Gain, Replay
from ..planning.problem import Plan

Interval = tuple[float, float]
THIN = 25  # plays of an arm per type below which it is hardly known
_HARDLY = 3.0  # what a log tells about types, per parameter, below which these are hardly told apart: see `told`
_NOTHING = 1e-4  # nats per session that are no gain
_NOT_CHECKED = "No held-out sessions were asked about the types: `lmab.fit` does so, unless it is told not to."
_NO_GAIN = "Do not count on a gain over the best fixed choice"
_DECIMALS = 4  # at most
_BETTER_PLAN: dict[str, str] = {
    Status.CERTIFIED: "; plan again with a smaller gap (--gap)",
    Status.TIME_LIMIT: "; plan again with a longer time limit (--time-limit)",
}  # by status of the plan; of other plans no option of the planner is known to help
_NEXT_TO_NOTHING = 0.02  # part of the longest interval below which a regret needs no decimals of its own
_OFTEN = 0.1  # share of the plan's steps on such arms from which a log is called thin


@dataclass(frozen=True, eq=False)
class Ends:
    """How the sessions of a log end, and what that makes of a claim for sessions of H steps."""

    horizon: int
    reached: float  # share of the sessions that reach the horizon
    rewards: Float[Array, "Z"]  # values after which leaving is counted
    leaving: Float[Array, "Z"]  # chance to leave after each
    value: float | None  # What the policy earns per *started* session, on the estimate; None: not computed.

    @property
    def table(self) -> dict[str, str]:
        """The rows of a certificate."""
        pairs = zip(self.rewards, self.leaving, strict=True)
        chances = ", ".join(f"{chance:.0%} after {reward:g}" for reward, chance in pairs)
        rows = {f"sessions that reach step {self.horizon}": f"{self.reached:.0%} in the log; chance to leave {chances}"}
        if self.value is not None:
            rows["per started session"] = f"about {self.value:.3g}, where people leave as in the log"
        return rows


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a policy is worth in truth, over the best fixed choice, and how much the best there is would earn.

    Each of the four intervals holds with `confidence` on average, provided that the truth has no more types than
    the estimate, or one more where `too_few` says so. A claim that the log contradicts is None: see `assumptions`.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=rng)
        >>> estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=rng)
        >>> certificate = lmab.certify(estimate, lmab.plan(estimate.bandit, horizon=5), log, rng=rng)
        >>> certificate.value[0] <= 3.35771 <= certificate.value[1]
        True
    """

    value: Interval | None  # Expected reward of a session under the policy.
    optimum: Interval | None  # the value of the best policy there is
    regret: Interval | None  # optimum less value: (0.0, the bound)
    gain: Interval | None  # value less that of the best fixed choice: one arm, or without repeats one list of arms
    planning_gap: float  # share of the bound on the regret that better planning could remove; the rest takes data
    confidence: float
    horizon: int
    n_types: int
    n_sessions: int
    n_steps: int
    n_unplayed: int  # arms that the log never plays
    n_parameters: int
    n_floored: int  # directions among the parameters that the log says next to nothing about
    thin_share: float  # Share of the plan's steps that go to arms played fewer than THIN times per type.
    unplayed_share: float  # Share of the optimum that is earned with arms that the log never plays, by the law of arms.
    one_more: tuple[float, float]  # held-out log-likelihood of a session with one more type, and its standard error
    draws: Float[Array, "B 4"] = field(repr=False)
    # on model b: the optimum, the policy; on the estimate: b's plan; on model b: the best fixed choice
    bounds: Interval | None = None  # Bounds of the plan on the estimate: which plan this is about.
    check: Check | None = None  # what held-out sessions said about the fit; None where nobody asked them
    n_factors: int | None = None  # alive in a traits model; None: types
    tested: Assumptions | None = None  # what the log says about what the claims take for granted; see `assumptions`
    ends: Ends | None = None  # how sessions end; None: all have the same length
    people_leave: bool = False  # whether the claims are about sessions until people leave, as the model says they do
    reaction: float = 0.0  # how strongly the log's next arm depends on the reward, in standard deviations
    planned: str = ""  # the status of the plan, which says how planning could be improved; empty in older files
    told: float | None = None  # what all sessions tell about their types, in nats per parameter; None: there are none
    logged: float | None = None  # Mean reward of a session of this length as it was logged.
    baselines: tuple[tuple[str, float, float], ...] = ()  # name, and interval of the policy's gain over it

    left_out: int = 0  # models that were drawn and not planned for, because of the time limit

    @property
    def sentence(self) -> str:
        """The certificate in three sentences for somebody who has to decide; what it rests on is in `table`."""
        return " ".join(part for part in (self.claims, self.verdict.short, self._not_beaten) if part)

    @property
    def claims(self) -> str:
        """What is claimed about value, gain and optimum, without the verdict."""
        return " ".join(part for part in (self._earns, self._best) if part)

    @property
    def assumptions(self) -> dict[str, Assumption]:
        """The assumptions of the claims, tested on the log: "shown", "leaving", "drift" and "step"."""
        return {} if self.tested is None else self.tested.by_name

    @property
    def _fired(self) -> list[Assumption]:
        return [found for found in self.assumptions.values() if found.fires]

    @property
    def _earns(self) -> str:
        if self.value is None:
            why = next((found.sentence for found in self._fired), "The log contradicts an assumption.")
            return f"Nothing is claimed about what this policy earns: {why[0].lower()}{why[1:]}"
        steps, places = steps_of(self.horizon, people_leave=self.people_leave), self._places
        low, high = (f"{end:.{places}f}" for end in self.value)
        over = ""
        if self.gain is not None:
            less, more = (f"{round(end, places) + 0.0:+.{places}f}" for end in self.gain)  # no -0.00
            over = f", {less} to {more} over the best fixed choice"
        level = f" ({self.confidence:.0%} confidence {'intervals' if over else 'interval'})"
        return f"A session of {steps} earns {low} to {high} under this policy{over}{level}."

    @property
    def _best(self) -> str:
        if self.optimum is None:
            return ""
        low, high = (f"{end:.{self._places}f}" for end in self.optimum)
        if self.regret is None:
            return f"The best policy earns {low} to {high}."
        share = f" ({self.regret[1] / self.optimum[1]:.1%})" if self.optimum[1] > 0 else ""
        return f"The best policy earns {low} to {high}, at most {self.regret[1]:.{self._places}f} more{share}."

    @property
    def _not_beaten(self) -> str:
        """The baselines over which no gain was demonstrated, if the gain over the best fixed choice was."""
        names = [name for name, low, _ in self.baselines if low <= 0]
        if not names or not self.sure:
            return ""
        return f"No gain over {' or '.join(names)} was demonstrated."

    @property
    def _places(self) -> int:
        """Decimals that show two digits of the shortest interval, but for a regret that is next to nothing."""
        widths = [claim[1] - claim[0] for claim in (self.value, self.optimum) if claim is not None]
        if self.regret is not None and self.regret[1] > _NEXT_TO_NOTHING * max(widths, default=0.0):
            widths.append(self.regret[1])
        return min(max(1 - int(np.floor(np.log10(max(min(widths, default=1.0), 1e-6)))), 0), _DECIMALS)

    @property
    def table(self) -> dict[str, str]:
        """What the claims rest on, a row each."""
        rows = {name: found.sentence for name, found in self.assumptions.items() if found.fires}
        if self.logged is not None:
            rows["as logged"] = (
                f"a session of {steps_of(self.horizon, people_leave=self.people_leave)} earned "
                f"{self.logged:.{self._places}f}"
            )
        for name, low, high in self.baselines:
            rows[f"gain over {name}"] = f"{low:+.{self._places}f} to {high:+.{self._places}f}"
        rows["confidence"] = f"each interval contains its value in {self.confidence:.0%} of logs, on average"
        if self.regret is not None:
            rows["what is given away"] = self._remedy
        if self.ends is not None:
            rows |= self.ends.table
        if self.thin:
            rows["thin"] = self._thinness
        if self.too_few and self._types_found:
            rows["types"] = f"one more than {self.n_types} predicts held-out sessions better; the claims allow for it"
        if self.hardly_told:
            rows["hardly told apart"] = (
                "the sessions say little about who is of which type: upper ends reach further up"
            )
        if self.reacts:
            rows["arms"] = "the next one depends on the reward before it: lower ends reach further down"
        if self.n_unplayed:
            arms = "1 arm was" if self.n_unplayed == 1 else f"{self.n_unplayed} arms were"
            share = f"{self.unplayed_share:.0%} of the best there is"
            rows["unplayed"] = f"{arms} never played; {share} rests on guessing what they pay"
        if self.left_out:
            rows["time limit"] = (
                f"{len(self.draws):,} of {len(self.draws) + self.left_out:,} drawn models were planned for: intervals "
                "are rougher than with a longer time limit"
            )
        rows["held-out check"] = _NOT_CHECKED if self.check is None else self.check.verdict
        return rows | {"rests on": self.note}

    @property
    def _types_found(self) -> bool:
        """Whether held-out sessions were not asked about types, or confirmed them."""
        return self.check is None or self.check.agrees

    @property
    def verdict(self) -> Verdict:
        """Whether the gain may be counted on: its interval and the held-out check of the fit must agree."""
        return Verdict(self.gain, self.check, refused=self.gain is None)

    @property
    def sure(self) -> bool:
        """The interval of the gain lies above 0, and held-out sessions confirm the types."""
        return self.verdict.sure

    @property
    def too_few(self) -> bool:
        """One more type predicts held-out sessions better: the intervals were widened to allow for it."""
        return too_few(self.one_more)

    @property
    def reacts(self) -> bool:
        """The log's arms depend on rewards before them: the intervals reach further down, since claims lie high."""
        return reacts(self.reaction)

    @property
    def hardly_told(self) -> bool:
        """The sessions say little about who is of which type: the intervals reach further up, since claims lie low."""
        return hardly_told(self.told)

    @property
    def thin(self) -> bool:
        """The plan leans on arms that the log hardly knows: collect more of them, or fit less."""
        return self.thin_share > _OFTEN

    @property
    def note(self) -> str:
        """What the certificate rests on."""
        hardly = f"these say next to nothing about {self.n_floored} of the {self.n_parameters} directions in which"
        unknown = f"; {hardly} models differ" if self.n_floored else ""
        return (
            f"From {len(self.draws)} models that the {count(self.n_sessions, 'session')} could have come "
            f"from{unknown}. Each interval holds with {self.confidence:.0%} on average, provided that "
            f"{self._assumption} in truth."
        )

    @property
    def _assumption(self) -> str:
        if self.n_factors is None:
            return "there is one type" if self.n_types == 1 else f"there are no more than {self.n_types} types"
        return f"sessions differ by degrees in no more than {count(self.n_factors, 'factor')}"

    @property
    def _thinness(self) -> str:
        per = "type" if self.n_factors is None else "parameter"
        return f"{self.thin_share:.0%} of the plan's steps go to arms played fewer than {THIN} times per {per}"

    @property
    def _remedy(self) -> str:
        if self.planning_gap < 0.005:
            return "limited data accounts for all of it: planning is complete"
        advice = _BETTER_PLAN.get(self.planned, "") if self.planning_gap > 0.5 else ""
        return f"planning accounts for {self.planning_gap:.0%} of it, limited data for the rest{advice}"

    def is_about(self, plan: Plan) -> bool:
        """Whether this is the certificate of `plan`, as far as horizon and bounds tell."""
        return self.horizon == plan.horizon and self.bounds == (plan.lower, plan.upper)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives the same certificate back, to the bit."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        return files.encode(self, "certificate")

    @classmethod
    def from_record(cls, record: files.Record) -> Certificate:
        if record.arrays["draws"].ndim != 2:
            raise InvalidFile(f"damaged: draws must be a table, got shape {record.arrays['draws'].shape}")
        parts = (Check, Gain, Replay, Calibration, Assumption, Assumptions, Ends)
        return files.decode(record, cls, {part.__name__: part for part in parts})

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        rows = {
            "this policy earns": _shown(self.value),
            "over the best fixed choice": _shown(self.gain, "+"),
            "the best earns": _shown(self.optimum),
            "given away at most": "not claimed" if self.regret is None else f"{self.regret[1]:.4g} per session",
            "verdict": self.verdict.sentence,
        }
        return card("Certificate", rows | self.table)


def _shown(interval: Interval | None, sign: str = "") -> str:
    return "not claimed" if interval is None else f"{interval[0]:{sign}.4g} to {interval[1]:{sign}.4g}"


def too_few(one_more: tuple[float, float]) -> bool:
    """Whether one more type gains on held-out sessions, by more than a standard error: in doubt, yes."""
    gain, error = one_more
    return gain > max(error, _NOTHING)


def hardly_told(told: float | None) -> bool:
    """Whether a log tells so little about the types that models drawn from it lie low."""
    return told is not None and told < _HARDLY


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the certificate and the held-out check of the fit say together.

    An interval of the gain that lies above 0 rests on the fitted types. Held-out sessions must confirm these types:
    they must be predicted better than by one type, and better than if arms had nothing to do with each other.

    Examples:
        >>> Verdict(gain=(0.1, 0.3), check=None).sure
        False
    """

    gain: tuple[float, float] | None  # over the best fixed choice, of a certificate; None where there is none
    check: Check | None  # What held-out sessions say about the fit; None: none were asked.
    refused: bool = False  # a certificate was made, and claims no gain

    @property
    def sure(self) -> bool:
        """The interval of the gain lies above 0, and held-out sessions confirm the types."""
        return self.gain is not None and self.gain[0] > 0 and self.check is not None and self.check.agrees

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to decide, with what the held-out check said."""
        if self.check is None:
            return f"{self._about_gain} {_NOT_CHECKED}"
        return f"{self._about_gain if self.check.agrees else f'{_NO_GAIN}.'} {self.check.verdict}"

    @property
    def short(self) -> str:
        """The verdict in one sentence, where what the check said stands elsewhere."""
        if self.check is not None and not self.check.agrees:
            return f"{_NO_GAIN}: {self.check.refusal}."
        return self._about_gain

    @property
    def _about_gain(self) -> str:
        if self.refused:
            return "No gain over the best fixed choice is claimed."
        if self.gain is None:
            return (
                "The gain over the best fixed choice is that on the model: estimate its confidence interval from the "
                "log of the fit (`lmab evaluate --certify`)."
            )
        if self.gain[0] <= 0:
            return "This policy may earn no more than the best fixed choice."
        if not self.sure:
            return "Do not count on the gain over the best fixed choice before held-out sessions confirm the types."
        return "Count on the gain over the best fixed choice: held-out sessions confirm the types."
