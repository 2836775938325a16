"""The encoded log: sessions as lists of codes, in memory or in files, and what a reward family answers about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped
from ..data.packed import Packed, Partitions
from ..data.sessions import Sessions
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from .information import Information
from .passes import PARTITION, SERIAL, Arrays, Passes, count_parts, edges_at, session_edges
from .traits.surface import Surface

LEARNED = "learned"  # what a method is asked for
START = 1.5  # pseudo-plays at the arm's own mean under which a start is searched, and where none can be learned
SAMPLE = 4096  # sessions looked at to guess how many are distinct
MOST = 1 << 24  # distinct sessions that are kept in memory, wherever the log lies
_LARGE = 1 << 24  # sessions of a log of which more are looked at, since few would always let it seem worth merging
_HASHED_TOGETHER = 1 << 18  # steps hashed at once
Pick = Callable[[Any], tuple[Any, Any]]  # codes and offsets of the sessions with these numbers
LANES = 8  # types the kernel works on at a time
_WIDE = 128  # columns from which on a power of two of them is avoided
_COUNTED_TOGETHER = 1 << 20  # numbers counted at once


@dataclass(frozen=True, eq=False)
class Prior:
    """Pseudo-plays that every type has seen: arm a `strength[a]` times, paying what `centre[a]` says.

    For rewards on Z values the centre is a distribution over them (so that strength times centre are pseudo-counts);
    for normal rewards it is a mean. The objective gains sum_a strength[a] E[log density of such a reward], without the
    part that depends on the scale of normal rewards only.

    Examples:
        >>> import numpy as np
        >>> Prior(np.array([[0.25, 0.75]]), np.array([2.0])).pseudo_counts
        array([[0.5, 1.5]])
    """

    centre: Float[Array, "A *Z"]
    strength: Float[Array, "A"]  # not negative; all 0: maximum likelihood

    @classmethod
    def equal(cls, centre: Float[Array, "A *Z"], strength: float) -> Prior:
        """The same strength for every arm."""
        return cls(centre, np.full(len(centre), float(strength)))

    @property
    def active(self) -> bool:
        """Whether there is any pseudo-play at all."""
        return bool(self.strength.any())

    @property
    def pseudo_counts(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value in the pseudo-plays."""
        return self.strength[:, None] * self.centre


class Models(ABC):
    """Bandits as model arrays and back (`models.py`)."""

    @abstractmethod
    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        """The bandit as a model."""

    @abstractmethod
    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        """The model as a bandit."""

    @abstractmethod
    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """The valid bandit with types near `vectors`, one entry per feature: equation (clipping_mu).

        An arm that was never played gets the rewards of all arms together.
        """


class EMMap(ABC):
    """The two halves of the EM map on batches of models, under one prior (`em_map.py`)."""

    prior: Prior

    @abstractmethod
    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected sufficient statistics (row 0: sessions per type) and log-likelihood under every model."""

    @abstractmethod
    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The models that explain statistics and prior best; what they say nothing about stays as in `models`."""

    @abstractmethod
    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        """log density of the prior, up to a constant, at models without padding."""

    @abstractmethod
    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The extrapolated `trial` made valid; nothing that is positive in the models `near` becomes zero."""


class Confinement(ABC):
    """Models whose reward tables have a given rank (`confinement.py`)."""

    @abstractmethod
    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        """A valid model of the rank near `model`."""

    @abstractmethod
    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        """A better model of the rank than `model`, which has that rank, for statistics and prior."""


class StartModels(ABC):
    """Models that EM may start from, and what finds them (`start_models.py`)."""

    @abstractmethod
    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        """Models drawn around the marginals, with equal weights."""

    @abstractmethod
    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        """The model in which distinct session i (of the first n) came from type `labels[i]`."""

    @abstractmethod
    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """Models of a sample, changed so that nothing in the whole log is impossible."""

    @abstractmethod
    def features(self) -> tuple[Any, Float[Array, "D"]]:
        """Sparse (N, D) sums of the steps' features per distinct session, and the sums of their squares (D,)."""

    @abstractmethod
    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        """Coordinates of the features, less their mean under each arm's marginal."""


class Chain(ABC):
    """One state of a Gibbs sampler over models of the log; `sweep` moves it (`chain.py`)."""

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> None:
        """Draw types of sessions, weights, what arms are like, and rewards, each given all others."""

    @property
    @abstractmethod
    def weights(self) -> Float[Array, "M"]: ...

    @property
    @abstractmethod
    def rewards(self) -> Any:
        """Of the log's family."""

    @abstractmethod
    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A *Z"], Float[Array, "A"]]:
        """Where the types of each arm lie, and one over the pseudo-plays that this is worth, in this state."""

    @staticmethod
    @abstractmethod
    def prior(centre: Float[Array, "A *Z"], strength: Float[Array, "A"]) -> Prior:
        """The prior of centres and strengths that were averaged over draws."""


