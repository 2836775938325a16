"""Mutation testing: drawing faults, choosing their tests, and counting the faults that tests notice."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mutants import covering, drawing, faults, hunt
from mutants.faults import Fault
from mutants.hunt import EQUIVALENT, ERROR, KILLED, SURVIVED, Outcome

TESTS = Path(__file__).parent


# faults drawn at random

PROGRAM = '''"""Docstring with 1 number."""

LIMIT = 0.05


def cut(values: "Float[Array, '3']", *, most: int = 4, sure=True):
    """Another one: 2."""
    if len(values) < most and sure:
        values.sort()
    try:
        return max(values)
    except ValueError:
        return f"{LIMIT:.1%}"
'''


@pytest.fixture
def drawn(tmp_path) -> list[str]:
    """Everything that can be drawn from the program."""
    (tmp_path / "module.py").write_text(PROGRAM)
    read = drawing._File.read(tmp_path / "module.py")
    made = [read.fault("module.py", line, change) for line, changes in read.changes.items() for change in changes]
    return [fault.apply(PROGRAM) for fault in made if fault is not None]


@pytest.mark.parametrize(
    "change",
    [
        ("LIMIT = 0.05", "LIMIT = 0.1"),  # a threshold
        ("most: int = 4", "most: int = 8"),  # a default
        ("most: int = 4", "most: int = 5"),
        ("    if len", "    most = 4\n    if len"),  # an option that is ignored
        ("sure=True", "sure=False"),
        ("len(values) < most", "len(values) <= most"),
        ("most and sure", "most or sure"),
        ("if len(values) < most and sure:", "if not (len(values) < most and sure):"),
        ("values.sort()", "pass"),
        ("max(values)", "min(values)"),
        ('        return f"{LIMIT:.1%}"', "        raise"),  # an error that is no longer caught
        (":.1%", ":.2%"),
        (":.1%", ":.1f"),
    ],
)
def test_operators_know_this_change(drawn, change):
    assert PROGRAM.replace(*change) in drawn


def test_what_is_not_run_is_not_changed(drawn):
    for text in drawn:
        assert text.startswith('"""Docstring with 1 number."""')
        assert '"""Another one: 2."""' in text
        assert "Float[Array, '3']" in text
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(PROGRAM))


def test_a_seed_draws_the_same_faults(tmp_path):
    (tmp_path / "module.py").write_text(PROGRAM)
    (tmp_path / "_kernel" / "cuda").mkdir(parents=True)
    (tmp_path / "_kernel" / "cuda" / "em.py").write_text(PROGRAM)
    first, again, other = (drawing.draw(8, np.random.default_rng(seed), tmp_path) for seed in (0, 0, 1))
    assert first == again != other
    assert len({fault.apply(PROGRAM) for fault in first}) == 8
    assert {fault.file for fault in first} == {"module.py"}  # only a GPU runs the others


def test_a_fault_is_whole_lines():
    fault = drawing.difference("id", "f.py", "a\nb\nc\nd\n", "a\nx\ny\nd\n")
    assert (fault.begin, fault.old, fault.new) == (2, "b\nc\n", "x\ny\n")
    longer = drawing.difference("id", "f.py", "a\na\n", "a\na\na\n")
    assert longer.apply("a\na\n") == "a\na\na\n"


# which tests run a line


RECORDED = """LIMIT = 3

def f(most=2):
    one = most
    three = LIMIT
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch) -> covering.Records:
    from coverage import CoverageData

    source = tmp_path / "lmab"
    source.mkdir()
    (source / "f.py").write_text(RECORDED.replace("    three", "    two = 2\n    three"))
    folder = tmp_path / "record"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "f.py").write_text(RECORDED)
    data = CoverageData(str(folder / "data"))
    ran = {"test_a.py::test_x": [4], "test_a.py::test_y[1]": [4, 5], "test_b.py::test_z": [4], "test_b.py::bad": [4]}
    for name, lines in ran.items():
        data.set_context(f"tests/{name}|run")
        data.add_lines({str(source / "f.py"): lines})
    data.write()
    times = {"test_a.test_x": 9, "test_a.test_y[1]": 2, "test_b.test_z": 1, "test_b.bad": 1}
    places = [(*name.split("."), time) for name, time in times.items()]
    cases = [
        f'<testcase classname="tests.{file}" name="{name}" time="{time}">{"<failure/>" * (name == "bad")}</testcase>'
        for file, name, time in places
    ]
    (folder / "times.xml").write_text(f"<testsuites>{''.join(cases)}</testsuites>")
    monkeypatch.setattr(covering, "SOURCE", source)
    monkeypatch.setattr(covering, "near", lambda file: ("test_a.py",))
    return covering.Records(folder)


