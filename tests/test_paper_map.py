"""The paper map names functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lmab
import lmab.model
import lmab.moments
import lmab.paper.moment_matching
import lmab.theory
from lmab.cli.app import app

ROOT = Path(__file__).parent.parent
MAP, LEFT_OUT = (ROOT / "docs" / "paper-map.md").read_text().split("## Labels without code of their own")
LABELS = (ROOT / "tests" / "paper_labels.txt").read_text().split()  # every \\label of the paper's source


def cells(text: str) -> list[list[str]]:
    lines = (line for line in text.splitlines() if line.startswith("|"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if row[0] not in ("paper", "label") and not row[0].startswith("---")]


ROWS = cells(MAP)
COMMANDS = {command.callback.__name__ for command in app.registered_commands}


def resolve(name: str) -> object:
    value: object = lmab
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_names_exist(row):
    assert len(row) == 4
    named = re.findall(r"`([^`]+)`", row[1])
    assert named
    for name in named:
        if name.startswith("lmab "):
            assert name.split()[1] in COMMANDS
        else:
            resolve(name.split("(")[0])


def test_names_are_linked_to_their_documentation():
    """Every name of the API page, or its class, is linked; the few others are not public."""
    documented = set(re.findall(r"^::: lmab\.(\S+)$", (ROOT / "docs" / "api.md").read_text(), re.M))
    for row in ROWS:
        for linked, name in re.findall(r"(\[)?`([^`]+)`", row[1]):
            if linked:
                continue
            parts = name.split("(")[0].split(".")
            prefixes = {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
            assert not name.startswith("lmab "), name
            assert not prefixes & documented, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_tests_exist(row):
    named = re.findall(r"`([^`]+)`", row[2])
    assert named
    for name in named:
        file, _, test = name.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert not test or re.search(rf"^def {re.escape(test.removesuffix('...'))}", text, re.M), name


def test_every_statement_has_its_row():
    """Numbered statements of the paper that are about computation."""
    text = "\n".join(row[0] for row in ROWS)
    for statement in (
        "Definition 2.1", "Assumption 2.2", "Definition 2.3", "Theorem 2.4", "Proposition 2.5", "Lemma 3.1",
        "Corollary 3.2", "Lemma 3.3", "Proposition 3.4", "Lemma 3.5", "Proposition 3.6", "Lemma 3.7", "Theorem 3.8",
        "Remark 3.9", "Algorithm 1", "Lemma 4.1", "Remark A.1", "Lemma A.4", "Assumption B.1", "Theorem B.2",
        "Lemma B.5",
        "Assumption C.1", "Lemma C.2", "Lemma C.3", "Lemma C.4", "Figure 1",
    ):  # fmt: skip
        assert statement in text, statement


def test_every_label_has_its_row_or_a_reason():
    mapped = [label for row in ROWS for label in re.findall(r"`([^`]+)`", row[3])]
    left_out = [row[0].strip("`") for row in cells(LEFT_OUT)]
    assert len(LABELS) == 70
    assert sorted(mapped + left_out) == sorted(LABELS)
    assert all(len(row[1]) > 10 for row in cells(LEFT_OUT))
