"""Cutting: rewards of a packed log that become values when the log is read, while its files stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float, Shaped

_FEW = 32  # edges


@dataclass(frozen=True, eq=False)
class Cutting:
    """Edges between rewards, and the value that stands for what lies between two of them."""

    edges: Float[Array, "E"]  # rising; an edge belongs to the value above it
    values: Float[Array, "Z"]  # Z = E + 1, rising

    def places(self, rewards: Float[Array, "s"]) -> Shaped[Array, "s"]:
        """The place of each reward's value; few edges are compared one by one, which is six times as fast."""
        if len(self.edges) > _FEW:
            return np.searchsorted(self.edges, rewards, side="right")
        found = np.zeros(len(rewards), np.uint8)
        for edge in self.edges.tolist():
            found += rewards >= edge
        return found

    def after(self, first: Cutting) -> Cutting:
        """The cutting that does what `first` does, and then this to its values."""
        places = self.places(first.values)
        ends = np.flatnonzero(places[1:] != places[:-1])
        return Cutting(first.edges[ends], self.values[places[np.append(ends, -1)]])


@dataclass(frozen=True, eq=False)
class Recoding:
    """The codes of cut rewards, made of what the files hold."""

    cutting: Cutting
    table: Shaped[Array, "c"]  # the code of each code in the files; that of its lowest value where rewards lie beside
    beside: bool  # whether the files hold rewards beside their codes, which are arms then

    @classmethod
    def of(cls, cutting: Cutting, n_arms: int, values: Float[Array, "V"] | None) -> Recoding:
        """For files whose codes are arm * V + value, or arms."""
        n_values = len(cutting.values)
        table = np.arange(n_arms)[:, None] * n_values + (0 if values is None else cutting.places(values))
        return cls(cutting, table.ravel().astype(np.min_scalar_type(n_arms * n_values - 1)), values is None)

    def codes(self, codes: Shaped[Array, "s"], rewards: Float[Array, "s"] | None) -> Shaped[Array, "s"]:
        found = self.table.take(codes)
        return found if rewards is None else found + self.cutting.places(rewards).astype(found.dtype)
