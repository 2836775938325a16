"""The order of test files, and what `make quick` leaves out."""

from __future__ import annotations

from types import SimpleNamespace

import conftest
import pytest
import times


class Config:
    """As much of pytest's configuration as is asked for."""

    def __init__(self, quick: bool, named: bool) -> None:
        self.quick, self.left_out = quick, []
        self.args_source = SimpleNamespace(name="ARGS" if named else "TESTPATHS")
        self.hook = SimpleNamespace(pytest_deselected=lambda items: self.left_out.extend(items))

    def getoption(self, name: str) -> bool:
        return {"--quick": self.quick}[name]


@pytest.fixture
def items(monkeypatch):
    monkeypatch.setattr(times, "read", lambda: {"test_long": 0.6, "test_longer": 1.5, "test_short": 0.5})
    names = [("a", "test_x"), ("a", "test_long"), ("b", "test_longer"), ("b", "test_short")]
    return [SimpleNamespace(path=path, name=f"{name}[0]", originalname=name) for path, name in names]


def chosen(items) -> list[str]:
    return [item.originalname for item in items]


def test_times_are_written_from_a_report_and_read(tmp_path):
    cases = {"test_long[a]": 0.4, "test_long[b]": 0.3, "test_short": 0.1, "test_longest": 2.0}
    rows = [f'<testcase name="{name}" time="{time}"/>' for name, time in cases.items()]
    (tmp_path / "report.xml").write_text(f"<testsuite>{''.join(rows)}</testsuite>")
    times.write(tmp_path / "report.xml", tmp_path / "times.tsv")
    assert (tmp_path / "times.tsv").read_text() == "2.0\ttest_longest\n0.7\ttest_long\n"
    assert times.read(tmp_path / "times.tsv") == {"test_longest": 2.0, "test_long": 0.7}


def test_the_longest_file_starts_first_and_the_others_keep_their_order():
    names = {"a": ["test_x"], "b": ["test_y", "test_y"], "c": ["test_u", "test_v"], "d": []}
    assert times.longest_first(names, {"test_y": 2.0, "test_u": 1.5, "test_v": 1.0}) == ["c", "b", "a", "d"]


def test_the_order_does_not_depend_on_the_order_of_sums(monkeypatch):
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit."""
    known = {"test_a": 0.1, "test_b": 0.2, "test_c": 0.3}
    for names in (["test_a", "test_b", "test_c"], ["test_c", "test_b", "test_a"]):
        monkeypatch.setattr(
            times, "set", lambda some, names=names: [*filter(some.__contains__, [*names, "test_d"])], raising=False
        )
        both = {"d": ["test_d"], "a": names}
        assert times.longest_first(both, {**known, "test_d": 0.6}) == ["d", "a"]


def test_files_are_ordered_where_none_is_named(items):
    before = chosen(items)
    conftest.pytest_collection_modifyitems(Config(quick=False, named=True), items)
    assert chosen(items) == before
    conftest.pytest_collection_modifyitems(Config(quick=False, named=False), items)
    assert chosen(items) == ["test_longer", "test_short", "test_x", "test_long"]


def test_quick_leaves_out_what_takes_a_second(items):
    config = Config(quick=True, named=True)
    conftest.pytest_collection_modifyitems(config, items)
    assert chosen(items) == ["test_x", "test_short"]
    assert chosen(config.left_out) == ["test_long", "test_longer"]
