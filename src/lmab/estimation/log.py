"""The encoded log: the only object between data and kernels.

A session is a list of codes, and each code names a row of a model's table that holds one number per type: its
likelihood there. A kernel multiplies the rows of a session with the weights in row 0 and adds the posterior up in the
same rows. So whatever a session tells is one more code with one more row, and never another pass: what an arm paid,
and beside it the group of features that the session came with, whether it went on after a step, or the state in which
a step was decided (`Beside`). Codes may have a number beside them, where the row is a mean and no likelihood.

A log in memory, in the files of a packed log, a sample of it and a level of it are the same object. Each reward family
is one subclass, in a file of its own, that answers every question of estimation about its rewards.

Models are arrays, so that they can be added, subtracted and extrapolated whatever their reward family: a batch of R
models is one array (R, K, P). Row 0 holds the weights, the other rows what the family needs, in P columns (M types,
padded with types of weight 0 to a multiple of 8: see `padded`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.features import UNKNOWN
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.rewards import encode_values
from ..parallel import SERIAL, Arrays, Passes
from . import step_pairs
from .information import Information, check_size, normalised, summed, with_weights
from .passes import PARTITION, count_parts, edges_at, session_edges
from .traits.surface import Surface

LEARNED = "learned"  # The prior that a method is asked to learn.
START = 1.5  # Pseudo-plays at the arm's own mean under which a start is searched, and where no prior can be learned.
SAMPLE = 4096  # Sessions looked at to guess how many are distinct.
MOST = 1 << 24  # Distinct sessions that are kept in memory, wherever the log lies.
LANES = 8  # Types that the kernel works on at a time.
_LARGE = 1 << 24  # Logs of so many sessions need a larger sample: few sessions would always make merging seem worth it.
_CODED = 1 << 18  # Steps encoded at once.
_DRAWN = 1 << 22  # Sessions of a log in files whose types are drawn together.
_HASHED_STEPS = 1 << 18  # Steps hashed at once.
_HASHED_SESSIONS = 1 << 20  # Sessions of a log in files that are hashed together.
_WIDE = 128  # Columns from which on a power of two of them is avoided.
_COUNTED = 1 << 20  # Numbers counted at once.
_NONE: Float[Array, "0"] = np.empty(0)

Pick = Callable[[Any], tuple[Any, Any]]  # Gives codes and offsets of the sessions with these numbers.


@dataclass(frozen=True, eq=False)
class Prior:
    """Pseudo-plays that every type has seen: arm a `strength[a]` times, paying what `centre[a]` says.

    For rewards on Z values the centre is a distribution over them (so that strength times centre are pseudo-counts);
    for normal rewards and counts it is a mean. The objective gains sum_a strength[a] E[log density of such a reward],
    without the part that depends on the scale of normal rewards only.

    Examples:
        >>> import numpy as np
        >>> Prior(np.array([[0.25, 0.75]]), np.array([2.0])).pseudo_counts
        array([[0.5, 1.5]])
    """

    centre: Float[Array, "A *Z"]
    strength: Float[Array, "A"]  # not negative; all 0: maximum likelihood
    leaving: Float[Array, "K A Z"] | None = None  # centres of the chances to leave, of all types (K = 1) or of each
    freedom: Float[Array, "A"] | None = None  # steps that such a centre counts as; None: nobody learned it

    @classmethod
    def equal(cls, centre: Float[Array, "A *Z"], strength: float) -> Prior:
        """The same strength for every arm."""
        return cls(centre, np.full(len(centre), float(strength)))

    @cached_property
    def active(self) -> bool:
        """Whether there is any pseudo-play at all."""
        return bool(self.strength.any())

    @cached_property
    def pseudo_counts(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value in the pseudo-plays."""
        return self.strength[:, None] * self.centre


