"""The protocol of a component: one kind of information in a session, with its rows of the likelihood table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..estimation.log import CodeBlock, Log

_SHRINK = 0.02  # An extrapolated parameter that must stay positive keeps at least this part of its value.


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of likelihood tables, or the expected counts of these rows, addressed by the name of their component."""

    array: Float[Array, "R Q P"]  # R models, Q rows, P columns: the types, and padding
    places: Mapping[str, slice]

    def __getitem__(self, name: str) -> Float[Array, "R k P"]:
        """Return the rows of a component, as a view."""
        return self.array[:, self.places[name]]


class Component(ABC):
    """One kind of information in a session: features, returning persons, exposure, or your own.

    A component has `n_rows` rows of parameters, with a column per type, and possibly codes of its own in every session
    (`codes`), each with a row in the likelihood table. The likelihood of a session is the product of the rows of its
    codes; `write` multiplies what the component knows into them. The E step sums the posterior of the sessions by row,
    and `update` computes new parameters from these expected counts. Only `n_rows`, `write` and `update` are required.

    Examples:
        >>> import numpy as np, lmab
        >>> class Weekday(lmab.components.Component):
        ...     '''The day of a session, whose distribution depends on the type.'''
        ...     name = "weekday"
        ...     n_rows = 7
        ...     def __init__(self, days):
        ...         self.days = days
        ...     def codes(self, sessions):
        ...         return self.block(7, front=self.days)
        ...     def write(self, own, table):
        ...         table[self.name][:] *= own
        ...     def update(self, own, memo, counts, ahead):
        ...         sums = counts[self.name] + 1.0
        ...         return sums / sums.sum(axis=1, keepdims=True)
        ...     def n_parameters(self, n_types):
        ...         return 6 * n_types
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=4, rng=0)
        >>> found = lmab.fit(log, n_types=2, components=(Weekday(np.arange(300) % 7),), rng=0)
        >>> found.components["weekday"].summary
        'weekday: 12 parameters'
    """

    name: str = ""
    looks_ahead = False  # whether `update` reads the table that the components before this one write after theirs

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows of parameters."""

    @abstractmethod
    def write(self, own: Float[Array, "R k P"], table: Rows) -> Any:
        """Multiply the likelihood of the component into the table; the result is given to `update`."""

    @abstractmethod
    def update(self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows) -> Float[Array, "R k P"]:
        """Return the parameters after an M step.

        Args:
            own: the parameters of R models.
            memo: what `write` returned for them.
            counts: expected counts of every row of the table.
            ahead: the table after the updates of the components before this one, if the component looks ahead.
        """

    def applies_to(self, log: Log) -> bool:
        """Return whether the component can be fitted to a log."""
        return True

    def codes(self, sessions: Sessions | Packed) -> CodeBlock | None:
        """Return the codes that the component has in every session; None if it has none."""
        return None

    def session_weights(self, sessions: Sessions | Packed) -> Float[Array, "N"] | None:
        """Return the number of sessions that each session counts as; None if each counts once."""
        return None

    def start(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R k M"]:
        """Return parameters from which EM starts; by default near 1, with a little noise that separates the types."""
        return rng.uniform(0.9, 1.0, (n_models, self.n_rows, n_types))

    def log_prior(self, own: Float[Array, "R k P"]) -> Float[Array, "R"] | float:
        """Return the log density of the prior of the parameters, up to a constant."""
        return 0.0

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        """Return extrapolated parameters made valid; by default they stay above a part of valid ones nearby."""
        return np.maximum(trial, _SHRINK * near)

    def sample(
        self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows, rng: np.random.Generator
    ) -> Float[Array, "R k P"]:
        """Draw the parameters given the types of all sessions, for the Gibbs sampler; by default their update."""
        return self.update(own, memo, counts, ahead)

    def n_parameters(self, n_types: int) -> int:
        """Return the number of free parameters."""
        return self.n_rows * n_types

    def summary(self, parameters: Float[Array, "k M"]) -> str:
        """Return one line about the fitted parameters."""
        number = self.n_parameters(parameters.shape[1])
        return f"{self.name}: {number} parameter{'' if number == 1 else 's'}"

    def table(self, parameters: Float[Array, "k M"]) -> list[dict[str, Any]]:
        """Return the fitted parameters as rows, by default with an entry per type."""
        return [{"row": i, **{f"type {m}": float(x) for m, x in enumerate(row)}} for i, row in enumerate(parameters)]

    def block(self, n_rows: int, *, front: Any = None, steps: Any = None) -> CodeBlock:
        """Return codes of the component: one in front of each session, or one after each step (-1: none)."""
        return CodeBlock(self.name, n_rows, *(None if one is None else np.asarray(one) for one in (front, steps)))
