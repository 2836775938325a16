"""The hunt for faults that tests do not notice: what it applies, what it calls killed, and what its lists name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants import hunt
from mutants.hunt import ERROR, KILLED, SURVIVED, Mutant, Outcome

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def listed() -> list[Mutant]:
    return hunt.read()


def test_there_are_many_and_they_are_spread(listed):
    assert len(listed) >= 150
    wanted = {
        "data",
        "model",
        "policies",
        "moments",
        "estimation",
        "planning",
        "evaluation",
        "learning",
        "theory",
        "cli",
        "serve",
        "experiment",
    }
    assert wanted <= {mutant.module for mutant in listed}
    assert all(mutant.old != mutant.new for mutant in listed)


def test_every_test_that_must_fail_exists(listed):
    texts = {path.name: path.read_text() for path in TESTS.glob("test_*.py")}
    for mutant in listed:
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert file in texts, mutant.id
            assert not name or f"def {name.split('[')[0]}(" in texts[file], f"{mutant.id}: {test}"


def test_every_fault_can_be_put_into_the_package(listed):
    source = hunt.ROOT / "src" / "lmab"
    assert {mutant.id: hunt.stale(mutant, source) for mutant in listed} == dict.fromkeys(mutant.id for mutant in listed)


def fault(old: str, new: str = "new") -> Mutant:
    return Mutant("id", "module.py", old, new, ("test_x.py",))


def test_a_text_that_does_not_stand_once_is_stale(tmp_path):
    (tmp_path / "module.py").write_text("one two two")
    assert hunt.stale(fault("one"), tmp_path) is None
    assert hunt.stale(fault("two"), tmp_path) == "its text stands 2 times in module.py, not once"
    assert hunt.stale(fault("three"), tmp_path) == "its text stands 0 times in module.py, not once"
    assert hunt.stale(fault("one", "one"), tmp_path) == "the fault changes nothing"
    assert hunt.stale(Mutant("id", "none.py", "a", "b", ()), tmp_path) == "no file none.py"


@pytest.mark.parametrize(
    ("status", "verdict"), [(0, SURVIVED), (1, KILLED), (2, KILLED), (-1, KILLED), (4, ERROR), (5, ERROR), (3, ERROR)]
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


def outcomes(killed: int, survived: int, errors: int = 0) -> list[Outcome]:
    verdicts = [KILLED] * killed + [SURVIVED] * survived + [ERROR] * errors
    return [Outcome(fault("old"), verdict, 1.0, "") for verdict in verdicts]


def test_ninety_five_of_a_hundred_must_be_killed(capsys):
    assert hunt._report(outcomes(95, 5), 60.0) == 0
    assert (
        "95 of 100 killed (95.0%; at least 95% must be), 5 survived, 0 errors, 1.0 minutes" in capsys.readouterr().out
    )
    assert hunt._report(outcomes(94, 6), 60.0) == 1
    assert hunt._report(outcomes(99, 0, 1), 60.0) == 1


def test_faults_are_chosen_by_module_file_or_id(listed):
    one = listed[0]
    assert hunt._chosen(listed, []) == listed
    assert hunt._chosen(listed, [one.id]) == [one]
    assert {mutant.module for mutant in hunt._chosen(listed, ["theory", "data"])} == {"theory", "data"}
    assert {mutant.file for mutant in hunt._chosen(listed, ["files.py"])} == {"files.py"}
    with pytest.raises(SystemExit, match="no fault, file or module is called nonsense"):
        hunt._chosen(listed, ["nonsense"])


def test_an_id_stands_for_one_fault(tmp_path):
    row = '[[mutant]]\nid = "a"\nfile = "f.py"\nold = "x"\nnew = "y"\ntests = []\n'
    (tmp_path / "list.toml").write_text(row)
    assert hunt.read(tmp_path) == [Mutant("a", "f.py", "x", "y", ())]
    (tmp_path / "other.toml").write_text(row)
    with pytest.raises(SystemExit, match="ids must be unique, got twice: a"):
        hunt.read(tmp_path)
