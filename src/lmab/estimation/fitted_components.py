"""The components of an estimate beyond weights and rewards: name, summary and table of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._html import count
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .result import Estimate

Cell = str | int | float | None


@dataclass(frozen=True)
class FittedComponent:
    """One component in use.

    Examples:
        >>> FittedComponent("persons", "Returning persons keep their type.", ("keep",), ((0.5,),)).table
        [{'keep': 0.5}]
    """

    name: str
    summary: str  # one sentence
    columns: tuple[str, ...]  # of the table
    cells: tuple[tuple[Cell, ...], ...]  # its rows

    @classmethod
    def of(cls, name: str, summary: str, table: list[dict[str, Any]]) -> FittedComponent:
        """Return a component with a table, whose rows have the same columns."""
        columns = tuple(table[0]) if table else ()
        return cls(name, summary, columns, tuple(tuple(row[column] for column in columns) for row in table))

    @property
    def table(self) -> list[dict[str, Any]]:
        """The fitted parameters as rows."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.cells]


@dataclass(frozen=True)
class AddedComponents:
    """The components that the caller of a fit added, in their order, as files hold them."""

    names: tuple[str, ...]
    summaries: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[tuple[Cell, ...], ...], ...]

    @classmethod
    def of(cls, components: list[FittedComponent]) -> AddedComponents:
        """Return some fitted components together."""
        rows = [(one.name, one.summary, one.columns, one.cells) for one in components]
        return cls(*(tuple(column) for column in zip(*rows, strict=True)))

    def __iter__(self) -> Iterator[FittedComponent]:
        for parts in zip(self.names, self.summaries, self.columns, self.cells, strict=True):
            yield FittedComponent(*parts)


@dataclass(frozen=True)
class Candidate:
    """One model that the model selection compared with the one selected before it.

    Examples:
        >>> str(Candidate("features", 0.021, 0.004, True))
        'features: +0.0210 (0.0040) per held-out session, selected'
    """

    name: str  # "3 types", "features", "persons", "leaving", "exposure" or "step"
    gain: float  # in held-out log-likelihood per session, over the model without this change
    stderr: float  # of the gain, from paired differences
    selected: bool

    def __str__(self) -> str:
        verdict = "selected" if self.selected else "not selected"
        return f"{self.name}: {self.gain:+.4f} ({self.stderr:.4f}) per held-out session, {verdict}"


@dataclass(frozen=True)
class ComparedCandidates:
    """Candidates in the order in which they were compared, as files hold them."""

    names: tuple[str, ...]
    gains: tuple[float, ...]
    stderrs: tuple[float, ...]
    selected: tuple[bool, ...]

    @classmethod
    def of(cls, candidates: Iterable[Candidate]) -> ComparedCandidates | None:
        """Return some candidates together; None if there is none."""
        rows = [(one.name, float(one.gain), float(one.stderr), bool(one.selected)) for one in candidates]
        return cls(*zip(*rows, strict=True)) if rows else None

    def __iter__(self) -> Iterator[Candidate]:
        for row in zip(self.names, self.gains, self.stderrs, self.selected, strict=True):
            yield Candidate(*row)


def _by_type(values: Any) -> dict[str, float]:
    return {f"type {m}": float(value) for m, value in enumerate(values)}


def _features(estimate: Estimate) -> FittedComponent | None:
    prior = estimate.type_prior
    if prior is None or not prior.columns:
        return None
    rows = [
        {"feature": column, "value": str(value), **_by_type(weights)}
        for column, values in prior.by_values().items()
        for value, weights in values.items()
    ]
    gain = "" if estimate.known is None else f" (held-out log-likelihood per session {estimate.known[0]:+.4f})"
    summary = f"The weights of the types depend on {', '.join(prior.columns)}{gain}."
    return FittedComponent.of("features", summary, rows)


def _persons(estimate: Estimate) -> FittedComponent | None:
    prior = estimate.type_prior
    if prior is None or prior.keep is None:
        return None
    summary = f"Returning persons keep their type with probability {prior.keep:.2f}."
    return FittedComponent.of("persons", summary, [{"keep": prior.keep}])


def _leaving(estimate: Estimate) -> FittedComponent | None:
    bandit = estimate.bandit
    if bandit.leaving is None:
        return None
    by_type = "latent type, " if bandit.has_informative_attrition else ""
    means = bandit.leaving.mean(axis=2)
    rows = [{"arm": str(bandit.label(arm)), **_by_type(means[:, arm])} for arm in range(bandit.n_arms)]
    return FittedComponent.of("leaving", f"The probability of leaving depends on {by_type}arm and reward.", rows)


def _exposure(estimate: Estimate) -> FittedComponent | None:
    found = estimate.selection
    if found is None:
        return None
    label, ratios = estimate.bandit.label, found.favour
    rows = [{"arm": str(label(arm)), **_by_type(ratios[arm])} for arm in range(len(ratios))]
    return FittedComponent.of("exposure", f"{found.plain[0].upper()}{found.plain[1:]}.", rows)


def _traits(estimate: Estimate) -> FittedComponent | None:
    factors = estimate.factors
    if factors is None:
        return None
    rows = [{"factor": i + 1, "size": float(factors.size[i])} for i in range(factors.n_alive)]
    points = count(estimate.n_types, "integration point")
    return FittedComponent.of("traits", f"Continuous latent factors, {points}: {factors}.", rows)


def _step(estimate: Estimate) -> FittedComponent | None:
    found = estimate.step
    if found is None:
        return None
    return FittedComponent.of("step", f"{found.summary[0].upper()}{found.summary[1:]}.", found.table)


#: The components of this package; every interface loops over those that an estimate has.
COMPONENTS: tuple[Callable[[Estimate], FittedComponent | None], ...] = (
    _features, _persons, _leaving, _exposure, _traits, _step,
)  # fmt: skip


def components_of(estimate: Estimate) -> Mapping[str, FittedComponent]:
    """Return the components in use by name: those of the package, then those that the caller added."""
    own = [found for describe in COMPONENTS if (found := describe(estimate)) is not None]
    return {one.name: one for one in [*own, *(estimate.own_components or ())]}


RESERVED = ("weights", "rewards", "session", "features", "persons", "leaving", "exposure", "traits", "step")


def check_names(components: Any) -> None:
    """Raise `InvalidArgument` unless the components have names of their own."""
    names = [getattr(one, "name", "") for one in components]
    for name in names:
        if not name or name in RESERVED or names.count(name) > 1:
            raise InvalidArgument(
                f"components must have different names, none of which is empty or one of {', '.join(RESERVED)}; got "
                f"{name!r}"
            )