ALL = ("test_a.py::test_y[1]", "test_a.py::test_x", "test_b.py::test_z")


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (4, ALL),  # those near come first, then the shortest; one that failed is none
        (6, ALL[:1]),  # it moved from line 5
        (5, ALL),  # a new one
        (3, ALL),  # a default: all of its function
        (1, ALL[:2]),  # a constant: where it is named, and the file near it
        (2, ()),
    ],
)
def test_a_line_has_the_tests_that_ran_it_or_what_it_serves(recorded, line, tests):
    assert recorded.tests("f.py", line) == tests


def test_a_constant_has_the_tests_that_name_it_too(recorded, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    named = "def test_z():\n    assert f.LIMIT\n\n\ndef test_w():\n    assert f.LIMITED\n"
    (tmp_path / "tests" / "test_b.py").write_text(named)
    monkeypatch.setattr(covering, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(covering, "near", lambda file: ())
    assert recorded.tests("f.py", 1) == (ALL[0], ALL[2])
    assert recorded.tests("f.py", 6) == ALL[:1]  # a line that a test ran has its tests alone


def test_tests_are_run_as_far_as_the_time_goes(recorded, monkeypatch):
    for seconds, number in ((1.0, 1), (3.0, 2), (11.9, 2), (12.0, 3)):
        monkeypatch.setattr(covering, "SECONDS", seconds)
        assert len(recorded.tests("f.py", 4)) == number


def test_tests_that_were_written_since_have_a_record_beside_it(recorded, tmp_path):
    from coverage import CoverageData

    more, file = tmp_path / "record" / "more-0", tmp_path / "lmab" / "f.py"
    (more / "src").mkdir(parents=True)
    (more / "src" / "f.py").write_text(file.read_text())
    data = CoverageData(str(more / "data"))
    data.set_context("tests/test_c.py::test_new|run")
    data.add_lines({str(file): [6]})
    data.write()
    (more / "times.xml").write_text('<s><testcase classname="tests.test_c" name="test_new" time="1"></testcase></s>')
    both = covering.Records(tmp_path / "record")
    assert both.tests("f.py", 6) == (*ALL[:1], "test_c.py::test_new")
    assert both.tests("f.py", 4) == ALL


def test_times_of_a_busy_machine_count_as_on_a_quiet_one(monkeypatch):
    import times

    monkeypatch.setattr(times, "read", lambda: {"test_x": 1.0, "test_gone": 5.0})
    took = {"a.py::test_x[1]": 3.0, "a.py::test_x[2]": 1.0, "b.py::test_y": 2.0}
    assert covering._as_if_quiet(took) == {"a.py::test_x[1]": 0.75, "a.py::test_x[2]": 0.25, "b.py::test_y": 0.5}
    monkeypatch.setattr(times, "read", lambda: {"test_x": 8.0})
    assert covering._as_if_quiet(took) == took


def test_without_a_record_the_tests_near_the_file_are_run(recorded, monkeypatch):
    monkeypatch.setattr(covering, "near", lambda file: (file,))
    assert covering.covering("f.py", 4, None) == ("f.py",)
    assert covering.covering("f.py", 2, recorded) == ("f.py",)
    assert covering.covering("f.py", 6, recorded) == ALL[:1]
    monkeypatch.setattr(covering, "COMPILED", "f")  # of a kernel coverage sees no more than its door
    assert covering.covering("f.py", 6, recorded) == ("f.py",)


def test_a_line_that_a_fixture_ran_has_all_cases_of_its_test(tmp_path, monkeypatch):
    from coverage import CoverageData

    source, folder = tmp_path / "lmab", tmp_path / "record"
    source.mkdir()
    (folder / "src").mkdir(parents=True)
    for path in (source / "f.py", folder / "src" / "f.py"):
        path.write_text("def f():\n    return 1\n")
    data = CoverageData(str(folder / "data"))
    data.set_context("tests/test_a.py::test_x[1]|setup")
    data.add_lines({str(source / "f.py"): [2]})
    data.write()
    names = ("test_x[1]", "test_x[2]", "test_y[1]")
    cases = "".join(f'<testcase classname="tests.test_a" name="{name}" time="1"></testcase>' for name in names)
    (folder / "times.xml").write_text(f"<s>{cases}</s>")
    monkeypatch.setattr(covering, "SOURCE", source)
    monkeypatch.setattr(covering, "near", lambda file: ())
    assert set(covering.Records(folder).tests("f.py", 2)) == {"test_a.py::test_x[1]", "test_a.py::test_x[2]"}


# trying


def fault(old: str, new: str = "new") -> Fault:
    return Fault("id", "module.py", 0, old, new, ("test_x.py",))


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(0, SURVIVED), (1, KILLED), (2, KILLED), (-24, KILLED), (-11, KILLED), (4, ERROR), (5, ERROR), (3, ERROR)],
)
def test_a_fault_is_in_the_copy_while_its_tests_run_and_not_after(status, verdict, tmp_path, monkeypatch):
    path = tmp_path / "lmab" / "module.py"
    path.parent.mkdir()
    path.write_text("old text")
    before = path.stat().st_mtime_ns
    seen = []

    def run(copy, tests, limit):
        seen.append((copy, tests, limit, path.read_text()))
        return status, "FAILED tests/test_x.py::test_y - assert 1 == 2"

    monkeypatch.setattr(hunt, "run_tests", run)
    outcome = hunt.attempt(fault("old"), tmp_path, 7.0)
    assert outcome.verdict == verdict
    assert seen == [(tmp_path, ("test_x.py",), 7.0, "new text")]
    assert (path.read_text(), path.stat().st_mtime_ns) == ("old text", before)


