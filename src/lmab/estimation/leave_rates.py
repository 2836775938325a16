"""How often people leave: counts of what came after each step, and chances to leave, shrunk where steps are few.

By arm and reward the chance to leave is *shown*: who it is does not matter, so the likelihood of a log factors, and the
types that rewards tell stay as they are. By *type* it is the shown chance times a ratio of the type and the reward, and
each type, arm and reward is free around that. A form with the type but without the arm is not offered: it would bend
the types to what the arms do.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from .._shapes import Array, Float
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.rewards import encode_values
from ..parallel import SERIAL, Passes
from .log import LETTERS, Prior, ValuesLog, with_letters

ANY_END, GOES_ON, LEFT = range(LETTERS)  # what came after a step: nobody knows, the session went on, or it was left
FREE = 10.0  # Steps that the chance of a type, arm and reward counts as, at its centre, where nobody learned it.
FREEDOMS = np.geomspace(4.0, 2000.0, 10)  # Such steps that a chain chooses among.
PSEUDO = 2.0  # Steps at the chance of a wider group.
_ROUNDS = 10  # Of proportional fitting.
_SURE = 0.999  # The largest centre: nobody leaves for certain.
_ALIKE = 1e4  # Steps if arms do not differ at all.
_SESSIONS = 1 << 16  # Counted at once.
_NO_SHARE = 1e-6  # No number of steps is ruled out.
INSIDE = (1e-6, 1 - 1e-6)  # Where drawn chances to leave lie.
_APART = (0.5, 1.5)  # What the chances to leave are multiplied by in random starts.
_FAR = 700.0  # A logarithm of 0.
_FREEDOM_EVERY = 4  # Sweeps after which a chain asks anew how much types differ around their common way to leave.


def letter_counts(sessions: Sessions | Packed, values: Float[Array, "Z"]) -> Float[Array, "L A Z"]:
    """Return how often each arm paid each value and was followed by each letter.

    Examples:
        >>> import lmab
        >>> log = lmab.Sessions.from_arrays([[0, 0], [0, -1]], [[1.0, 0.0], [0.0, 0.0]], ended=["unknown", "left"])
        >>> letter_counts(log, log.rewards[1::-1]).tolist()
        [[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]]
    """
    n_cells = sessions.n_arms * len(values)
    counts = np.zeros(LETTERS * n_cells)
    for part in sessions.chunks(_SESSIONS):
        cells = part.arms * np.int64(len(values)) + encode_values(values, part.rewards)
        counts += np.bincount(with_letters(cells, part.offsets, part.endings, n_cells), minlength=len(counts))
    return counts.reshape(LETTERS, sessions.n_arms, len(values))


def shown(counts: Float[Array, "L A Z"]) -> Float[Array, "A Z"]:
    """The chance to leave after each arm and value, shrunk to that of the value, and this to the one of all steps.

    The arms say by how much: if they differ no more than chance explains, all have the rate of the value, because a
    plan would lean on any arm that people happened not to leave.

    Examples:
        >>> import numpy as np
        >>> shown(np.array([[[0.0, 0.0]], [[6.0, 9.0]], [[4.0, 1.0]]])).round(3).tolist()
        [[0.396, 0.104]]
    """
    left, known = counts[LEFT], counts[GOES_ON] + counts[LEFT]
    overall = (left.sum() + 0.5) / (known.sum() + 1.0)
    by_value = (left.sum(axis=0) + PSEUDO * overall) / (known.sum(axis=0) + PSEUDO)
    strength = strengths(left, known)
    found: Float[Array, "A Z"] = (left + strength * by_value) / (known + strength)
    return found


def drawn_as_shown(
    counts: Float[Array, "L A Z"], n_types: int, n_draws: int, rng: np.random.Generator
) -> list[Float[Array, "M A Z"]]:
    """Shown chances that such counts allow, the same in all types."""
    found, known = shown(counts), counts[GOES_ON] + counts[LEFT]
    chances = [drawn(found, known + PSEUDO, rng) for _ in range(n_draws)]
    return [np.broadcast_to(one, (n_types, *one.shape)) for one in chances]


def strengths(left: Float[Array, "A Z"], known: Float[Array, "A Z"]) -> Float[Array, "Z"]:
    """Steps that the rate of a value counts as for each of its arms, from how much the arms differ (by moments).

    With the variance v of chances around their mean m, these are m (1 - m) / v - 1 steps, and at least two.

    Examples:
        >>> import numpy as np
        >>> strengths(np.array([[20.0], [60.0]]), np.array([[200.0], [200.0]])).round(1).tolist()
        [7.3]
    """
    total, seen = known.sum(axis=0), (known > 0).sum(axis=0)
    mean = left.sum(axis=0) / np.maximum(total, 1.0)
    noise = mean * (1 - mean)
    rates = left / np.maximum(known, 1.0)
    excess = (known * (rates - mean) ** 2).sum(axis=0) - (seen - 1) * noise
    spread = excess / np.maximum(total - (known**2).sum(axis=0) / np.maximum(total, 1.0), 1e-9)
    found = np.where(spread > noise / _ALIKE, noise / np.maximum(spread, noise / _ALIKE + 1e-300) - 1, _ALIKE)
    return np.where((seen > 1) & (noise > 0), np.maximum(found, PSEUDO), PSEUDO)


def typed(counts: Float[Array, "L A Z M"]) -> Float[Array, "M A Z"]:
    """Return the shown chance to leave times a ratio of each type and value, from expected counts by type.

    Proportional fitting: in turn the ratios and the shown chances are what makes as many leave as did.
    """
    left, known = (np.moveaxis(one, 2, 0) for one in (counts[LEFT], counts[GOES_ON] + counts[LEFT]))
    base = shown(counts.sum(axis=3))
    by_value = (left.sum(axis=(0, 1)) + PSEUDO * base.mean()) / (known.sum(axis=(0, 1)) + PSEUDO)
    ratio = np.ones((len(left), 1, left.shape[2]))
    for _ in range(_ROUNDS):
        expected = (known * base).sum(axis=1, keepdims=True)
        ratio = (left.sum(axis=1, keepdims=True) + PSEUDO) / (expected + PSEUDO)
        steps = (known * ratio).sum(axis=0)
        alike = strengths(left.sum(axis=0), steps)
        base = (left.sum(axis=0) + alike * by_value) / (steps + alike)
    return np.minimum(base * ratio, _SURE)


def draw_freedom(
    left: Float[Array, "A Z M"],
    goes_on: Float[Array, "A Z M"],
    centre: Float[Array, "A Z M"],
    shares: Float[Array, "k"],
    rng: np.random.Generator,
) -> tuple[Float[Array, "A"], Float[Array, "k"]]:
    """Return how many steps the centres of each arm count as, and how frequent each of these numbers is among the arms.

    Both are drawn: the first given who left (beta-binomial evidence) and the shares, the shares given the first. So
    arms that some types leave and others do not are free, and the others are held together.

    Examples:
        >>> import numpy as np
        >>> rng, centre, even = np.random.default_rng(0), np.full((2, 1, 200), 0.2), np.full(10, 0.1)
        >>> left = np.stack([rng.binomial(50, 0.2, (1, 200)), rng.binomial(50, rng.beta(1, 4, (1, 200)))])
        >>> (draw_freedom(left, 50.0 - left, centre, even, rng)[0] > 100).tolist()
        [True, False]
    """
    from scipy.special import betaln

    inside = np.clip(centre, *INSIDE)
    logs = np.empty((len(FREEDOMS), len(left)))
    for i, steps in enumerate(FREEDOMS):
        first, second = steps * inside, steps * (1 - inside)
        logs[i] = (betaln(left + first, goes_on + second) - betaln(first, second)).sum(axis=(1, 2))
    below = np.cumsum(shares[:, None] * np.exp(logs - logs.max(axis=0)), axis=0)
    places = (below[:-1] <= rng.random(len(left)) * below[-1]).sum(axis=0)
    counts = np.bincount(places, minlength=len(FREEDOMS))
    return FREEDOMS[places], rng.dirichlet(counts + 1 / len(FREEDOMS)) + _NO_SHARE


def free(
    left: Float[Array, "*n"],
    goes_on: Float[Array, "*n"],
    centre: Float[Array, "*c"],
    strength: Float[Array, "*s"] | float,
) -> Float[Array, "*n"]:
    """Return the chance to leave of every cell, shrunk to its centre; the centre itself if nothing is known."""
    known = left + goes_on + strength
    return np.where(known > 0, (left + strength * centre) / np.where(known > 0, known, 1.0), centre)


def drawn(chances: Float[Array, "*n"], steps: Float[Array, "*n"], rng: np.random.Generator) -> Float[Array, "*n"]:
    """Chances that a log of so many known steps allows, around those that were fitted to it."""
    inside = np.clip(chances, *INSIDE)
    return np.clip(rng.beta(inside * steps, (1 - inside) * steps), *INSIDE)


@dataclass(frozen=True, eq=False)
class LeavingLog(ValuesLog):
    """A log whose codes may also say what came after each step (`letters`): then models hold chances to leave.

    A chance belongs to a type, an arm and one of Z places: a value, or a group of values after which people are taken
    to leave alike.
    """

    @abstractmethod
    def after_places(self, statistics: Float[Array, "R Q P"]) -> Float[Array, "R L A Z P"]:
        """Return the expected steps by what came after them, arm and place."""

    @property
    @abstractmethod
    def seen_after(self) -> Float[Array, "L A Z"]:
        """How often each arm paid a value of each place and was followed by each letter."""

    @abstractmethod
    def leaving_of(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """Return the chances to leave of models with letters."""

    def with_letters(self) -> Self:
        """Return the same log in codes that also say what came after each step."""
        return self.encode(self.sessions, self.listed, self.beside, **{**self._more, "letters": True})

    def without_letters(self) -> Self:
        if not self.letters:
            return self
        return self.encode(self.sessions, self.listed, self.beside, **{**self._more, "letters": False})

    @cached_property
    def shown(self) -> Float[Array, "A Z"]:
        """The chance to leave after each arm and place, whoever it is."""
        return shown(self.seen_after)

    def prior(self, strength: float) -> Prior:
        found = self.prior_of_rewards(strength)
        return replace(found, leaving=self.shown[None]) if self.letters and strength > 0 else found

    @abstractmethod
    def prior_of_rewards(self, strength: float) -> Prior:
        """Return the same strength for every arm, around what the arm pays over all types."""

    def _best_leaving(self, statistics: Float[Array, "R Q P"], prior: Prior) -> Float[Array, "R A Z P"]:
        steps = self.after_places(statistics)
        centre, strength = self.leaving_centre(prior, statistics.shape[2])
        return free(steps[:, LEFT], steps[:, GOES_ON], centre, strength)

    def leaving_centre(self, prior: Prior, width: int) -> tuple[Float[Array, "A Z p"], Float[Array, "A 1 1"]]:
        """Centres of the chances to leave in `width` columns, and the steps that they count as."""
        if prior.leaving is None:
            return self.shown[..., None], np.zeros((self.n_arms, 1, 1))
        own, freedom = np.moveaxis(prior.leaving, 0, 2), self._freedom(prior)[:, None, None]
        if own.shape[2] == 1 or own.shape[2] >= width:
            return own[..., :width], freedom
        return np.concatenate([own, np.repeat(own[..., -1:], width - own.shape[2], axis=2)], axis=2), freedom

    def _freedom(self, prior: Prior | None) -> Float[Array, "A"]:
        """Return the steps that the centres of each arm count as."""
        known = None if prior is None else prior.freedom
        return np.full(self.n_arms, FREE) if known is None else known

    def _log_leaving(self, leaving: Float[Array, "R A Z M"], prior: Prior) -> Float[Array, "R"]:
        """log density of the prior of the chances to leave."""
        centre, strength = self.leaving_centre(prior, leaving.shape[3])
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = centre * np.log(leaving) + (1 - centre) * np.log1p(-leaving)
        return (strength * np.maximum(terms, -_FAR)).sum(axis=(1, 2, 3))

    def _random_leaving(self, n_models: int, width: int, rng: np.random.Generator) -> Float[Array, "R A Z P"]:
        ratios = rng.uniform(*_APART, (n_models, 1, 1, width))
        return np.minimum(self.shown[..., None] * ratios, 1 - self.shown[..., None] / 2)

    def draw_leaving(
        self,
        bandit: LatentBandit,
        n_draws: int,
        rng: np.random.Generator,
        n_types: int | None = None,
        prior: Prior | None = None,
    ) -> Sequence[Any] | None:
        if bandit.leaving is None:
            return None
        if not self.letters:
            return drawn_as_shown(self.seen_after, n_types or bandit.n_types, n_draws, rng)
        counts = self.after_places(self.expectation(self.pack(bandit), SERIAL)[0])[0, ..., : bandit.n_types]
        known = np.moveaxis(counts[GOES_ON] + counts[LEFT], 2, 0)
        steps = known + self._freedom(prior)[:, None]
        return [drawn(bandit.leaving, steps, rng) for _ in range(n_draws)]

    def with_leaving(self, prior: Prior, model: Float[Array, "K P"], n_types: int, passes: Passes) -> Prior:
        if not self.letters:
            return prior
        counts = self.after_places(self.expectation(model[None], passes)[0])[0, ..., :n_types]
        return replace(prior, leaving=typed(counts))


class LeavingDraws:
    """The part of a Gibbs chain that draws chances to leave, around what types have in common."""

    def __init__(self, n_arms: int) -> None:
        self.freedom = np.full(n_arms, FREE)
        self._shares, self._sweeps = np.full(len(FREEDOMS), 1 / len(FREEDOMS)), 0

    def draw(self, counts: Float[Array, "L A Z M"], rng: np.random.Generator) -> Float[Array, "A Z M"]:
        """Chances to leave given the types of the sessions."""
        centre = np.moveaxis(typed(counts), 0, 2).clip(*INSIDE)
        left, goes_on = counts[LEFT], counts[GOES_ON]
        if self._sweeps % _FREEDOM_EVERY == 0:
            self.freedom, self._shares = draw_freedom(left, goes_on, centre, self._shares, rng)
        self._sweeps += 1
        freedom = self.freedom[:, None, None]
        found = rng.beta(left + freedom * centre, goes_on + freedom * (1 - centre))
        return found.clip(*INSIDE)
