"""Figures in README and pages are those of the stored rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import bench_pack, figures, growth, rows, study_billion, study_coverage

RUN = rows.Measured(
    "python -m benchmarks x", "2026-01-01", "0.2.0", "a machine", {"a/b": 23.849, "c": 0.0931}, {"": "| t |"}
)


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_the_page_says_what_was_measured(page):
    text = page.read_text()
    assert figures.filled(text, rows.read()) == text, "run: make figures"


def test_what_is_said_of_assessments_is_what_the_stored_rows_say():
    stored = [json.loads(line) for line in study_coverage.ROWS.read_text().splitlines()]
    mine = [row for row in stored if study_coverage.mine(row)]
    assert study_coverage.page_of(mine) in study_coverage.PAGE.read_text(), "run: study_coverage --table"
    assert study_coverage.readme_of(mine) in study_coverage.README.read_text(), "run: study_coverage --table"


@pytest.mark.parametrize("path", figures.pictures(), ids=lambda path: path.name)
def test_the_picture_shows_what_was_measured(path):
    assert path.read_text() == figures.pictures()[path](rows.read()), "run: make figures"


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_no_time_size_or_ratio_is_typed_by_hand(page):
    assert figures.bare(page.read_text()) == []


def test_every_run_says_where_it_comes_from():
    for name, run in rows.read().items():
        assert run.command.startswith("python -m benchmarks"), name
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run.date)
        assert re.fullmatch(r"\d+\.\d+\.\d+", run.version)
        assert run.machine
        assert run.rows


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("takes 21<!-- row: x/a/b --> s", "takes 24<!-- row: x/a/b --> s"),
        ("21.00<!-- row: x/a/b -->", "23.85<!-- row: x/a/b -->"),
        ("| 1,580.0<!-- row: x/a/b -->", "| 23.8<!-- row: x/a/b -->"),
        ("lost 5%<!-- row: x/c -->", "lost 9%<!-- row: x/c -->"),
        ("+.115<!-- row: x/c -->", "+.093<!-- row: x/c -->"),
        ("about 5<!-- row: none --> minutes", "about 5<!-- row: none --> minutes"),
        ("<!-- table: x -->\nold\n<!-- end -->", "<!-- table: x -->\n\n| t |\n\n<!-- end -->"),
    ],
)
def test_a_figure_is_written_as_it_was_with_the_number_of_the_row(before, after):
    assert figures.filled(before, {"x": RUN}) == after
    assert figures.filled(after, {"x": RUN}) == after


def test_a_row_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="x/nothing"):
        figures.filled("1<!-- row: x/nothing -->", {"x": RUN})


@pytest.mark.parametrize(
    "text", ["in 2.1 s", "0.01 to 0.10<!-- row: x/c --> s", "1.1 GB", "127 times as fast", "24 ns"]
)
def test_a_bare_figure_is_found(text):
    assert figures.bare(text) != []


@pytest.mark.parametrize(
    "text", ["in 2.1<!-- row: x/c --> s", "7 steps", "```sh\nsleep 2 s\n```", "<!-- table: x -->\n2 s\n<!-- end -->"]
)
def test_what_is_no_bare_figure_is_left_alone(text):
    assert figures.bare(text) == []


def _grown(seconds: dict[int, float]) -> rows.Measured:
    found = {f"grow/{n}/{name}": value * k for n, value in seconds.items()
             for k, name in enumerate(("seconds", "wall", "own-MB"), 1)}  # fmt: skip
    return rows.measured("python -m benchmarks x", found | {"map/ratio": 1.5})


def test_growth_takes_the_sizes_of_the_benchmark_and_of_the_study():
    runs = {"pack": _grown({10**6: 4.0, 10**5: 2.0}), "study_billion": _grown({10**9: 1500.0, 10**6: 5.0})}
    assert [one.n_sessions for one in growth.sizes(runs)] == [10**5, 10**6, 10**9]
    assert growth.sizes(runs)[1] == (10**6, 5.0, 10.0, 15.0)  # the study's
    assert growth.table(runs).splitlines()[-1] == "| 1,000,000,000 | 1,500 | 3,000 | 4,500 |"
    assert len(growth.sizes({"pack": runs["pack"]})) == 2
    page = "<!-- table: growth -->\n<!-- end -->"
    assert figures.filled(page, runs) == f"<!-- table: growth -->\n\n{growth.table(runs)}\n\n<!-- end -->"


def test_the_picture_of_arms_has_a_line_for_every_part_that_was_measured():
    found = {f"stars/{n}/{part}": n / k for n in (50, 500) for k, part in enumerate(("fit", "check", "fit/MB"), 1)}
    run = rows.measured("python -m benchmarks arms", found | {"stars/500/plan/to-1%": 2.0, "unrelated/500/fit": 9.0})
    root = ElementTree.fromstring(growth.arms_picture({"arms": run}))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [name for name in texts if name in ("fit", "check", "certificate", "plan to 1%")] == [
        "fit",
        "check",
        "plan to 1%",
    ]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 5 + 3  # points, and one beside each name


def test_the_picture_of_growth_is_a_picture_on_its_own_with_powers_of_ten():
    drawn = growth.picture({"pack": _grown({10**5: 2.0, 10**7: 200.0})})
    root = ElementTree.fromstring(drawn)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"10⁵", "10⁶", "10⁷", "10¹", "10²", "sessions"} <= set(texts)
    circles = [(float(one.get("cx")), float(one.get("cy"))) for one in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(circles) == 4
    assert circles[0][0] < circles[1][0]
    assert circles[0][1] > circles[1][1]  # 2 seconds lie below 200


def test_the_study_of_a_billion_prints_and_stores_its_rows(tmp_path, monkeypatch, capsys):
    stored = []
    monkeypatch.setattr("benchmarks.rows.store", lambda name, run: stored.append((name, run)))
    once = cache(lambda name, folder: bench_pack.run(name, folder, 2000))  # one process is enough

    def run(name, folder, n_sessions):
        return {key.replace("2000", str(n_sessions)): value for key, value in once(name, folder).items()}

    monkeypatch.setattr(study_billion, "run", run)
    monkeypatch.setattr("sys.argv", ["study", str(tmp_path / "logs"), "2e3", "3000", "--store"])
    study_billion.main()
    assert [name for name, _ in stored] == ["study_billion"] * 2
    assert [one.n_sessions for one in growth.sizes(dict([stored[-1]]))] == [2000, 3000]
    printed = capsys.readouterr().out
    assert "2,000 sessions packed and fitted" in printed
    assert all(word in printed for word in ("s of processor time", "s on the clock", "MB of its own"))
    assert list((tmp_path / "logs").iterdir()) == []


def test_rows_are_stored_beside_those_of_others(tmp_path: Path):
    path = tmp_path / "rows.json"
    rows.store("x", RUN, path)
    rows.store("y", rows.measured("python -m benchmarks y", {"z": 1 / 3}), path)
    found = rows.read(path)
    assert found["x"] == RUN
    assert found["y"].rows == {"z": 0.333333}
    assert rows.flat(found) == {"x/a/b": 23.849, "x/c": 0.0931, "y/z": 0.333333}


def test_a_printed_table_becomes_rows():
    table = "| kind | N | share |\n|---|---|---|\n| **all** | 1,000 | .93 ± .01 |\n| hard | 20 | -0.5 |"
    assert rows.of_table(table, ["kind", "N"]) == {
        "all-1000/share": 0.93,
        "all-1000/share/2": 0.01,
        "hard-20/share": -0.5,
    }


def test_a_study_goes_on_where_it_stopped(tmp_path):
    path, asked = tmp_path / "deep" / "rows.jsonl", []

    def run(name: str, number: int) -> dict[str, Any]:
        asked.append((name, number))
        if number == 2:
            raise KeyboardInterrupt
        return {"name": name, "number": number, "value": np.float32(0.5)}

    def resume(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
        wanted = {pair: pair for pair in pairs}
        return rows.resumed(path, wanted, lambda row: (row["name"], row["number"]), run, lambda row: row["name"] != "z")

    with pytest.raises(KeyboardInterrupt):
        resume(("a", 1), ("a", 2))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"name": "a", "number": 1, "value": 0.5}]
    with path.open("a") as file:
        file.write(json.dumps({"name": "z", "number": 1}) + "\n")  # of another study
    asked.clear()
    found = resume(("a", 1), ("b", 1), ("b", 3))
    assert asked == [("b", 1), ("b", 3)]
    assert [(row["name"], row["number"]) for row in found] == [("a", 1), ("b", 1), ("b", 3)]
    assert len(path.read_text().splitlines()) == 4
    assert resume() == [json.loads(line) for line in path.read_text().splitlines() if '"z"' not in line]


def test_rows_of_cases_and_seeds_are_completed(tmp_path, monkeypatch):
    """Twice as many seeds run only what is new, and --store is told to the study."""

    @dataclass(frozen=True)
    class Case:
        name: str

    asked = []

    def run(case: Case, seed: int) -> dict[str, Any]:
        asked.append((case.name, seed))
        return {"name": case.name, "seed": seed}

    def study(*options: str) -> tuple[list[dict[str, Any]], bool]:
        monkeypatch.setattr("sys.argv", ["study", "--rows", str(tmp_path / "rows.jsonl"), *options])
        return rows.seeded(None, "logs", 1, Path("x"), [Case("a"), Case("b")], lambda row: (row["name"],), run)

    found, store = study()
    assert (found, store) == ([{"name": "a", "seed": 0}, {"name": "b", "seed": 0}], False)
    found, store = study("--logs", "2", "--store")
    assert (len(found), store) == (4, True)
    assert asked == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
