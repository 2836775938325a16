"""What commands print: results on standard output, problems on standard error, JSON that any parser reads."""

from __future__ import annotations

import json
import sys
import warnings

import pytest

from lmab.cli import output
from lmab.errors import LmabWarning


def test_problems_go_to_standard_error_and_results_to_standard_output(capsys):
    output.say("a [bold]result[/bold] of 5")
    output.note("take care")
    output.error("arm 'a[0]' is unknown")
    shown = capsys.readouterr()
    assert shown.out == "a [bold]result[/bold] of 5\nnote: take care\n"  # brackets are no markup
    assert shown.err == "error: arm 'a[0]' is unknown\n"


def test_long_sentences_are_not_broken(capsys):
    output.say("word " * 100)
    output.error("word " * 100)
    shown = capsys.readouterr()
    assert shown.out.count("\n") == shown.err.count("\n") == 1


def test_json_is_strict(capsys):
    output.show_json({"a": [1, 2.5, None], "b": "é"})
    assert json.loads(capsys.readouterr().out) == {"a": [1, 2.5, None], "b": "é"}
    with pytest.raises(ValueError, match="Out of range"):
        output.show_json({"a": float("nan")})


def test_warnings_are_collected_once_each_and_others_pass():
    with output.collected_warnings() as remarks:
        warnings.warn("first", LmabWarning, stacklevel=1)
        warnings.warn("second", LmabWarning, stacklevel=1)
        warnings.warn("first", LmabWarning, stacklevel=1)
    assert remarks == ["first", "second"]


def test_warnings_of_the_library_are_notes_and_others_pass(capsys):
    with warnings.catch_warnings(record=True) as passed:
        warnings.simplefilter("always")
        with output.warnings_as_notes():
            warnings.warn("a long horizon", LmabWarning, stacklevel=1)
            warnings.warn("another one", UserWarning, stacklevel=1)
    printed = capsys.readouterr()
    assert printed.err == "note: a long horizon\n"
    assert printed.out == ""
    assert [str(item.message) for item in passed] == ["another one"]


def test_tables_have_text_at_the_left_and_numbers_at_the_right(capsys):
    output.show_table("Title", ["what", "number"], [["a", "1"], ["long name [x]", "100"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "Title"
    row = next(line for line in lines if "100" not in line and " 1 " in line)
    assert row.split("│")[1:3] == [" a             ", "      1 "]
    assert any("long name [x]" in line for line in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_and_announcements_are_for_terminals(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert output.progress().disable is not terminal
    output.announce_compilation()
    assert ("compiling the kernels" in capsys.readouterr().err) == terminal


def test_lines_in_a_pipe_say_what_is_done_and_how_long_it_takes(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(output, "perf_counter", lambda: now[0])
    with output.counting("assessing") as show:
        for step in range(1, 11):
            now[0] = 4.0 * step
            show(step, 10, 40.0 - now[0])
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["assessing: 3 of 10, about 28 s left", "assessing: 6 of 10, about 16 s left",
                     "assessing: 9 of 10, about 4 s left"]  # fmt: skip
    now[0] = 0.0
    with output.counting("assessing") as show:
        now[0] = 1.0
        show(3, 10, 3.0)
    assert capsys.readouterr().err == ""
