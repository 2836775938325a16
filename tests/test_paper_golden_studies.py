"""What figures show and what checks say of made-up rows is what it was."""

from __future__ import annotations

import json

import golden_studies as golden
import pytest

GOLDEN = json.loads(golden.FILE.read_text()) if golden.FILE.is_file() else {}


@pytest.mark.parametrize("world", golden.WORLDS)
def test_every_check_says_what_it_said(world):
    assert golden.findings(world) == GOLDEN[f"findings {world}"]


def test_tables_hold_what_they_held():
    assert golden.tables("turned") == GOLDEN["tables"]


def test_figures_show_what_they_showed():
    found = golden.pictures("skilled")
    assert found.keys() == GOLDEN["pictures"].keys()
    for name, lines in found.items():
        assert lines == GOLDEN["pictures"][name], name


def test_the_worlds_hold_some_claims_and_break_some():
    """Else the words of one branch would be in no golden answer."""
    said = [text.split(":")[0] for world in golden.WORLDS for text in GOLDEN[f"findings {world}"].values()]
    assert {"agrees", "does not agree", "holds", "does not hold", "not measured"} <= set(said)