def test_most_faults_meet_a_few_files_only():
    names = [f"test_{letter}.py" for letter in "abcdef"]
    tests = ("test_a.py::x", *names, "test_a.py::y")
    assert hunt.rounds(tests) == [(*tests[:5], "test_a.py::y"), tests[5:7]]
    assert hunt.rounds(names[:4]) == [tuple(names[:4])]


def test_tests_run_in_the_order_in_which_they_are_wanted():
    chosen = hunt.Chosen(["test_b.py::y[2]", "test_b.py::x", "test_a.py"], {"x": 12.0, "long": 10.0, "short": 9.9})
    assert chosen.files() == ["test_b.py", "test_a.py"]
    names = ["test_a.py::z[1]", "test_b.py::x[0]", "test_b.py::y[1]", "test_b.py::y[2]"]
    assert [chosen.place(name) for name in names] == [2, 1, None, 0]
    assert [chosen.place(f"test_a.py::{name}[1]") for name in ("short", "long")] == [2, None]


def test_kernels_that_hold_the_changed_one_are_compiled_anew(tmp_path):
    cache = tmp_path / "lmab" / "_kernel" / "compiled" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "old.nbi").write_text("")
    with hunt._compiled_anew(tmp_path, "_kernel/arrays.py"):
        assert (cache / "old.nbi").exists()
    with hunt._compiled_anew(tmp_path, "_kernel/compiled/em.py"):
        assert not cache.exists()
        cache.mkdir()
        (cache / "new.nbi").write_text("")
    assert [path.name for path in cache.iterdir()] == ["old.nbi"]


@pytest.mark.parametrize(
    ("why", "test"),
    [
        ("FAILED tests/test_a.py::test_x[a b] - assert 1 - 2", "test_a.py::test_x[a b]"),
        ("FAILED tests/test_a.py::test_x", "test_a.py::test_x"),
        ("ERROR tests/test_a.py - ImportError", "test_a.py"),
        ("no end within 90 s", ""),
    ],
)
def test_the_test_that_killed_is_known(why, test):
    assert hunt.killer(Outcome(fault("old"), KILLED, 1.0, why)) == test