class Steps(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others: what kernels read."""

    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # sessions that each distinct one stands for; empty: one
    numbers: Float[Array, "n"]  # beside each code; empty: the codes say all
    low: int
    high: int

    @classmethod
    def of(cls, codes: Array, offsets: Array, counts: Array = _NONE, numbers: Array = _NONE) -> Steps:
        """All of the sessions in these arrays."""
        return cls(frozen(codes), frozen(offsets), frozen(counts), frozen(numbers), 0, len(offsets) - 1)

    @property
    def own(self) -> Steps:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        counts = self.counts[self.low : self.high]
        return Steps(self.codes[first:last], offsets, counts, self.numbers[first:last], 0, self.high - self.low)

    @property
    def n_steps(self) -> int:
        """Codes of these sessions."""
        return int(self.offsets[self.high] - self.offsets[self.low])

    def paired(self, n_symbols: int) -> Steps:
        """Return the same sessions with one code for two consecutive steps; single codes are below `n_symbols`."""
        codes, offsets = step_pairs.paired(self.codes, self.offsets, self.low, self.high, n_symbols)
        return Steps.of(codes, offsets, self.counts[self.low : self.high])


@runtime_checkable
class StepCodes(Protocol):
    """Codes after steps that follow from the codes of the arms and the numbers of the sessions: none is stored."""

    def of(self, codes: Integer[Array, "S"], offsets: Integer[Array, "K1"], low: int) -> Integer[Array, "S"]:
        """The codes after the steps of sessions `low`, `low` + 1, ...; -1: none."""

    def subset(self, rows: Integer[Array, "n"]) -> StepCodes:
        """The same for some of the sessions."""


class CodeBlock(NamedTuple):
    """The auxiliary codes of one component, whose rows of every table are addressed by its name.

    Models hold 1 in these rows until the component writes them: the ratio w(x) / w of a session's row of features, one
    over the normaliser of the state in which an arm was chosen, the probability of what followed a step.
    """

    name: str
    n_rows: int
    front: Integer[Array, "N"] | None = None  # one code in front of each session
    steps: Integer[Array, "S"] | StepCodes | None = None  # one code after each step; -1: none

    def subset(self, sessions: Sessions | Packed, rows: Integer[Array, "n"]) -> CodeBlock:
        """Return the auxiliary codes of some of the sessions."""
        front = None if self.front is None else self.front[rows]
        if self.steps is None:
            return self._replace(front=front)
        if not isinstance(self.steps, np.ndarray):
            return self._replace(front=front, steps=self.steps.subset(rows))
        assert isinstance(sessions, Sessions)
        lengths = sessions.offsets[rows + 1] - sessions.offsets[rows]
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(sessions.offsets[rows] - ends + lengths, lengths)
        return self._replace(front=front, steps=self.steps[places])


class Beside(NamedTuple):
    """Auxiliary codes of several components; their rows follow those of the arms, block by block."""

    blocks: tuple[CodeBlock, ...]

    @classmethod
    def of(cls, *blocks: CodeBlock | None) -> Beside | None:
        """Return the blocks that are not None together; None if there is none."""
        found = tuple(block for block in blocks if block is not None)
        return cls(found) if found else None

    @property
    def n_rows(self) -> int:
        """The number of auxiliary rows."""
        return sum(block.n_rows for block in self.blocks)

    @property
    def rows(self) -> dict[str, slice]:
        """The rows of each block, counted from the first auxiliary row."""
        edges = np.cumsum([0, *(block.n_rows for block in self.blocks)]).tolist()
        return {block.name: slice(*edge) for block, edge in zip(self.blocks, pairwise(edges), strict=True)}

    def subset(self, sessions: Sessions | Packed, rows: Integer[Array, "n"]) -> Beside:
        """Return the auxiliary codes of some of the sessions."""
        return Beside(tuple(block.subset(sessions, rows) for block in self.blocks))

    def joined(self, steps: Steps, n_own: int, low: int = 0) -> Steps:
        """Return the steps of sessions `low`, `low` + 1, ... with their auxiliary codes, whose numbers are 0."""
        codes, offsets, numbers = steps.codes.astype(np.int64), steps.offsets, steps.numbers
        first = {name: n_own + rows.start for name, rows in self.rows.items()}
        after, fronts = [], []
        for block in self.blocks:
            if block.steps is not None:
                own = block.steps if isinstance(block.steps, np.ndarray) else block.steps.of(codes, offsets, low)
                after.append(np.where(own >= 0, first[block.name] + own, -1))
            if block.front is not None:
                fronts.append(first[block.name] + block.front[low : low + len(offsets) - 1])
        if after:
            wide = np.stack([codes, *after], axis=1).ravel()
            kept, width = wide >= 0, 1 + len(after)
            if len(numbers):
                spread = np.zeros(len(wide))
                spread[::width] = numbers
                numbers = spread[kept]
            offsets = np.concatenate([[0], np.cumsum(kept)])[width * offsets]
            codes = wide[kept]
        for front in fronts:
            codes = np.insert(codes, offsets[:-1], front)
            numbers = np.insert(numbers, offsets[:-1], 0.0) if len(numbers) else numbers
            offsets = offsets + np.arange(len(offsets))
        return Steps.of(codes.astype(np.min_scalar_type(n_own + self.n_rows - 1)), offsets, steps.counts, numbers)


LETTERS = 3  # of a step: nobody knows what came after it, the session went on, or it was left


def with_letters(
    codes: Shaped[Array, "T"], offsets: Integer[Array, "N1"], endings: Integer[Array, "N"] | None, n_cells: int
) -> Shaped[Array, "T"]:
    """The codes of (arm, value) with what came after each step: three blocks of `n_cells` codes, one for each letter.

    Examples:
        >>> import numpy as np
        >>> with_letters(np.array([1, 0, 1, 1], np.uint8), np.array([0, 2, 3, 4]), np.array([0, 1, 2]), 2)
        array([3, 4, 3, 1], dtype=uint8)
    """
    found = codes.astype(np.min_scalar_type(LETTERS * n_cells - 1))
    found += found.dtype.type(n_cells)
    last = offsets[1:] - 1
    letters = UNKNOWN - (np.full(len(last), UNKNOWN) if endings is None else endings.astype(np.int64))
    found[last] = codes[last] + n_cells * letters
    return found


class Coordinates(Protocol):
    """Description of models by numbers without bounds, in which the likelihood is smooth."""

    def place(self, model: Float[Array, "K P"]) -> Float[Array, "n"]:
        """Return the coordinates of a model."""

    def model(self, place: Float[Array, "n"]) -> Float[Array, "K P"]:
        """Return the model with these coordinates."""

    def gradient(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "n"]:
        """Return the gradient of the objective at a model, from its expected statistics."""

    def longest(self, direction: Float[Array, "n"]) -> float:
        """Return the largest move of a single parameter, unscaled, along the direction."""


@dataclass(frozen=True, eq=False)
class Log(ABC):
    """A log encoded for one reward family."""

    family: ClassVar[str]  # as `lmab.fit(rewards=...)` names it
    kernel_name: ClassVar[str] = "categorical"  # the kernel that reads its codes
    n_last_rows: ClassVar[int] = 0  # rows of a model after the auxiliary ones
    has_coordinates: ClassVar[bool] = False  # whether `coordinates` describes models by numbers without bounds

    sessions: Sessions | Packed  # as they were given
    memory: Steps | None  # the distinct sessions; None: they stay in the files of the packed log
    beside: Beside | None = field(default=None, kw_only=True)  # codes beside those of the arms
    letters: bool = field(default=False, kw_only=True)  # whether codes also say what came after the step
    every: int = field(default=1, kw_only=True)  # 16: every 16th part counts, the others are left out
    known_scale: float | None = field(default=None, kw_only=True)  # Scale of normal rewards; None: estimated.
    _cuts: dict[int, Integer[Array, "..."]] = field(default_factory=dict, repr=False, kw_only=True)  # by their number

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: nothing that is computed again as easily."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    # Where the codes lie, and how passes are cut into parts of them.

    @property
    def travels(self) -> bool:
        """Whether a pickle is small: the codes lie in files, which another process opens itself."""
        return self.memory is None

    @property
    def n_arms(self) -> int:
        return self.sessions.n_arms

    @property
    @abstractmethod
    def n_own(self) -> int:
        """Codes of the arms; those beside them follow."""

    @property
    def n_own_rows(self) -> int:
        """Rows of the arms in a model, which its family may turn into more rows of a table."""
        return self.n_own

    @property
    def n_beside(self) -> int:
        """Rows of a table for the codes beside those of the arms."""
        return 0 if self.beside is None else self.beside.n_rows

    @property
    def n_symbols(self) -> int:
        """Different codes, of the arms and beside them."""
        return self.n_own + self.n_beside

    @property
    def n_model_rows(self) -> int:
        """The rows of a model: weights, rewards, auxiliary rows, and the last rows of its family."""
        return 1 + self.n_own_rows + self.n_beside + self.n_last_rows

    @property
    def n_sums(self) -> int:
        """Rows of the statistics."""
        return 1 + self.n_symbols

    @property
    def n_all(self) -> int:
        """Distinct sessions, those of the parts that are left out included."""
        return self._partitions.n_sessions if self.memory is None else len(self.memory.offsets) - 1

    @property
    def n_distinct(self) -> int:
        """Sessions that a pass walks through, after merging identical ones."""
        return -(-self.n_all // self.every)

    @property
    def _n_codes(self) -> int:
        """Codes of all distinct sessions; in files those of the arms, by which parts are cut."""
        return self._partitions.n_steps if self.memory is None else int(self.memory.offsets[-1])

    @property
    def n_steps(self) -> int:
        """Codes that a pass walks through."""
        return self._n_codes // self.every

    @property
    @abstractmethod
    def _n_bytes(self) -> int:
        """Bytes of what a pass reads."""

    @property
    def largest(self) -> float | None:
        """The largest absolute number beside a code; None where the codes say all."""
        return None

    @property
    def _partitions(self) -> Any:
        assert isinstance(self.sessions, Packed)
        return self.sessions.partitions

    def steps(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Steps:
        """Arrays with the sessions low to high - 1; offsets that are made for them lie in `room`, if given."""
        if self.memory is not None:
            return self.memory._replace(low=low, high=high)
        found = self._read(low, high, room)
        return found if self.beside is None else self.beside.joined(found, self.n_own, low)

    @abstractmethod
    def _read(self, low: int, high: int, room: Integer[Array, "m"] | None) -> Steps:
        """Sessions of a packed log from its files, without the codes beside them."""

    @cached_property
    def held(self) -> Steps:
        """All sessions in memory."""
        return self.steps(0, self.n_all)

    @property
    def codes(self) -> Shaped[Array, "T"]:
        return self.held.codes

    @property
    def offsets(self) -> Integer[Array, "K1"]:
        return self.held.offsets

    @property
    def counts(self) -> Float[Array, "C"]:
        return self.held.counts

    @cached_property
    def held_in_pairs(self) -> Steps:
        """All sessions in memory, with one code for two consecutive steps."""
        return self.held.paired(self.n_symbols)

    def in_pairs(self, steps: Steps) -> Steps:
        """Return some sessions of this log in pairs of steps; those of a log in memory are paired once."""
        if self.memory is None:
            return steps.paired(self.n_symbols)
        return self.held_in_pairs._replace(low=steps.low, high=steps.high)

    @cached_property
    def own(self) -> Steps:
        """All sessions in memory, without the codes beside those of the arms."""
        return self.alone(self.held)

    def alone(self, steps: Steps) -> Steps:
        """The steps without the codes beside those of the arms."""
        if self.beside is None:
            return steps
        kept: Bool[Array, "T"] = steps.codes < self.n_own
        offsets = np.concatenate([[0], np.cumsum(kept)])[steps.offsets]
        numbers = steps.numbers[kept] if len(steps.numbers) else steps.numbers
        return Steps.of(steps.codes[kept], offsets, steps.counts, numbers)

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        """How many sessions each distinct one stands for."""
        return self.counts if len(self.counts) else np.ones(self.n_distinct)

    def _cut(self, n_parts: int) -> Integer[Array, "B1"]:
        """The edges of parts with about equally many codes; none is empty."""
        if n_parts not in self._cuts:
            targets = np.arange(1, n_parts) * (self._n_codes / n_parts)
            where = self._partitions.cuts(targets) if self.memory is None else np.searchsorted(self.offsets, targets)
            self._cuts[n_parts] = edges_at(where, self.n_all)
        return self._cuts[n_parts]

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first session of each part and the one after its last, for results of `result_bytes` a part.

        They depend on the log and the size of a part's result only, never on where the log lies or passes run.
        """
        edges = self._cut(count_parts(self._n_codes, self._n_bytes, result_bytes if self.every == 1 else 0))
        return np.stack([edges[:-1], edges[1:]], axis=1)[self.every // 2 :: self.every]

    def partitions(self) -> Iterator[Arrays]:
        """(codes, lengths, counts, numbers) of parts as long as a device wants them."""
        edges = self._cut(-(-self._n_codes // PARTITION))
        for low, high in pairwise(edges.tolist()) if self.every == 1 else self.parts(0).tolist():
            own = self.steps(low, high).own
            yield own.codes, np.diff(own.offsets), own.counts, own.numbers

    def level(self, every: int) -> Self | None:
        """One of `every` parts of the log, on which a climb begins; None where the log is too small for that."""
        return None if count_parts(self._n_codes, self._n_bytes, 0) < every else replace(self, every=every)

    # What estimation asks of a reward family.

    @property
    def values(self) -> Float[Array, "Z"] | None:
        """The reward values; None where rewards are a matter of means and have no list of values."""
        return None

    @property
    def bins(self) -> Bins | None:
        """How rewards were cut into the values, where they were."""
        return None

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers that describe a type: (arm, value) pairs, or arms."""

    @abstractmethod
    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        """Free parameters, of a model of the given rank; a value that an arm never paid has none."""

    @abstractmethod
    def coded(self, sessions: Sessions | Packed, beside: Beside | None) -> Self:
        """Return the same encoding of other sessions, with these auxiliary codes."""

    def weighted(self, weights: Float[Array, "N"]) -> Self:
        """Return the log with the number of sessions that each session counts as, which need not be whole."""
        raise InvalidArgument(f"session weights must be None for {self.family} rewards, got some")

    def subset(self, rows: Integer[Array, "n"]) -> Self:
        """Return the same encoding of some of the sessions."""
        beside = None if self.beside is None else self.beside.subset(self.sessions, rows)
        return self.coded(self.sessions[rows], beside)

    @abstractmethod
    def prior(self, strength: float) -> Prior:
        """`strength` pseudo-plays per type and arm that pay what the arm pays on average in the log."""

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

    @abstractmethod
    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: Prior
    ) -> Float[Array, "R K P"]:
        """The models that explain statistics and prior best; what they say nothing about stays as in `models`."""

    @abstractmethod
    def log_prior(self, models: Float[Array, "R K M"], prior: Prior) -> Float[Array, "R"]:
        """log density of the prior, up to a constant, at models without padding."""

    def coordinates(
        self, model: Float[Array, "K P"], statistics: Float[Array, "Q P"], prior: Prior, n_types: int
    ) -> Coordinates:
        """Return coordinates without bounds for models near `model`, which gave the statistics."""
        raise NotImplementedError(f"{type(self).__name__} has no coordinates")

    @abstractmethod
    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The extrapolated `trial` made valid; nothing that is positive in the models `near` becomes zero."""

    @abstractmethod
    def project(self, model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int) -> Float[Array, "K P"]:
        """A valid model of the rank near `model`."""

    @abstractmethod
    def improve(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int
    ) -> Float[Array, "K P"]:
        """A better model of the rank than `model`, which has that rank, for statistics and prior."""

    @abstractmethod
    def random_models(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
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

    @abstractmethod
    def chain(self, bandit: LatentBandit) -> Chain:
        """A Gibbs chain that starts from the bandit."""

    @property
    @abstractmethod
    def surface(self) -> Surface:
        """Arms that are linear in the factors of a session."""

    @abstractmethod
    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The observed information about the bandit's parameters, that of the prior included."""

    def possible(self, bandit: LatentBandit) -> LatentBandit:
        """The bandit, made to exclude no reward that a session of this log may hold."""
        return bandit

    @abstractmethod
    def unrelated(self, test: Sessions) -> Float[Array, "N"]:
        """log-likelihood of each test session where every session draws anew what each arm pays, as in this log.

        Plays of one arm in one session are alike; plays of different arms are independent.
        """

    def with_letters(self) -> Log:
        """The same log in codes that also say what came after each step, where rewards take finitely many values."""
        return self

    def without_letters(self) -> Log:
        """The same log in codes of arms and rewards alone."""
        return self

    def with_leaving(self, prior: Prior, model: Float[Array, "K P"], n_types: int, passes: Passes) -> Prior:
        """The prior with centres of the chances to leave, from what the log says under the model, where it has them."""
        return prior

    def draw_leaving(
        self,
        bandit: LatentBandit,
        n_draws: int,
        rng: np.random.Generator,
        n_types: int | None = None,
        prior: Prior | None = None,
    ) -> Sequence[Any] | None:
        """Chances to leave (M, A, Z) that the log allows, for models like the bandit; None where nobody leaves it.

        Models may have another number of types where the type does not matter.
        """
        return None

    def misfit(self, bandit: LatentBandit) -> list[str]:
        """Why the rewards of the bandit, which was fitted to this log, do not describe it; nothing where they do."""
        return []

    # What follows for every family.

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected sufficient statistics (row 0: sessions per type) and log-likelihood under every model."""
        return passes.expectation(self, models) or self._summed(models, passes)

    def _summed(self, tables: Float[Array, "R K P"], passes: Passes) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """What the kernel adds up over all parts, under every table."""
        n_columns, n_models = tables.shape[2], len(tables)
        pairs = (
            self.kernel_name == "categorical"
            and step_pairs.is_faster(self._n_codes, self.n_symbols, n_columns)
            and step_pairs.can_multiply(tables)
        )
        parts = self.parts(8 * n_columns * (step_pairs.count_rows(self.n_symbols) if pairs else self.n_sums))
        n_parts = len(parts)
        arguments = (self, parts, on_cache_lines(tables.shape, tables), pairs)
        statistics, logs = passes.ordered(_tasks, n_parts * n_models, *arguments, work=self._n_codes * n_models)
        if n_parts == 1:
            return statistics, logs
        statistics = statistics.reshape(n_parts, n_models, *statistics.shape[1:])
        return statistics.sum(axis=0), np.ascontiguousarray(logs.reshape(n_parts, n_models).T).sum(axis=1)

    def _kernel_arrays(self, steps: Steps) -> Arrays:
        """What the kernel is given of the steps."""
        return steps.codes, steps.offsets, steps.counts

    def log_likelihood(self, bandit: LatentBandit, passes: Passes = SERIAL) -> float:
        """Total natural log-likelihood of the log."""
        if bandit.step_effects is not None:  # the codes of the log do not name steps
            return float(self._by_session(bandit, passes).sum())
        return float(self.expectation(self.pack(bandit), passes)[1][0])

    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        """log-likelihood of each session under a bandit that was fitted to others, so made to exclude nothing."""
        return self._by_session(self.possible(bandit), passes)

    def _by_session(self, bandit: LatentBandit, passes: Passes) -> Float[Array, "N"]:
        edges, arguments = session_edges(self.sessions, 0), (self.sessions, bandit)
        (logs,) = passes.ordered(_logs, len(edges) - 1, *arguments, edges, work=self.sessions.n_steps)
        return logs

    def empty_models(self, n_models: int, n_rows: int, n_types: int) -> Float[Array, "R K P"]:
        """Models of equal weights, 1 in the rows of the codes beside the arms', and zeros elsewhere."""
        models = np.zeros((n_models, n_rows, padded(n_types)))
        models[:, 0, :n_types] = 1 / n_types
        models[:, 1 + self.n_own_rows : 1 + self.n_own_rows + self.n_beside, :n_types] = 1.0
        return models


@dataclass(frozen=True, eq=False)
class ValuesLog(Log):
    """A log as codes a * Z + z of its Z distinct rewards, identical sessions merged where that pays."""

    listed: Float[Array, "Z"]  # the distinct rewards, each with a code for every arm
    recode: Shaped[Array, "c"] | None = field(default=None, kw_only=True)  # from codes in the files; None: the same

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, listed: Float[Array, "Z"], beside: Beside | None = None, **more: Any
    ) -> Self:
        """The log in codes of the listed rewards; `more` are fields of the family."""
        if isinstance(sessions, Packed):
            log = cls(sessions, None, listed, recode=_recoding(sessions, listed), beside=beside, **more)
            return replace(log, memory=merged_from_files(log, log._pick))
        steps, n_codes = cls._encoded(sessions, listed, beside, bool(more.get("letters", False)))
        merged = Steps.of(*merge(steps.codes, steps.offsets, n_codes))
        return cls(sessions, merged, listed, beside=beside, **more)

    @staticmethod
    def _encoded(
        sessions: Sessions, listed: Float[Array, "Z"], beside: Beside | None, letters: bool
    ) -> tuple[Steps, int]:
        """Return the codes of all sessions in memory, and the number of different codes."""
        n_cells = n_codes = sessions.n_arms * len(listed)
        codes: Any = np.empty(sessions.n_steps, np.min_scalar_type(n_codes - 1))
        for start in range(0, sessions.n_steps, _CODED):
            chunk = slice(start, start + _CODED)
            place = encode_values(listed, sessions.rewards[chunk], first_step=start)
            codes[chunk] = sessions.arms[chunk] * np.int64(len(listed)) + place
        offsets = sessions.offsets
        if letters:
            codes, n_codes = with_letters(codes, offsets, sessions.endings, n_cells), LETTERS * n_cells
        if beside is not None:
            codes, offsets = beside.joined(Steps.of(codes, offsets), n_codes)[:2]
            n_codes += beside.n_rows
        return Steps.of(codes, offsets), n_codes

    def weighted(self, weights: Float[Array, "N"]) -> Self:
        sessions = self.sessions.load()
        steps, _ = self._encoded(sessions, self.listed, self.beside, self.letters)
        counted = Steps.of(steps.codes, steps.offsets, np.asarray(weights, np.float64))
        return replace(self, sessions=sessions, memory=counted, _cuts={})

    def coded(self, sessions: Sessions | Packed, beside: Beside | None) -> Self:
        return self.encode(sessions, self.listed, beside, **self._more)

    @property
    def _more(self) -> dict[str, Any]:
        """Fields that a sample shares."""
        return {"letters": self.letters}

    def level(self, every: int) -> Self | None:
        part = super().level(every)
        if part is not None:
            part.__dict__["cells"] = self.cells  # which are those of the whole log, counted once
        return part

    @property
    def n_cells(self) -> int:
        """Pairs of arm and value."""
        return self.n_arms * len(self.listed)

    @property
    def n_own(self) -> int:
        return self.n_cells * (LETTERS if self.letters else 1)

    @property
    def _n_bytes(self) -> int:
        if self.memory is not None:
            return int(self.memory.codes.nbytes)
        if self.letters:
            return self._n_codes * np.min_scalar_type(self.n_own - 1).itemsize
        return self._n_codes * (self._partitions.bytes_per_step if self.recode is None else self.recode.itemsize)

    def _read(self, low: int, high: int, room: Integer[Array, "m"] | None) -> Steps:
        offsets, codes = self._partitions.part(low, high, "codes", room=room)
        codes = self._recoded(codes)
        if self.letters:
            codes = with_letters(codes, offsets, self._partitions.of_sessions("endings", low, high), self.n_cells)
        return Steps.of(codes, offsets)

    def _pick(self, rows: Integer[Array, "n"]) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
        """Codes and offsets of the sessions `rows`, which rise."""
        offsets, codes = self._partitions.pick(rows, "codes")
        codes = self._recoded(codes)
        if self.letters:
            codes = with_letters(codes, offsets, self.sessions.endings[rows], self.n_cells)  # type: ignore[index]
        if self.beside is None:
            return codes, offsets
        beside = self.beside.subset(self.sessions, rows)
        return beside.joined(Steps.of(codes, offsets), self.n_own)[:2]

    def _recoded(self, codes: Shaped[Array, "T"]) -> Any:
        return codes if self.recode is None else self.recode.take(codes)

    def pieces(self) -> Iterator[Steps]:
        """The log as it lies in memory, or some sessions of a log in files after the other."""
        size = _DRAWN if self.travels else max(self.n_all, 1)
        for low in range(0, self.n_all, size):
            yield self.steps(low, min(low + size, self.n_all))

    @cached_property
    def cells(self) -> Float[Array, "A Z"]:
        """How often each arm paid each of the listed rewards."""
        if isinstance(self.sessions, Packed):
            cells = np.zeros((self.n_arms, len(self.listed)))
            cells[:, _places(self.sessions, self.listed)] = self.sessions.cells
            return cells
        size = self.n_own + self.n_beside
        if len(self.counts):
            plays = np.bincount(self.codes, np.repeat(self.counts, np.diff(self.offsets)), minlength=size)
        else:
            plays = tally(self.codes, size)
        return plays[: self.n_own].reshape(-1, self.n_arms, len(self.listed)).sum(axis=0)

    @cached_property
    def played(self) -> Bool[Array, "A"]:
        return self.cells.sum(axis=1) > 0

    def by_arm(self, tables: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of the arms' codes in tables, as a view; with letters those whose end is unknown: the rewards'."""
        shape = (len(tables), self.n_arms, len(self.listed), tables.shape[2])
        return tables[:, 1 : 1 + self.n_cells].reshape(shape)

    def by_letter(self, tables: Float[Array, "R K P"]) -> Float[Array, "R L A Z P"]:
        """The rows of the arms' codes in tables or their sums, by what came after the step, as a view."""
        shape = (len(tables), -1, self.n_arms, len(self.listed), tables.shape[2])
        return tables[:, 1 : 1 + self.n_own].reshape(shape)

    def counted(self, statistics: Float[Array, "R Q P"]) -> Float[Array, "R A Z P"]:
        """The expected steps of each arm and value, whatever came after them."""
        return self.by_letter(statistics).sum(axis=1) if self.letters else self.by_arm(statistics)


def _places(packed: Packed, listed: Float[Array, "Z"]) -> Integer[Array, "V"]:
    """The place of each reward of the packed log among the listed ones."""
    assert packed.values is not None
    return encode_values(listed, packed.values)


def _recoding(packed: Packed, listed: Float[Array, "Z"]) -> Shaped[Array, "c"] | None:
    """The code of each code in the files; None where the files already use these codes."""
    assert packed.values is not None
    if np.array_equal(packed.values, listed):
        return None
    table = (np.arange(packed.n_arms)[:, None] * len(listed) + _places(packed, listed)).ravel()
    return table.astype(np.min_scalar_type(packed.n_arms * len(listed) - 1))


@dataclass(frozen=True, eq=False)
class CodeScores:
    """What every code of the arms says in the terms of a bandit."""

    arms: Integer[Array, "D"]
    logs: Float[Array, "D M"]  # log-probability in every type
    scores: Float[Array, "D M K"]  # gradient of that in the coordinates of the arm and type
    seen: Float[Array, "A M K K"]  # information of one play of an arm in a type that is known
    beside: Float[Array, "B M"] | None = None  # logs of the rows of codes beside those of the arms; None: all are 0


def information_of_codes(
    log: ValuesLog, weights: Float[Array, "M"], scores: CodeScores, prior: Prior, passes: Passes
) -> Float[Array, "P P"]:
    """The information of a log and of a prior whose strengths are plays in known types."""
    n_arms, n_types, n_entries = scores.seen.shape[:3]
    size = n_types * (1 + n_arms * n_entries)
    check_size(n_types, size)
    matrix = summed(partial(_information, log, weights, scores), log, size, passes)
    _add_seen(matrix, np.repeat(prior.strength[:, None], n_types, axis=1), scores.seen)
    return with_weights(matrix, weights, float(len(log.sessions)))


def _information(
    log: ValuesLog, weights: Float[Array, "M"], scores: CodeScores, low: int, high: int
) -> Float[Array, "Q Q"]:
    """What some sessions tell about the rewards, less what is missing because their types are not seen."""
    n_arms, n_types, n_entries = scores.seen.shape[:3]
    whole = log.steps(low, high).own
    found = log.alone(whole)
    offsets, codes = found.offsets, found.codes.astype(np.int64)
    counts, arms = found.counts if len(found.counts) else np.ones(high - low), scores.arms[codes]
    read, logs = (
        (found, scores.logs) if scores.beside is None else (whole, np.concatenate([scores.logs, scores.beside]))
    )
    with np.errstate(divide="ignore"):
        joint = np.log(weights) + np.add.reduceat(logs[read.codes.astype(np.int64)], read.offsets[:-1], axis=0)
    shares = normalised(joint, weights)
    size = n_types * (1 + n_arms * n_entries)
    result = np.empty((size, size))
    kernel("sums").missing(arms, codes, offsets, counts, shares, scores.scores, result)
    np.negative(result, out=result)
    expected = np.repeat(shares * counts[:, None], np.diff(offsets), axis=0)
    plays = np.stack([np.bincount(arms, column, minlength=n_arms) for column in expected.T], axis=1)
    _add_seen(result, plays, scores.seen)
    return result


def _add_seen(matrix: Float[Array, "Q Q"], plays: Float[Array, "A M"], seen: Float[Array, "A M K K"]) -> None:
    """Add the information of plays in known types to the blocks of the arms and types."""
    n_types, n_entries = seen.shape[1:3]
    starts = n_types + np.arange(plays.size) * n_entries
    rows = starts[:, None] + np.arange(n_entries)
    blocks = plays[:, :, None, None] * seen
    matrix[rows[:, :, None], rows[:, None, :]] += blocks.reshape(plays.size, n_entries, n_entries)


@dataclass(frozen=True, eq=False)
class SessionArms:
    """Plays of one arm in one session, together."""

    arm: Integer[Array, "G"]
    session: Integer[Array, "G"]
    of_step: Integer[Array, "S"]  # the pair of session and arm of each step

    @classmethod
    def of(cls, sessions: Sessions) -> SessionArms:
        owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
        keys, inverse = np.unique(owner * sessions.n_arms + sessions.arms, return_inverse=True)
        return cls(keys % sessions.n_arms, keys // sessions.n_arms, inverse)

    def sums(self, weights: Float[Array, "S"] | None = None) -> Float[Array, "G"]:
        return np.bincount(self.of_step, weights, minlength=len(self.arm)).astype(np.float64)


class Chain(ABC):
    """One state of a Gibbs sampler over models of the log; `sweep` moves it."""

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

    @property
    def leaving(self) -> Float[Array, "M A Z"] | None:
        """The chances to leave; None where the log's codes do not say who leaves."""
        return None

    @property
    def freedom(self) -> Float[Array, "A"] | None:
        """Steps that an arm's centres of chances to leave count as; None where codes do not say who leaves."""
        return None

    @abstractmethod
    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A *Z"], Float[Array, "A"]]:
        """Where the types of each arm lie, and one over the pseudo-plays that this is worth, in this state."""

    def free(self) -> None:
        """Believe from now on no more that arms are alike than that they differ, where the laws of arms fall."""
        return

    @staticmethod
    @abstractmethod
    def prior(centre: Float[Array, "A *Z"], strength: Float[Array, "A"]) -> Prior:
        """The prior of centres and strengths that were averaged over draws."""

    @property
    def group_sums(self) -> Float[Array, "G M"]:
        """Of the last sweep: how many sessions of each group of features had each type."""
        raise NotImplementedError(f"{type(self).__name__} knows no groups of people")

    def weigh_groups(self, common: Float[Array, "M"], each: Float[Array, "G M"]) -> None:
        """Give the sessions of each group their own weights from the next sweep on."""
        raise NotImplementedError(f"{type(self).__name__} knows no groups of people")


def _tasks(
    log: Log, parts: Integer[Array, "B 2"], tables: Float[Array, "R K P"], pairs: bool, first: int, last: int
) -> tuple[Float[Array, "n Q P"], Float[Array, "n"]]:
    """Statistics and log-likelihood of tasks first to last - 1; task b * R + r is part b under table r.

    So a range of tasks asks for each of its parts once, for all tables. `pairs` allows pairs of steps in long parts.
    """
    n_models, n_columns, sum_up = len(tables), tables.shape[2], getattr(kernel("em"), log.kernel_name)
    statistics, logs = on_cache_lines((last - first, log.n_sums, n_columns)), np.empty(last - first)
    products = on_cache_lines((2, step_pairs.count_rows(log.n_symbols), n_columns)) if pairs else _NONE
    asked = range(first // n_models, -(-last // n_models))
    room = np.empty(1 + int(np.diff(parts[asked.start : asked.stop], axis=1).max()) if log.travels else 0, np.int64)
    for part in asked:
        steps = log.steps(int(parts[part, 0]), int(parts[part, 1]), room)
        start = max(part * n_models, first)
        end = min((part + 1) * n_models, last)
        one, other = start % n_models, end - part * n_models
        own = slice(start - first, end - first)
        if pairs and step_pairs.is_faster(steps.n_steps, log.n_symbols, n_columns):
            steps = log.in_pairs(steps)
            arrays = (*log._kernel_arrays(steps), np.array([steps.low, steps.high]), tables, products)
            kernel("em").in_pairs(*arrays, statistics[own], logs[own], one, other)
        else:
            arrays = (*log._kernel_arrays(steps), np.array([steps.low, steps.high]), tables)
            sum_up(*arrays, statistics[own], logs[own], one, other)
    return statistics, logs


def _logs(
    sessions: Sessions | Packed, bandit: LatentBandit, edges: Integer[Array, "B1"], first: int, last: int
) -> tuple[Float[Array, "n"]]:
    """Part by part, so that the logs of a session do not depend on which parts are asked for together."""
    parts = [sessions[slice(low, high)] for low, high in pairwise(edges[first : last + 1].tolist())]
    return (np.concatenate([np.logaddexp.reduce(belief.log_joint(bandit, part), axis=1) for part in parts]),)


def count_parameters(n_types: int, n_features: int, rank: int | None) -> int:
    """Weights, and M points in n_features dimensions or in an affine space of rank - 1 dimensions there."""
    if rank is None or rank > min(n_types - 1, n_features):
        return n_types - 1 + n_types * n_features
    return n_types - 1 + n_features + (rank - 1) * (n_types - 1 + n_features - (rank - 1))


def padded(n_types: int) -> int:
    """Columns of a model with `n_types` types.

    Wide models have an odd number of lanes: the kernel walks through rows at one column, and where rows are a power of
    two apart they would all compete for the same few lines of the processor's cache.
    """
    lanes = -(-n_types // LANES)
    return (lanes | 1) * LANES if lanes * LANES >= _WIDE else lanes * LANES


def normalised_weights(masses: Float[Array, "R P"], floor: Float[Array, "R P"] | float = 0.0) -> Float[Array, "R P"]:
    """Weights in proportion to `masses`, none below `floor` before they are made to sum to 1."""
    masses = np.maximum(masses, floor)
    return masses / masses.sum(axis=1, keepdims=True)


def tally(numbers: Shaped[Array, "S"], size: int) -> Float[Array, "n"]:
    """How often each of 0 to size - 1 occurs; in chunks, since counting needs wide integers."""
    chunks = range(0, len(numbers), _COUNTED)
    return sum((np.bincount(numbers[i : i + _COUNTED], minlength=size) for i in chunks), np.zeros(size))


def on_cache_lines(shape: tuple[int, ...], values: Float[Array, "..."] | None = None) -> Float[Array, "..."]:
    """Return an array of numbers, or of `values`, whose rows of eight each fill one line of the processor's cache.

    NumPy aligns to 16 bytes only, so that most rows would lie across two lines, which costs the kernel a third.

    Examples:
        >>> on_cache_lines((3, 8)).ctypes.data % 64
        0
    """
    size = int(np.prod(shape))
    room = np.empty(size + LANES)
    start = (-room.ctypes.data % (8 * LANES)) // 8
    found = room[start : start + size].reshape(shape)
    if values is not None:
        found[:] = values
    return found


def frozen(array: Array) -> Array:
    """A read-only view: kernels are compiled once for arrays that are always of one kind."""
    view = array.view()
    view.flags.writeable = False
    return view


# Merging: sessions that are identical up to the order of their steps are stored once, with a count.


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


def merged_from_files(log: Log, pick: Pick) -> Steps | None:
    """Distinct sessions of a packed log in memory with their counts, where that pays; None: they stay in the files.

    Found partition by partition, by the rules of `merge`: the same log gives the same arrays wherever it lies.
    """
    n, n_codes = log.n_all, log.n_own + log.n_beside
    if seems_diverse(n, pick, n_codes):
        return None
    hashes, counts, rows = np.empty((2, 0), np.uint64), np.empty(0), np.empty(0, np.int64)
    for low in range(0, n, _HASHED_SESSIONS):
        steps = log.steps(low, min(low + _HASHED_SESSIONS, n))
        found = hashes_of(steps.codes, steps.offsets, n_codes)
        hashes, counts, rows = _joined(
            np.concatenate([hashes, found], axis=1),
            np.concatenate([counts, np.ones(steps.high)]),
            np.concatenate([rows, low + np.arange(steps.high)]),
        )
        if len(rows) > worth(n):
            return None
    order = np.argsort(rows)
    codes, offsets = pick(rows[order])
    codes, offsets = take(codes, offsets, np.argsort(order))
    return Steps.of(codes, offsets, counts)


def _joined(
    hashes: Integer[Array, "2 n"], counts: Float[Array, "n"], rows: Integer[Array, "n"]
) -> tuple[Integer[Array, "2 k"], Float[Array, "k"], Integer[Array, "k"]]:
    """Hashes in order, each once, with the sum of its counts and its first row."""
    order = np.lexsort(hashes)
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
    first = np.flatnonzero(fresh)
    return hashes[:, order[first]], np.add.reduceat(counts[order], first), rows[order[first]]


def worth(n_sessions: int) -> float:
    """Return the most distinct sessions for which merging pays.

    At .53 N distinct sessions an iteration of EM is 1.2 to 1.4 times faster, at .78 N 1.1 times slower.
    """
    return min(0.75 * n_sessions, MOST)


def seems_diverse(n_sessions: int, pick: Pick, n_codes: int) -> bool:
    """Return whether a sample of the sessions indicates that too many are distinct.

    Of N sessions drawn from S equally likely ones S (1 - exp(-N / S)) are distinct. If no two of n are alike, all that
    is known is that S is about n^2 or more: so n^2 must be above `worth`.
    """
    if n_sessions <= SAMPLE:
        return False
    size = SAMPLE if n_sessions < _LARGE else 4 * SAMPLE
    possible = guess(*pick(np.linspace(0, n_sessions - 1, size).astype(np.int64)), n_codes)
    return -possible * np.expm1(-n_sessions / possible) > worth(n_sessions)


def guess(codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int) -> float:
    """Return the number of equally likely sessions that would give as many coincidences (the birthday problem)."""
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
        high = max(int(np.searchsorted(offsets, offsets[low] + _HASHED_STEPS, side="right")) - 1, low + 1)
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
