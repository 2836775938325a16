"""The words at this door: sessions, types, arms, steps, and options instead of arguments of Python functions.

The library speaks of sessions, types and keyword arguments, as its functions and the paper do. What it says to
somebody at a terminal passes through here.
"""

from __future__ import annotations

import re

_NAMES = {"n_types": "types"}  # arguments whose option has another name
_ARGUMENT = r"\b([a-z][a-z_]*)="
_SENTENCES = (
    (re.compile(r"\blmab\.evaluate says\b"), "`lmab evaluate --model` says"),
    (
        re.compile(r"stopped by max_iterations after (\d+) maps, before convergence: raise it"),
        r"stopped after \1 iterations, before convergence: try fewer types or more sessions",
    ),
    (
        re.compile(r"stopped by max_iterations after (\d+) rounds: raise it"),
        r"stopped after \1 iterations, before convergence: try fewer factors or more sessions",
    ),
    (re.compile(r"\bafter (\d+) (?:maps|rounds)\b"), r"after \1 iterations"),
    (re.compile(r"^backend must be None where\b"), "--device must be cpu where"),
    (re.compile(r"^backend must be None for the method Traits\b.*"), "--device must be cpu with --traits"),
)
_WORDS = (("session", "session"), ("type", "type"))
_QUOTED = re.compile(r"('[^']*'|\"[^\"]*\"|`[^`]*`)")


def at_the_door(text: str) -> str:
    """The text in the words of the command line; what is quoted stays as it is.

    Examples:
        >>> at_the_door("n_types must be at most the number of sessions (5), got 9")
        '--types must be at most the number of sessions (5), got 9'
        >>> at_the_door("the log has no column 'session'; pass session='sess'")
        "the log has no column 'session'; say --session sess"
        >>> at_the_door("propensities can be fitted (fit_propensities=True)")
        'propensities can be fitted (--fit-propensities)'
    """
    text = re.sub(r"\bpass (?=[a-z_]+=)", "say ", text)
    text = re.sub(_ARGUMENT + r"True\b", lambda found: _option(found[1]), text)
    text = re.sub(_ARGUMENT + r"\.\.\.", lambda found: f"{_option(found[1])} ...", text)
    text = re.sub(_ARGUMENT + r"'([^']*)'", lambda found: f"{_option(found[1])} {_shell(found[2])}", text)
    text = re.sub(r"^(\w+)(?= must be)", lambda found: _option(found[1]) if found[1] in _OPTIONS else found[1], text)
    for pattern, sentence in _SENTENCES:
        text = pattern.sub(sentence, text)
    return "".join(part if _QUOTED.fullmatch(part) else _spoken(part) for part in _QUOTED.split(text))


#: Arguments at the beginning of a message that the commands have an option for.
_OPTIONS = ("n_types", "horizon", "missing", "at_most", "gap", "encoding", "confidence", "prior", "restarts")


def _option(argument: str) -> str:
    return "--" + _NAMES.get(argument, argument).replace("_", "-")


def _shell(value: str) -> str:
    return value if re.fullmatch(r"[\w./:-]+", value) else f"'{value}'"


def _spoken(text: str) -> str:
    for old, new in _WORDS:
        for before, after in ((old, new), (old.capitalize(), new.capitalize())):
            text = re.sub(rf"(?<![-/.\w])n?_?{before}(s?)(?![\w/]|\.\w)", rf"{after}\1", text)
    return text