def test_a_test_that_fails_by_itself_kills_nothing(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    monkeypatch.setattr(hunt, "ROOT", tmp_path)
    both = Fault("id", "module.py", 0, "old", "new", ("test_bad.py::test_x", "test_good.py::test_y"))

    def attempt(fault, copy, limit):
        failed = "FAILED tests/test_bad.py::test_x - flaky"
        return Outcome(fault, KILLED if len(fault.tests) > 1 else SURVIVED, 1.0, failed)

    def run(copy, tests, limit):
        return (1, "") if "test_bad.py::test_x" in tests else (0, "")

    monkeypatch.setattr(hunt, "attempt", attempt)
    monkeypatch.setattr(hunt, "run_tests", run)
    [outcome] = hunt.hunt([both], 1, 5.0)
    assert outcome.verdict == SURVIVED
    assert outcome.fault.tests == ("test_good.py::test_y",)


def test_a_hunt_that_is_cut_off_keeps_its_outcomes_and_checks_its_killers(tmp_path, monkeypatch, capsys):
    (tmp_path / "src").mkdir()
    monkeypatch.setattr(hunt, "ROOT", tmp_path)
    some = [Fault(f"id{number}", "module.py", 0, "old", "new", ("test_a.py::test_x",)) for number in range(3)]
    runs, now = [], [0.0]
    monkeypatch.setattr(hunt, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def attempt(fault, copy, limit):
        now[0] += 1000.0  # two of them are more than half an hour
        return Outcome(fault, KILLED, 1.0, f"FAILED tests/test_{fault.id}.py::test_x - assert\nand more")

    def run(copy, tests, limit):
        runs.append(tests)
        return 0, ""

    monkeypatch.setattr(hunt, "attempt", attempt)
    monkeypatch.setattr(hunt, "run_tests", run)
    found = hunt.hunt(some, 1, 5.0, minutes=30, kept=tmp_path / "kept" / "1.tsv")
    assert [outcome.fault.id for outcome in found] == ["id0", "id1"]
    assert (tmp_path / "kept" / "1.tsv").read_text().splitlines() == [
        f"killed\t{name}\t1\tFAILED tests/test_{name}.py::test_x - assert" for name in ("id0", "id1")
    ]
    assert "2 of 3 faults were tried in 30 minutes" in capsys.readouterr().out
    assert runs == [["test_id0.py::test_x", "test_id1.py::test_x"]]  # in one process, as none fails


def test_a_survivor_that_is_known_to_change_nothing_is_equivalent(tmp_path):
    (tmp_path / "equivalent.toml").write_text('[[equivalent]]\nold = "a  + b"\nnew = "b + a"\nwhy = "a sum"\n')
    known = hunt.equivalents(tmp_path / "equivalent.toml")
    for verdict, judged in ((SURVIVED, EQUIVALENT), (KILLED, KILLED), (ERROR, ERROR)):
        assert hunt.judged(Outcome(fault("a + b\n", "b +\n a"), verdict, 1.0, ""), known).verdict == judged
    assert hunt.judged(Outcome(fault("a + b", "a - b"), SURVIVED, 1.0, ""), known).verdict == SURVIVED


def test_every_equivalent_has_its_reason():
    text = faults.EQUIVALENT.read_text()
    assert all(row["why"] for row in tomllib.loads(text).get("equivalent", []))


def outcomes(killed: int, survived: int, equivalent: int = 0, errors: int = 0) -> list[Outcome]:
    verdicts = [KILLED] * killed + [SURVIVED] * survived + [EQUIVALENT] * equivalent + [ERROR] * errors
    return [Outcome(fault("old"), verdict, 1.0, "") for verdict in verdicts]


def test_enough_must_be_killed_of_those_that_could_be(capsys):
    assert hunt.report(outcomes(85, 15, 20), 0.85, 60.0) == 0
    said = capsys.readouterr().out
    assert "85 of 100 killed (85.0%; at least 85% must be), 15 survived, 20 equivalent, 0 errors, 1.0 minutes" in said
    assert [line.split() for line in said.splitlines() if line.startswith("module ")] == [
        ["module", "85", "15", "20", "0"]
    ]
    assert hunt.report(outcomes(84, 16), 0.85, 60.0) == 1
    assert hunt.report(outcomes(99, 0, 0, 1), 0.85, 60.0) == 1
