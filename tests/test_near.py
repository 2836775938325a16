"""`make near`: every module has tests of its own or of its neighbours, found by rule."""

from __future__ import annotations

import house
import near
import pytest


def test_every_module_has_an_answer_that_exists():
    for name in house.modules():
        found = near.tests_of(name)
        assert 1 <= len(found) <= near.MOST, f"{len(found)} test files for {name or 'lmab'}"
        assert all((near.TESTS / file).is_file() for file in found)


def test_the_file_named_after_a_module_is_its_answer():
    assert near.near(house.SOURCE / "files.py") == ["test_files.py"]
    assert near.near(house.SOURCE / "model" / "belief.py") == ["test_model_belief.py"]


def test_a_test_file_is_its_own():
    assert near.near(near.TESTS / "test_near.py") == ["test_near.py"]


def test_without_a_name_those_that_import_most_come_first(monkeypatch, tmp_path):
    for number in range(7):
        names = ", ".join(["LmabError", "LmabWarning", "InvalidArgument", "InvalidFile"][: 1 + (number > 4)])
        (tmp_path / f"test_{number}.py").write_text(f"from lmab.errors import {names}\n")
    fresh(monkeypatch, tmp_path)
    found = near.tests_of("errors")
    assert {"test_5.py", "test_6.py"} < found
    assert len(found) == near.MOST


def test_what_is_used_through_a_front_door_counts_for_its_home(monkeypatch, tmp_path):
    (tmp_path / "test_a.py").write_text("import lmab\nlmab.Sessions.from_arrays([[0]], [[1]])\n")
    (tmp_path / "test_b.py").write_text("import lmab\nlmab.moments.subspace\n")
    fresh(monkeypatch, tmp_path)
    assert near.tests_of(house.definer("", "Sessions")) == {"test_a.py"}
    assert near.tests_of(house.definer("moments", "subspace")) == {"test_b.py"}


def test_a_module_without_tests_has_those_of_its_importers(monkeypatch, tmp_path):
    (tmp_path / "test_cli.py").write_text("")
    fresh(monkeypatch, tmp_path)
    assert near.tests_of("__main__") == {"test_cli.py"}


def test_of_many_neighbours_those_of_the_package_come_first(monkeypatch):
    neighbours = {"test_cli_a.py", "test_data.py", "test_cli_b.py", "test_a.py"}
    monkeypatch.setattr(near, "_own", lambda name: neighbours if name == "errors" else set())
    monkeypatch.setattr(near, "MOST", 2)
    assert near.tests_of("cli.report") == {"test_cli_a.py", "test_cli_b.py"}


def test_what_is_no_source_file_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="FILE must be a Python file below src/lmab or a test file, got"):
        near.near(tmp_path / "other.py")


def fresh(monkeypatch, folder):
    """Look for tests in this folder."""
    monkeypatch.setattr(near, "TESTS", folder)
    monkeypatch.setattr(near, "_uses", near._uses.__wrapped__)
