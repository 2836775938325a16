"""Report of a check: all laws are checked, and all broken ones raise together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..errors import LmabError, first_line

Subject = TypeVar("Subject")

#: A law as a function: it raises `Broken` if the law does not hold, and returns None if it holds, or the reason why
#: nothing could be checked.
Law = Callable[[Subject], str | None]


class BrokenLaw(AssertionError):
    """Laws of the protocol do not hold: the message names each law, the inputs and the observation.

    `laws` maps the name of each broken law to the observation.

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

    def __init__(self, name: str, laws: Mapping[str, str]) -> None:
        self.laws = dict(laws)
        if len(laws) == 1:
            [(law, seen)] = laws.items()
            super().__init__(f"{name} breaks the law '{law}': {seen}")
        else:
            super().__init__(
                f"{name} breaks {len(laws)} laws:" + "".join(f"\n- '{law}': {seen}" for law, seen in laws.items())
            )


class Broken(Exception):
    """A law does not hold: the message is the observation, and `keep` adds the name of the law."""


@dataclass(frozen=True)
class Report:
    """The laws that hold, and the laws that could not be checked, with the reason.

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
    """Check all laws in their order; if some are broken, raise one `BrokenLaw` for all of them."""
    kept: list[str] = []
    broken: dict[str, str] = {}
    not_checked: dict[str, str] = {}
    cause: Exception | None = None
    for law, holds in laws.items():
        try:
            reason = holds(subject)
        except (Broken, BrokenLaw) as error:  # of a part, such as the policy of a plan, in the latter case
            broken[law] = str(error)
        except Exception as error:
            broken[law] = f"it raised {type(error).__name__}: {first_line(error)}"
            cause = cause or error
        else:
            if reason is None:
                kept.append(law)
            else:
                not_checked[law] = reason
    if broken:
        raise BrokenLaw(name, broken) from cause
    return Report(name, tuple(kept), not_checked)


def expect(holds: object, sentence: str) -> None:
    """Raise `Broken` with the sentence unless it holds."""
    if not holds:
        raise Broken(sentence)


def expect_refusal(call: Callable[[], object], what: str, *words: str) -> None:
    """Raise `Broken` unless the call raises a ValueError with one of the words in its message."""
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


def refusal_message(call: Callable[[], object]) -> str | None:
    """Return the message with which the call refuses, if it raises an error of the package; None if it does not."""
    try:
        call()
    except LmabError as error:
        return first_line(error)
    return None