class Observations(ABC):
    """An encoded log, which hands out the roles of its reward family."""

    family: str  # as `lmab.fit(rewards=...)` names it
    sessions: Sessions | Packed  # as they were given

    @property
    @abstractmethod
    def values(self) -> Float[Array, "Z"] | None:
        """The reward values; None where rewards are continuous."""

    @property
    def known_scale(self) -> float | None:
        """The scale of normal rewards, where it was given instead of being estimated."""
        return None

    @property
    def bins(self) -> Bins | None:
        """How rewards were cut into the values, where they were."""
        return None

    @property
    @abstractmethod
    def n_distinct(self) -> int:
        """Sessions that a pass walks through, after merging identical ones."""

    @property
    @abstractmethod
    def multiplicity(self) -> Float[Array, "n"]:
        """How many sessions each distinct one stands for."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers that describe a type: (arm, value) pairs, or arms."""

    @abstractmethod
    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        """Free parameters, of a model of the given rank; a value that an arm never paid has none."""

    @abstractmethod
    def subset(self, rows: Integer[Array, "n"]) -> Observations:
        """The same encoding of some of the sessions."""

    def level(self, every: int) -> Observations | None:
        """One of `every` parts of the log, on which a climb begins; None where the log is too small for that."""
        return None

    @abstractmethod
    def prior(self, strength: float) -> Prior:
        """`strength` pseudo-plays per type and arm that pay what the arm pays on average in the log."""

    @property
    @abstractmethod
    def models(self) -> Models: ...

    @property
    @abstractmethod
    def start_models(self) -> StartModels: ...

    @property
    @abstractmethod
    def surface(self) -> Surface:
        """Arms that are linear in the factors of a session."""

    @abstractmethod
    def em_map(self, prior: Prior) -> EMMap: ...

    @abstractmethod
    def confinement(self, prior: Prior, n_types: int, rank: int) -> Confinement: ...

    @abstractmethod
    def chain(self, bandit: LatentBandit) -> Chain:
        """A Gibbs chain that starts from the bandit."""

    @abstractmethod
    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The observed information about the bandit's parameters, that of the prior included."""

    @abstractmethod
    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        """log-likelihood of each session under a bandit that was fitted to others, so made to exclude nothing."""

    def log_likelihood(self, bandit: LatentBandit, passes: Passes = SERIAL) -> float:
        """Total natural log-likelihood of the log."""
        em_map = self.em_map(self.prior(0.0))
        return float(em_map.expectation(self.models.pack(bandit), passes)[1][0])


def count_parameters(n_types: int, n_features: int, rank: int | None) -> int:
    """Weights, and M points in n_features dimensions or in an affine space of rank - 1 dimensions there."""
    if rank is None or rank > min(n_types - 1, n_features):
        return n_types - 1 + n_types * n_features
    return n_types - 1 + n_features + (rank - 1) * (n_types - 1 + n_features - (rank - 1))


