"""Tests that the output of commands, reports and values equals the golden texts."""

from __future__ import annotations

import json

import golden_words as golden
import pytest

GOLDEN = json.loads(golden.FILE.read_text()) if golden.FILE.is_file() else {"printed": {}, "asked": {}}


@pytest.fixture(scope="module")
def printed():
    return golden.printed()


@pytest.mark.parametrize("name", [*golden.COMMANDS, *golden.PAGES])
def test_a_command_prints_what_it_printed(printed, name):
    assert golden.differs(printed[name], GOLDEN["printed"][name]) == ""


@pytest.mark.parametrize("name", golden.QUESTIONS)
def test_words_are_what_they_were(name):
    found, known = golden.asked(name), GOLDEN["asked"][name]
    pairs = [(found, known)] if isinstance(found, str) else list(zip(found, known, strict=True))
    assert [golden.differs(*pair) for pair in pairs if golden.differs(*pair)] == []


@pytest.mark.parametrize(
    ("found", "known", "same"),
    [
        ("earns 1.234 (5%)", "earns 1.235 (5%)", True),
        ("earns 1.234", "earns 1.23", False),  # other digits
        ("earns 1.234", "earns 1.434", False),
        ("earns +1.2", "earns 1.2", False),
        ("5% of it", "5 of it", False),
        ("1,000 sessions", "1,001 sessions", True),
        ("1,000 sessions", "1,100 sessions", False),
        ("gap 2e-16", "gap 0", True),
        ("weights 0.7, 0.3", "weights 0.3, 0.7", True),
        ("weights 0.70, 0.30", "weights 0.40, 0.60", False),
        ("means 0.70, 0.30", "means 0.30, 0.70", False),
        ("more words", "words", False),
        ("3 types", "3 types and more", False),
    ],
)
def test_numbers_may_differ_by_a_little_and_words_may_not(found, known, same):
    assert (golden.differs(found, known) == "") is same
