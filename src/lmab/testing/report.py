"""The report of a check: laws are checked in order, the first broken one raises, and the report lists those kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..errors import LmabError, first_line

Subject = TypeVar("Subject")

#: A law as a function: it raises `Broken` where the law does not hold, returns None where it holds, or a sentence
#: that says why nothing could be checked.
Law = Callable[[Subject], str | None]


class BrokenLaw(AssertionError):
    """A law of the protocol does not hold: the message names the law, the inputs and what was seen.

    Examples:
        >>> import lmab
        >>> class Unmoved(lmab.Greedy):
        ...     kind = "unmoved"
        ...     adaptive = False  # but it does look at rewards
        >>> bandit = lmab.random_bandit(3, 4, rng=0)
        >>> lmab.testing.check_policy(Unmoved(bandit), bandit)
        Traceback (most recent call last):
        ...
        lmab.testing.report.BrokenLaw: Unmoved breaks the law 'adaptive says the truth': the same arms ...
    """


class Broken(Exception):
    """What was seen, in a sentence: `keep` adds the name of the law."""


@dataclass(frozen=True)
class Report:
    """The laws that were kept, and those that could not be checked, with the reason.

    Examples:
        >>> import lmab
        >>> report = lmab.testing.check_policy(lmab.Uniform(3), lmab.random_bandit(2, 3, rng=0))
        >>> report.kept[-1], report.not_checked
        ('the compact form decides the same', {})
    """

    name: str
    kept: tuple[str, ...]
    not_checked: Mapping[str, str]

    def __repr__(self) -> str:
        left = "".join(f"; not checked: {law} ({reason})" for law, reason in self.not_checked.items())
        return f"Report({self.name} keeps {len(self.kept)} laws{left})"


def keep(name: str, laws: Mapping[str, Law[Subject]], subject: Subject) -> Report:
    """Check the laws in their order; the first that is broken raises `BrokenLaw`."""
    kept: list[str] = []
    not_checked: dict[str, str] = {}
    for law, holds in laws.items():
        try:
            reason = holds(subject)
        except Broken as broken:
            raise BrokenLaw(f"{name} breaks the law '{law}': {broken}") from None
        except BrokenLaw as broken:  # A part broke a law, such as the policy of a plan.
            raise BrokenLaw(f"{name} breaks the law '{law}': {broken}") from None
        except Exception as error:
            seen = f"{type(error).__name__}: {first_line(error)}"
            raise BrokenLaw(f"{name} breaks the law '{law}': it raised {seen}") from error
        if reason is None:
            kept.append(law)
        else:
            not_checked[law] = reason
    return Report(name, tuple(kept), not_checked)


def expect(holds: object, sentence: str) -> None:
    """Raise `Broken` with the sentence unless it holds."""
    if not holds:
        raise Broken(sentence)


def expect_refusal(call: Callable[[], object], what: str, *words: str) -> None:
    """Raise `Broken` unless the call raises a ValueError whose message has one of the words."""
    try:
        result = call()
    except ValueError as error:
        named = any(word in str(error) for word in words)
        wanted = " or ".join(repr(word) for word in words)
        expect(named, f"{what} must raise an error that names {wanted}, got {first_line(error)!r}")
    except Exception as error:
        seen = f"{type(error).__name__}: {first_line(error)}"
        raise Broken(f"{what} must raise a ValueError such as InvalidArgument, got {seen}") from None
    else:
        raise Broken(f"{what} must raise a ValueError such as InvalidArgument, got {result!r}")


def refusal(call: Callable[[], object]) -> str | None:
    """What the call says when it refuses with an error of the package; None when it does not refuse."""
    try:
        call()
    except LmabError as error:
        return first_line(error)
    return None