@dataclass(frozen=True, eq=False)
class Steps(ABC):
    """Distinct sessions by number."""

    every: int = field(default=1, kw_only=True)  # 16: every 16th part counts, the others are left out
    travels = False  # whether a pickle is small

    @property
    @abstractmethod
    def n_all(self) -> int:
        """Distinct sessions, those that are left out included."""

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Their steps."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of what is summed up."""

    @abstractmethod
    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        """For each number of steps, above 0, the first session with at least as many steps before it."""

    @abstractmethod
    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Any:
        """A window on the sessions low to high - 1; offsets that are made for it lie in `room`, if given.

        It has three arrays for the kernel, `low` and `high` in their numbers, and itself alone as `own`.
        """

    @property
    @abstractmethod
    def held(self) -> Any:
        """The same in memory."""

    @property
    def n_distinct(self) -> int:
        return -(-self.n_all // self.every)

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first session of each part and the one after its last, for results of `result_bytes` a part.

        They depend on the log and the size of a part's result only, never on where the log lies or passes run.
        """
        n_parts = count_parts(self.n_steps, self.n_bytes, result_bytes if self.every == 1 else 0)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        return np.stack([edges[:-1], edges[1:]], axis=1)[self.every // 2 :: self.every]

    def stretches(self) -> Iterator[Arrays]:
        """Parts as long as a device wants them, as `CodedLog` gives them."""
        n_parts = -(-self.n_steps // PARTITION)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        for low, high in pairwise(edges.tolist()) if self.every == 1 else self.parts(0).tolist():
            yield self.window(low, high).own.arrays

    def level(self, every: int) -> Steps | None:
        """One of `every` parts; None where that is not a small part of the log."""
        n_parts = count_parts(self.n_steps, self.n_bytes, 0)
        return None if n_parts < every else replace(self, every=every)


@dataclass(frozen=True, eq=False)
class InMemory(Steps):
    """Steps in memory."""

    offsets: Integer[Array, "K1"]

    @property
    def n_all(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        return int(self.offsets[-1])

    @property
    def held(self) -> Any:
        return self

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        return np.searchsorted(self.offsets, targets)


@dataclass(frozen=True, eq=False)
class InFiles(Steps):
    """Steps in the files of a packed log; a process that gets this object opens the files itself."""

    partitions: Partitions
    travels = True
    _cuts: dict[int, Integer[Array, "..."]] = field(default_factory=dict, repr=False, kw_only=True)  # by their number

    @property
    def n_all(self) -> int:
        return self.partitions.n_sessions

    @property
    def n_steps(self) -> int:
        return self.partitions.n_steps

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        if len(targets) not in self._cuts:
            self._cuts[len(targets)] = self.partitions.cuts(targets)
        return self._cuts[len(targets)]


def expectation(
    family: str, steps: Steps, models: Float[Array, "R K P"], n_sums: int, passes: Passes
) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
    """Expected statistics, `n_sums` rows of them, and log-likelihood under every model, by the kernel of the family."""
    parts = steps.parts(8 * n_sums * models.shape[2])
    n_models, n_parts = len(models), len(parts)
    arguments = (steps, parts, np.ascontiguousarray(models), family, n_sums)
    work = steps.n_steps * n_models
    statistics, logs = passes.ordered(_tasks, n_parts * n_models, *arguments, work=work)
    if n_parts == 1:
        return statistics, logs
    statistics = statistics.reshape(n_parts, n_models, *statistics.shape[1:])
    return statistics.sum(axis=0), np.ascontiguousarray(logs.reshape(n_parts, n_models).T).sum(axis=1)


def _tasks(
    steps: Steps,
    parts: Integer[Array, "B 2"],
    models: Float[Array, "R K P"],
    family: str,
    n_sums: int,
    first: int,
    last: int,
) -> tuple[Float[Array, "n Q P"], Float[Array, "n"]]:
    """Statistics and log-likelihood of tasks first to last - 1; task b * R + r is part b under model r.

    So a range of tasks asks for each of its parts once, for all models.
    """
    n_models, sum_up = len(models), getattr(kernel("em"), family)
    statistics, logs = np.empty((last - first, n_sums, models.shape[2])), np.empty(last - first)
    asked = range(first // n_models, -(-last // n_models))
    room = np.empty(1 + int(np.diff(parts[asked.start : asked.stop], axis=1).max()) if steps.travels else 0, np.int64)
    for part in asked:
        low, high = parts[part].tolist()
        window = steps.window(low, high, room)
        edges = np.array([window.low, window.high])
        start = max(part * n_models, first)
        end = min((part + 1) * n_models, last)
        one, other = start % n_models, end - part * n_models
        own = slice(start - first, end - first)
        sum_up(*window[:3], edges, models, statistics[own], logs[own], one, other)
    return statistics, logs


def merge(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int
) -> tuple[Shaped[Array, "T"], Integer[Array, "K1"], Float[Array, "K"]]:
    """Distinct sessions (codes, offsets) and how often each occurs; the input and no counts where that would not pay.

    Two sessions are the same when two independent 64-bit hashes of their steps agree. The answer does not depend on
    the order of the sessions, nor on that of the steps within them.
    """
    n_sessions = len(offsets) - 1
    if seems_diverse(n_sessions, partial(take, codes, offsets), n_codes):
        return codes, offsets, np.empty(0)
    hashes = hashes_of(codes, offsets, n_codes)
    order = np.lexsort(hashes)
    fresh = np.ones(n_sessions, bool)
    fresh[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
    if fresh.sum() > worth(n_sessions):
        return codes, offsets, np.empty(0)
    first = np.flatnonzero(fresh)
    counts = np.diff(np.append(first, n_sessions)).astype(np.float64)
    return *take(codes, offsets, order[first]), counts


def worth(n_sessions: int) -> float:
    """The most distinct sessions with which merging pays."""
    return min(n_sessions / 2, MOST)


def seems_diverse(n_sessions: int, pick: Pick, n_codes: int) -> bool:
    """Whether a sample of the sessions says that too many are distinct.

    Where no two of n are alike, all that is known is that about n^2 or more are distinct: so n^2 must be above `worth`.
    """
    if n_sessions <= SAMPLE:
        return False
    size = SAMPLE if n_sessions < _LARGE else 4 * SAMPLE
    return guess(*pick(np.linspace(0, n_sessions - 1, size).astype(np.int64)), n_codes) > worth(n_sessions)


def guess(codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int) -> float:
    """How many distinct sessions there may be, from the coincidences in a sample of them (the birthday problem)."""
    first = np.sort(hashes_of(codes, offsets, n_codes)[0])
    n = len(first)
    sizes = np.diff(np.append(np.flatnonzero(np.append(True, first[1:] != first[:-1])), n))
    coincidences = (sizes * (sizes - 1) / 2).sum()
    return float(n * (n - 1) / 2 / max(coincidences, 0.5))


def hashes_of(codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int) -> Integer[Array, "2 N"]:
    """Sums of random 64-bit numbers, one per code: blind to the order of the steps."""
    words = np.random.default_rng(n_codes).integers(0, 2**64, size=(2, n_codes), dtype=np.uint64)
    n_sessions = len(offsets) - 1
    hashes = np.empty((2, n_sessions), np.uint64)
    low = 0
    while low < n_sessions:
        high = max(int(np.searchsorted(offsets, offsets[low] + _HASHED_TOGETHER, side="right")) - 1, low + 1)
        steps = words[:, codes[offsets[low] : offsets[high]]]
        hashes[:, low:high] = np.add.reduceat(steps, offsets[low:high] - offsets[low], axis=1)
        low = high
    return hashes


def take(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], picked: Integer[Array, "n"]
) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
    """The picked sessions, with the steps of each in the order of their codes."""
    lengths = offsets[picked + 1] - offsets[picked]
    result = np.concatenate([[0], np.cumsum(lengths)])
    owner = np.repeat(np.arange(len(picked)), lengths)
    steps = codes[np.arange(result[-1]) - result[owner] + offsets[picked][owner]]
    return steps[np.lexsort((steps, owner))], result


def padded(n_types: int) -> int:
    """Columns of a model with `n_types` types.

    Wide models have an odd number of lanes: the kernel walks through rows at one column, and where rows are a power of
    two apart they would all compete for the same few lines of the processor's cache.
    """
    lanes = -(-n_types // LANES)
    return (lanes | 1) * LANES if lanes * LANES >= _WIDE else lanes * LANES


def equal_weights(n_models: int, n_rows: int, n_types: int) -> Float[Array, "R K P"]:
    """Models of equal weights and zeros elsewhere."""
    models = np.zeros((n_models, n_rows, padded(n_types)))
    models[:, 0, :n_types] = 1 / n_types
    return models


def normalised_weights(masses: Float[Array, "R P"], floor: Float[Array, "R P"] | float = 0.0) -> Float[Array, "R P"]:
    """Weights in proportion to `masses`, none below `floor` before they are made to sum to 1."""
    masses = np.maximum(masses, floor)
    return masses / masses.sum(axis=1, keepdims=True)


def tally(numbers: Shaped[Array, "S"], size: int) -> Float[Array, "n"]:
    """How often each of 0 to size - 1 occurs; in chunks, since counting needs wide integers."""
    chunks = range(0, len(numbers), _COUNTED_TOGETHER)
    return sum((np.bincount(numbers[i : i + _COUNTED_TOGETHER], minlength=size) for i in chunks), np.zeros(size))


def frozen(array: Array) -> Array:
    """A read-only view: kernels are compiled once for arrays that are always of one kind."""
    view = array.view()
    view.flags.writeable = False
    return view


def log_likelihoods(bandit: LatentBandit, sessions: Sessions | Packed, passes: Passes) -> Float[Array, "N"]:
    """log-likelihood of each session."""
    edges = session_edges(sessions, 0)
    (logs,) = passes.ordered(_logs, len(edges) - 1, sessions, bandit, edges, work=sessions.n_steps)
    return logs


def _logs(
    sessions: Sessions | Packed, bandit: LatentBandit, edges: Integer[Array, "B1"], first: int, last: int
) -> tuple[Float[Array, "n"]]:
    """Part by part, so that the logs of a session do not depend on which parts are asked for together."""
    parts = [sessions[slice(low, high)] for low, high in pairwise(edges[first : last + 1].tolist())]
    return (np.concatenate([np.logaddexp.reduce(belief.log_joint(bandit, part), axis=1) for part in parts]),)
