"""Certificate and Verdict: what the log proves about the truth, and whether its gain may be counted on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from .. import files
from .._html import card, count, percent
from .._shapes import Array, Float
from ..errors import InvalidFile
from ..estimation.assumptions import reacts
from ..estimation.check import Calibration, Check, Gain, Replay
from ..planning.problem import Plan

Interval = tuple[float, float]
THIN = 25  # plays of an arm per type below which it is hardly known
_NOTHING = 1e-4  # nats per session that are no gain
_OFTEN = 0.1  # share of the plan's steps on such arms from which a log is called thin


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a policy is worth in truth, over the best fixed choice, and how much the best there is would earn.

    Each of the four intervals holds with `confidence` on average, provided that the truth has no more types than
    the estimate, or one more where `too_few` says so.

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

    value: Interval  # of the policy: expected reward of a session
    optimum: Interval  # the value of the best policy there is
    regret: Interval  # optimum less value: (0.0, the bound)
    gain: Interval  # value less that of the best fixed choice: one arm, or without repeats one list of arms
    planning_gap: float  # share of the bound on the regret that better planning could remove; the rest takes data
    confidence: float
    horizon: int
    n_types: int
    n_sessions: int
    n_steps: int
    n_unplayed: int  # arms that the log never plays
    n_parameters: int
    n_floored: int  # directions among the parameters that the log says next to nothing about
    thin_share: float  # of the plan's steps that go to arms played fewer than THIN times per type
    unplayed_share: float  # of the optimum that is earned with arms that the log never plays, by the law of arms
    one_more: tuple[float, float]  # held-out log-likelihood of a session with one more type, and its standard error
    draws: Float[Array, "B 4"] = field(repr=False)
    # on model b: the optimum, the policy; on the estimate: b's plan; on model b: the best fixed choice
    bounds: Interval | None = None  # of the plan, on the estimate: which plan this is about
    check: Check | None = None  # what held-out sessions said about the fit; None where nobody asked them
    n_factors: int | None = None  # alive in a traits model; None: types
    reaction: float = 0.0  # how strongly the log's next arm depends on the reward, in standard deviations

    @property
    def sentence(self) -> str:
        """The certificate in words for somebody who has to decide."""
        places = _places(self.value, self.optimum, self.regret)
        low, high = (f"{end:.{places}f}" for end in self.value)
        less, more = (f"{end:+.{places}f}" for end in self.gain)
        best_low, best_high = (f"{end:.{places}f}" for end in self.optimum)
        share = f" ({self.regret[1] / self.optimum[1]:.1%})" if self.optimum[1] > 0 else ""
        return (
            f"A session of {count(self.horizon, 'step')} earns between {low} and {high} under this policy, {less} to "
            f"{more} over the best fixed choice, between {best_low} and {best_high} under the best there is, and so "
            f"this policy gives away at most {self.regret[1]:.{places}f} per session{share}, each with "
            f"{self.confidence:.0%} confidence; {self._remedy}.{self._caution} {self.verdict.sentence}"
        )

    @property
    def verdict(self) -> Verdict:
        """Whether the gain may be counted on: its interval and the held-out check of the fit must agree."""
        return Verdict(self.gain, self.check)

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
    def thin(self) -> bool:
        """The plan leans on arms that the log hardly knows: collect more of them, or fit less."""
        return self.thin_share > _OFTEN

    @property
    def note(self) -> str:
        """What the certificate rests on."""
        return (
            f"From {len(self.draws)} models that the {count(self.n_sessions, 'session')} could have come from; these "
            f"say next to nothing about {self.n_floored} of the {self.n_parameters} directions in which models differ. "
            f"Each interval holds with {self.confidence:.0%} on average, provided that {self._assumption} in truth."
        )

    @property
    def _assumption(self) -> str:
        if self.n_factors is None:
            return f"there are no more than {count(self.n_types, 'type')}"
        return f"sessions differ by degrees in no more than {count(self.n_factors, 'factor')}"

    @property
    def _caution(self) -> str:
        parts = []
        if self.thin:
            parts.append(f" But the log is thin: {self._thinness}.")
        if self.too_few:
            gain, error = self.one_more
            parts.append(
                f" One type more predicts held-out sessions better ({gain:+.4f} ± {error:.4f} nats per session): the "
                f"intervals allow for it, but fit more than {self.n_types} types."
            )
        if self.reacts:
            parts.append(
                " In this log the next arm depends on the reward before it, so arms are known from sessions that they "
                "suit: value and optimum reach further down to allow for it."
            )
        if self.n_unplayed:
            arms = "1 arm was" if self.n_unplayed == 1 else f"{self.n_unplayed} arms were"
            parts.append(
                f" And {arms} never played: what they pay is guessed from the other arms, and "
                f"{self.unplayed_share:.0%} of the best there is rests on that guess."
            )
        return "".join(parts)

    @property
    def _thinness(self) -> str:
        per = "type" if self.n_factors is None else "parameter"
        return f"{self.thin_share:.0%} of the plan's steps go to arms played fewer than {THIN} times per {per}"

    @property
    def _remedy(self) -> str:
        if self.planning_gap > 0.5:
            return f"{self.planning_gap:.0%} of that is planning left undone: plan with a smaller gap"
        if self.planning_gap >= 0.005:
            return f"{self.planning_gap:.0%} of that is planning left undone, the rest is for want of data"
        return "that is for want of data: planning is done"

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
        return files.decode(record, cls, {part.__name__: part for part in (Check, Gain, Replay, Calibration)})

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        rows = {
            "this policy earns": "{:.4g} to {:.4g}".format(*self.value),
            "over the best fixed choice": "{:+.4g} to {:+.4g}".format(*self.gain)
            + ("" if self.sure else ", not to be counted on"),
            "the best earns": "{:.4g} to {:.4g}".format(*self.optimum),
            "given away at most": f"{self.regret[1]:.4g} per session of {self.horizon} steps",
            "each holds with": percent(self.confidence)
            + (f", but the log is thin: {self._thinness}" if self.thin else ""),
        }
        return card("Certificate", rows)


def too_few(one_more: tuple[float, float]) -> bool:
    """Whether one more type gains on held-out sessions, by more than a standard error: in doubt, yes."""
    gain, error = one_more
    return gain > max(error, _NOTHING)


def _places(*intervals: Interval) -> int:
    """Decimals that show two digits of the shortest interval."""
    width = max(min(high - low for low, high in intervals), 1e-6)
    return max(1 - int(np.floor(np.log10(width))), 0)


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
    check: Check | None  # of the fit; None where none was made

    @property
    def sure(self) -> bool:
        """The interval of the gain lies above 0, and held-out sessions confirm the types."""
        return self.gain is not None and self.gain[0] > 0 and self.check is not None and self.check.agrees

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to decide, with what the held-out check said."""
        return f"{self._about_gain} {self._about_types}"

    @property
    def _about_gain(self) -> str:
        if self.gain is None:
            return (
                "Without a certificate nobody knows how much of the gain over the best fixed choice is real: make one "
                "from the log of the fit (`lmab evaluate --certify`)."
            )
        if self.gain[0] <= 0:
            return "This policy may earn no more than the best fixed choice: the interval of its gain holds 0."
        if not self.sure:
            return "Do not count on the gain over the best fixed choice: held-out sessions do not confirm the types."
        return "Count on a gain over the best fixed choice: its interval lies above 0, and held-out sessions agree."

    @property
    def _about_types(self) -> str:
        if self.check is None:
            return "No held-out sessions were asked about the types: `lmab fit` does so, unless it is told not to."
        return self.check.verdict
