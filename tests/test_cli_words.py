"""The words at the command line: sessions, types, arms, steps, options; nothing of the library's arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lmab
from lmab.cli.words import at_the_door
from lmab.evaluation.diagnostics import Identifiability

SAID = [
    ("n_types must be at most the sessions (5), got 9", "--types must be at most the sessions (5), got 9"),
    ("the log has no column 'session'; pass session='sess'", "the log has no column 'session'; say --session sess"),
    ("pass reward=... with the name of the column", "say --reward ... with the name of the column"),
    ("pass arm='movie title'", "say --arm 'movie title'"),
    ("can be fitted (fit_propensities=True)", "can be fitted (--fit-propensities)"),
    ("or missing='zero' to count", "or --missing zero to count"),
    ("usually more (lmab.evaluate says how much)", "usually more (`lmab evaluate --model` says how much)"),
    ("no session is left in type 2: fewer types fit", "no session is left in type 2: fewer types fit"),
    ("gap must be a time", "--gap must be a time"),
    ("rewards must be finite", "rewards must be finite"),
    ("column 'sessions' and arm 'my type'", "column 'sessions' and arm 'my type'"),
    ("--types 3, types.lmab, data/sessions/x.csv", "--types 3, types.lmab, data/sessions/x.csv"),
    ("3 types: climb", "3 types: climb"),
    ("Sessions are short", "Sessions are short"),
    ("at_most must be a count", "--at-most must be a count"),
    ("pass arm='film/2.csv:x'", "say --arm film/2.csv:x"),
    (
        "stopped by max_iterations after 500 maps, before convergence: raise it",
        "stopped after 500 iterations, before convergence: try fewer types or more sessions",
    ),
    ("converged after 12 maps", "converged after 12 iterations"),
    ("contextual episodic text stays", "contextual episodic text stays"),
    ("n_sessions is no option here", "sessions is no option here"),
]  # fmt: skip


@pytest.mark.parametrize(("library", "door"), SAID)
def test_what_the_library_says_is_said_in_the_words_of_the_door(library, door):
    assert at_the_door(library) == door


def test_no_sentence_of_the_commands_mixes_vocabularies():
    """Texts in the commands and on the report's page speak of sessions and types; options keep their names."""
    mixed = []
    folder = Path(lmab.__file__).parent
    for path in [*(folder / "cli").glob("*.py"), *(folder / "report").glob("*.py")]:
        if path.name in ("words.py", "reproduce.py", "budget.py", "learn.py", "demo.py", "plots.py"):
            continue  # the paper's experiments speak the paper's language
        code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.S)  # docstrings are for programmers
        for text in re.findall(r'f?"([^"\n]*)"', code):
            spoken = re.sub(r"--\w+|\{[^}]*\}|`[^`]*`", "", text)
            if " " in spoken.strip() and re.search(r"\b(types?|sessions?)\b", spoken):
                mixed.append((path.name, text))
    assert mixed == []


def identified(**changes):
    given = {
        "n_types": 1, "horizon": 5, "long_enough": 1.0, "rank": 1, "starts": "all agreed", "rare_arms": (0,),
        "core_arms": (), "arm_labels": None, "rarest": 0.1,
    }  # fmt: skip
    return Identifiability(**{**given, **changes})


def test_one_is_not_said_in_the_plural():
    assert "The types differ in 1 direction (numerical rank)." in identified().sentences
    assert "The types differ in 3 directions (numerical rank)." in identified(rank=3).sentences
    assert any(line.startswith("1 arm was") for line in identified().sentences)
    assert any(line.startswith("2 arms were") for line in identified(rare_arms=(0, 1)).sentences)


def test_arms_that_are_known_too_little_are_named_with_the_threshold():
    """Plays are counted in the rarest type: an arm with 190 plays is rare where a type has 2% of the sessions."""
    line = next(line for line in identified(rarest=0.02).sentences if line.startswith("1 arm"))
    assert line == (
        "1 arm was played fewer than 30 times in the rarest type (2.0% of the sessions, so below 1,500 plays in all): "
        "arm 0."
    )
