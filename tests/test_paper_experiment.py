"""Settings, the store of rows, and what analysis makes of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from policies import always

import lmab
from lmab.errors import InvalidArgument, InvalidFile
from lmab.experiment import STUDIES, Row, RowStore, compare, draw, read_table, tables, wanted, write_table
from lmab.learning import Genie
from lmab.model import random_bandit
from lmab.paper.experiment import plots
from lmab.paper.experiment.analysis import Mean, Point, in_order, points, sessions_needed
from lmab.paper.experiment.checks import Evidence, segments_lift_the_limit, who_scales
from lmab.paper.experiment.methods import (
    DIRECT_MLE,
    ED_MLE,
    ED_MLE_APART,
    ED_MLE_KNOWN,
    EM_BLIND,
    EM_SEGMENTS,
    TENSOR,
    ByProcessor,
    Contender,
    Measurement,
    Setting,
    Trial,
    planning_seconds,
    value_of,
)
from lmab.paper.experiment.plots import _lost, _split_figure, draw_figure
from lmab.paper.experiment.store import row_of
from lmab.paper.experiment.studies import FIGURES, FORMS, LOW_RANK, Cell, Panel, Study
from lmab.planning.plan import plan


def _nothing(setting, bandit, instance):
    return Measurement(0.0)


GENIE, FAST, SLOW = (Contender(name, name, _nothing, name != "genie") for name in ("genie", "direct-mle", "ed-mle"))
SETTINGS = tuple(Setting("spherical", 5, 50, 7, n) for n in (1000, 10_000, 100_000))
FRACTION, LOST = Panel("fraction", "Fraction"), Panel("value_gap", "Lost", log=True)
STUDY = Study(
    "toy",
    "A toy",
    "n_sessions",
    "sessions",
    (FRACTION, LOST, Panel("distance", "Distance", budget=0)),
    {"quick": (Cell(SETTINGS, (GENIE, FAST, SLOW)),)},
    log=True,
)


def row(trial, **found):
    return row_of(trial, Measurement(**found), "done", "2022-10-03T00:00:00+00:00")


def toy_rows():
    """Instance i is worth 1 + i to the genie; one method reaches .9, .95, 1 of it, the other .8, .85, .9."""
    rows = []
    for instance in range(2):
        best = 1.0 + instance
        rows.append(row(Trial.of(SETTINGS[0], instance, GENIE), value=best, value_qmdp=best / 2))
        for index, setting in enumerate(SETTINGS):
            for method, start in ((FAST, 0.9), (SLOW, 0.8)):
                share = start + 0.05 * index
                rows.append(row(Trial.of(setting, instance, method), value=best * share, distance=1.0))
    return rows


def test_ids_are_unique_and_tell_all_that_matters():
    for study in STUDIES:
        for size in study.cells:
            found = study.trials(size)
            assert len({trial.id for trial in found}) == len(set(found))
    assert Trial.of(SETTINGS[1], 3, FAST).id == "spherical-M5-A50-H7-N10000/03/direct-mle"
    assert Trial.of(SETTINGS[1], 3, GENIE).id == "spherical-M5-A50-H7-N0/03/genie"


def test_every_study_has_its_sizes_and_full_has_twenty_instances():
    for study in STUDIES:
        assert {trial.instance for trial in study.trials("full")} == set(range(study.first, study.first + 20))
        assert len({trial.instance for trial in study.trials("standard")}) >= 10
        ids = {trial.id for trial in study.trials("full")}
        assert {trial.id for trial in study.trials("standard")} <= ids


def test_instances_are_the_same_for_every_horizon_and_budget_and_differ_otherwise():
    short, long = Setting("spherical", 4, 20, 2, 100), Setting("spherical", 4, 20, 20, 999)
    assert short.draw(3) == long.draw(3)
    assert short.draw(3) != short.draw(4)


@pytest.mark.parametrize("separation", [0.2, 1.0])
def test_separated_types_differ_by_exactly_the_separation(separation):
    bandit = Setting("separated", 4, 30, 5, 0, separation).draw(1)
    for m in range(4):
        for other in range(m):
            l1 = 2 * np.abs(bandit.means[m] - bandit.means[other])
            np.testing.assert_allclose(l1[l1 > 1e-12], separation)
            assert (l1 > 1e-12).any()


def test_types_on_a_line_have_rank_two():
    bandit = Setting("line", 3, 10, 5, 0).draw(0)
    assert np.linalg.matrix_rank(bandit.means, tol=1e-9) == 2
    assert (bandit.means > 0.01).all()
    assert (bandit.means < 0.99).all()


def test_a_line_cut_short_is_ignored_and_the_next_row_is_whole(tmp_path):
    store, rows = RowStore(tmp_path), toy_rows()
    store.append(rows[0])
    half = json.dumps(asdict(rows[1]))[:40]
    with open(store.path, "a") as file:
        file.write(half)
    assert store.rows() == rows[:1]
    store.append(rows[2])
    assert store.rows() == [rows[0], rows[2]]


def test_the_later_of_two_rows_counts(tmp_path):
    store, first = RowStore(tmp_path), toy_rows()[0]
    store.append(first)
    store.append(replace(first, value=9.0))
    assert [found.value for found in store.rows()] == [9.0]


def test_the_compressed_table_gives_the_same_rows_and_bytes(tmp_path):
    rows = [*toy_rows(), row_of(Trial.of(SETTINGS[0], 7, FAST), None, 'ValueError: "a", b\nc', "now")]
    write_table(rows, tmp_path / "a.csv.gz")
    write_table(rows[::-1], tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert {found.id: found for found in read_table(tmp_path / "a.csv.gz")} == {found.id: found for found in rows}
    (tmp_path / "c.csv.gz").write_bytes(b"no table")
    with pytest.raises(InvalidFile, match=r"c\.csv\.gz: not a table of rows"):
        read_table(tmp_path / "c.csv.gz")


def test_points_are_paired_with_the_genie_of_the_same_instance():
    found = {(point.method, point.x): point for point in points(STUDY, toy_rows(), FRACTION)}
    assert found["direct-mle", 10_000].mean == pytest.approx(0.95)
    assert found["direct-mle", 10_000].stderr == pytest.approx(0, abs=1e-12)
    assert found["genie", 1000].mean == found["genie", 100_000].mean == 1.0
    assert {point.n_instances for point in found.values()} == {2}
    lost = {(point.method, point.x): point.mean for point in points(STUDY, toy_rows(), LOST)}
    assert lost["ed-mle", 1000] == pytest.approx(0.2 * 1.5 / 7)


def test_standard_errors_are_over_instances():
    rows = [found for found in toy_rows() if found.method != "genie"]
    genies = [row(Trial.of(SETTINGS[0], i, GENIE), value=1.0) for i in range(2)]
    point = next(p for p in points(STUDY, [*rows, *genies], FRACTION) if (p.method, p.x) == ("direct-mle", 1000))
    assert point.mean == pytest.approx((0.9 + 1.8) / 2)
    assert point.stderr == pytest.approx(0.45)


def test_comparisons_are_paired():
    evidence = Evidence(toy_rows())
    found = evidence.difference("fraction", DIRECT_MLE, ED_MLE)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert found.n_instances == 6
    assert found.stderr == pytest.approx(0, abs=1e-12)
    assert evidence.difference("fraction", DIRECT_MLE, TENSOR) is None


def test_sessions_needed_interpolates_in_the_logarithm():
    rows = toy_rows()
    assert sessions_needed(rows, "direct-mle", 0.925).n_sessions == pytest.approx(math.sqrt(1000 * 10_000))
    assert sessions_needed(rows, "direct-mle", 0.5).n_sessions == 1000
    missing = sessions_needed(rows, "ed-mle", 0.99)
    assert (missing.n_sessions, missing.high, missing.n_instances) == (math.inf, math.inf, 2)
    assert sessions_needed(rows, "tensor", 0.9) is None


def test_failed_rows_and_rows_of_other_studies_are_left_out():
    rows = toy_rows()
    other = row(Trial.of(Setting("hard", 3, 10, 4), 0, GENIE), value=1.0)
    failed = replace(rows[1], status="ValueError: no")
    assert wanted(STUDY, [rows[0], failed, other]) == [rows[0]]


def test_tables_have_a_line_per_method_and_a_column_per_place():
    fraction, _, distance = tables(STUDY, toy_rows())
    assert fraction.header == ["sessions", "1,000", "10,000", "100,000"]
    assert fraction.cells[1] == ["direct-mle", "0.9000 ± 0.0000", "0.9500 ± 0.0000", "1.0000 ± 0.0000"]
    assert fraction.title == "Fraction: V / V genie, certified planner (2 instances)"
    assert [line[0] for line in distance.cells] == ["direct-mle", "ed-mle"]
    assert distance.header == ["sessions", "1,000"]  # the smallest budget only
    assert distance.title == "Distance, N = 1,000: distance to the true model (2 instances)"


def test_figures_come_from_rows_alone_and_say_how_many_instances(tmp_path):
    paths = draw(STUDY, toy_rows(), tmp_path)
    assert [path.name for path in paths] == ["toy.png", "toy.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    first = paths[1].read_bytes()
    assert draw(STUDY, toy_rows(), tmp_path)[1].read_bytes() == first
    assert b"means over 2 instances" in first
    draw(STUDY, [], tmp_path)  # before the first row there are axes all the same


def test_a_figure_of_the_paper_has_its_five_curves_and_ours_below(tmp_path):
    figure = FIGURES[1]
    trials = [trial for each in figure.studies for trial in each.trials("quick")]
    share = {method.name: 0.9 + 0.01 * place for place, method in enumerate(LOW_RANK)}
    rows = [
        row(trial, value=share[trial.method.name], value_qmdp=share[trial.method.name], distance=0.1)
        for trial in trials
        if trial.method.name != "genie"
    ]
    rows += [row(trial, value=1.0, value_qmdp=1.0) for trial in trials if trial.method.name == "genie"]
    png, svg = draw_figure(figure, rows, tmp_path, "quick")
    text = svg.read_text()
    assert (png.name, svg.name) == ("figure3.png", "figure3.svg")
    for method in FORMS:
        assert text.count(f">{method.label}<") == 1, method.label
    assert text.index(">genie<") < text.index(">ED+MLE as printed<")  # The genie comes first.
    assert "not run yet" not in text
    assert text.count("lost: 1 - V / V genie") == 2
    assert "losses below" not in text  # The least one is .01.
    best = [replace(one, value=1.01) if one.method == "direct-mle" else one for one in rows]
    assert "losses below 0.0001 are drawn at 0.0001" in draw_figure(figure, best, tmp_path, "quick")[1].read_text()
    left = [one for one in rows if one.method != "l-ucrl-published"]
    assert draw_figure(figure, left, tmp_path, "quick")[1].read_text().count("not run yet: L-UCRL as published") == 2
    assert draw_figure(figure, left, tmp_path, "quick")[1].read_bytes() == svg.read_bytes()
    draw_figure(figure, [], tmp_path, "quick")  # Before the first row there are axes all the same.


@pytest.mark.parametrize(("name", "n_panels", "first"), [("naive", 2, "A = 2, H = 2"), ("order", 9, "clipped")])
def test_studies_of_many_curves_have_a_panel_for_each_second_value(name, n_panels, first):
    study = next(one for one in STUDIES if one.name == name)
    found = {"value_qmdp": 1.0, "distance": 0.1}
    rows = [
        row(trial, value=1.0 - trial.method.learns * 0.001 * len(trial.method.label), **found)
        for trial in study.trials("quick")
    ]
    figure = _split_figure(study, rows)
    assert len(figure.axes) == n_panels
    assert first in figure.axes[0].get_title()
    assert all(axes.get_xlabel() == "sessions N" for axes in figure.axes)
    lost = [axes for axes in figure.axes if axes.get_ylabel() == "lost: 1 - V / V genie"]
    assert len(lost) == (2 if name == "naive" else 6)
    assert {axes.get_yscale() for axes in lost} == {"log"}
    assert ("losses below 0.0001" in figure.get_suptitle()) is (
        name == "order"
    )  # There Q-MDP earns what its genie does.
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == sorted(method.label for method in study.methods() if method.name != "genie")
    assert len(_split_figure(study, []).axes) == len(study.panels)  # Before the first row there are axes all the same.


def test_numbers_within_names_count_as_numbers():
    assert in_order(["A = 16, H = 2", "A = 2, H = 4", "A = 4, H = 2", "A = 2, H = 2"]) == [
        "A = 2, H = 2", "A = 2, H = 4", "A = 4, H = 2", "A = 16, H = 2",
    ]  # fmt: skip
    assert in_order(["10", "9.5"]) == ["9.5", "10"]
    assert in_order(["spread", "hard"]) == ["hard", "spread"]


def test_losses_that_a_logarithm_does_not_show_stand_at_the_bottom():
    point = Point("ed-mle", "", 5, 1.002, 0.001, 20)
    assert _lost(point).mean == 1e-4
    assert _lost(replace(point, mean=0.75)).mean == 0.25


def test_a_study_of_many_methods_in_many_sizes_can_be_drawn(tmp_path):
    naive = next(study for study in STUDIES if study.name == "naive")
    assert len(naive.methods()) > 4
    trials = {trial.id: trial for trial in naive.trials("full") if trial.instance < 2}.values()
    rows = [row(trial, value=1.0, value_qmdp=1.0, distance=0.1, sessions_used=10) for trial in trials]
    paths = draw(naive, rows, tmp_path)
    assert [path.name for path in paths] == ["naive.png", "naive.svg"]
    text = paths[1].read_text()
    ticks = [label.get_text() for label in _split_figure(naive, rows).axes[0].get_xticklabels()]
    assert ticks == ["10", "", "100", "", "1k", "", "10k", "", "100k"]  # All nine would run into one another.
    labels = [method.label for method in naive.methods() if method.name != "genie"]  # Losses are against the genie.
    for name in (*labels, "A = 2, H = 2", "A = 16, H = 4"):
        assert text.count(f">{name}<") == 1  # Curves have names, and panels have names, and not every pair of them.


def test_where_the_exact_value_is_out_of_reach_it_is_simulated(monkeypatch):
    bandit = Setting("spherical", 4, 20, 3, 0).draw(0)
    exact = value_of(always(1, 20), bandit, 3, 0)
    assert exact.exact
    from lmab.policies.belief_policies import Greedy

    exact = value_of(Greedy(bandit), bandit, 3, 0)
    monkeypatch.setattr("lmab.evaluation.value.NODE_LIMIT", 1)
    simulated = value_of(Greedy(bandit), bandit, 3, 0)
    assert not simulated.exact
    assert abs(simulated.mean - exact.mean) < 5 * simulated.stderr


def test_plans_of_a_study_are_limited_by_processor_time_and_not_by_the_clock_on_the_wall(monkeypatch):
    wall, processor = iter(range(0, 10**9, 1000)), iter([0.0, *[0.5] * 10**4])
    monkeypatch.setattr("lmab.planning.problem.time.perf_counter", lambda: float(next(wall)))
    monkeypatch.setattr("lmab.paper.experiment.methods.time.process_time", lambda: next(processor))
    bandit = random_bandit(3, 6, kind="hard", rng=0)
    assert plan(bandit, horizon=4, method=ByProcessor(), time_limit=1.0).status == "certified"
    assert plan(bandit, horizon=4, time_limit=1.0).trace[-1].seconds >= 1000


@pytest.mark.parametrize(
    ("size", "seconds"), [((5, 100, 10), 1.0), ((6, 100, 10), 3.0), ((5, 101, 10), 3.0), ((5, 100, 11), 3.0)]
)
def test_large_plans_have_three_times_as_long_and_the_genie_five_times(size, seconds):
    setting = Setting("ordinary", *size)
    assert planning_seconds(setting, lmab.DirectMLE(2)) == seconds
    assert planning_seconds(setting, Genie(random_bandit(2, 3, rng=0))) == 5 * seconds


@pytest.mark.parametrize(("mean", "holds"), [(2.1, True), (1.9, False), (-2.1, False)])
def test_ahead_is_by_more_than_two_standard_errors(mean, holds):
    class Rows:
        def places(self, column):
            return [10, 100]

        def mean(self, measure, method, **where):
            return Mean(0.9, 0.01, 5)

        def difference(self, measure, method, other, **where):
            return Mean(mean, 1.0, 5)

    assert who_scales(Rows()).holds is holds


@pytest.mark.parametrize(("known", "error", "holds"), [(0.39, 0.1, True), (0.41, 0.1, False), (0.39, 0.3, False)])
def test_segments_lift_the_limit_where_they_halve_the_distance_beyond_doubt(known, error, holds):
    class Rows:
        def places(self, column, method):
            return [10, 100]

        def mean(self, measure, method, **where):
            return Mean(known if method is EM_SEGMENTS else 0.8, 0.01, 5)

        def difference(self, measure, method, other, **where):
            return Mean(0.8 - known, error, 5)

    assert segments_lift_the_limit(Rows()).holds is holds


def test_types_of_short_sessions_are_fitted_with_the_segment_and_without():
    setting = Setting("uniform", 2, 4, 2, 1000)
    known, blind = (way.measure(setting, setting.draw(1), 1) for way in (EM_SEGMENTS, EM_BLIND))
    assert (known.note, blind.note) == ("known before", "")
    assert known.sessions_used == blind.sessions_used == 1000
    assert known.distance != blind.distance


def test_a_method_of_the_reader_joins_a_study_by_its_door(tmp_path):
    mine = Contender("mine", "my method", _nothing)
    joined = STUDY.with_methods(mine)
    assert [method.name for method in joined.methods()] == ["genie", "direct-mle", "ed-mle", "mine"]
    assert STUDY.methods() == [GENIE, FAST, SLOW]  # A study is data, and stays as it is.
    own = [trial for trial in joined.trials("quick") if trial.method is mine]
    assert len(own) == 2 * len(SETTINGS)
    rows = [*toy_rows(), *(row(trial, value=0.5, distance=1.0) for trial in own)]
    assert [line[0] for line in tables(joined, rows)[0].cells] == ["genie", "direct-mle", "ed-mle", "my method"]
    assert "my method" in draw(joined, rows, tmp_path)[1].read_text()
    with pytest.raises(InvalidArgument, match="name of a method must be new in the study 'toy', got 'ed-mle'"):
        STUDY.with_methods(SLOW)


def test_clipped_instances_have_a_rank_of_roughly_four():
    bandit = Setting("clipped", 7, 50, 5).draw(3)
    singular = np.linalg.svd(bandit.means - bandit.means.mean(), compute_uv=False)
    assert bandit.means.min() == 0.02
    assert bandit.means.max() == 0.98
    assert singular[4] < 0.5 * singular[3] or (singular[:4] ** 2).sum() > 0.9 * (singular**2).sum()
    assert singular[5] > 1e-6  # Roughly, not exactly.


def test_the_true_subspace_is_given_to_ed_mle():
    setting = Setting("spherical", 5, 20, 4, 500)
    bandit = setting.draw(0)
    learner = ED_MLE_KNOWN.measure.learner(setting, bandit)
    table = bandit.rewards.table
    np.testing.assert_allclose(learner.space.basis @ (learner.space.basis.T @ table), table, atol=1e-9)
    assert learner.space.rank < 2 * 5


@pytest.mark.parametrize(("times", "pairs"), list(ED_MLE_APART))
def test_sessions_of_step_1_apart_are_played_beside_those_of_step_2(times, pairs):
    method = ED_MLE_APART[times, pairs]
    found = method.measure(Setting("spherical", 2, 5, 3, 100), Setting("spherical", 2, 5, 3).draw(0), 0)
    assert found.sessions_used == (1 + times) * 100
    assert method.measure.learner(Setting("spherical", 2, 5, 3, 100), None).pairs == pairs


def test_a_mean_is_above_or_below_by_more_than_two_standard_errors():
    signs = {Mean(mean, 0.1, 9): (mean > 0.2, mean < -0.2) for mean in (-0.3, -0.21, -0.2, 0.0, 0.2, 0.21, 0.3)}
    assert {one: (one.above, one.below) for one in signs} == signs


def test_direct_mle_is_asked_for_fifty_thousand_sessions_at_most():
    """It fits every session it has, and with more a trial would take hours."""
    study = next(one for one in STUDIES if one.name == "sessions")
    for size, most in (("quick", 16_000), ("standard", 500_000), ("full", 1_000_000)):
        budgets = defaultdict(set)
        for trial in study.trials(size):
            budgets[trial.method.name].add(trial.setting.n_sessions)
        assert max(budgets["ed-mle"]) == most
        assert budgets["direct-mle"] == {n for n in budgets["ed-mle"] if n <= 50_000}
        assert budgets["genie"] == {0}
    assert study.log


def test_dashes_tell_methods_and_colours_the_second_column():
    from matplotlib.figure import Figure

    study = replace(STUDY, split="horizon", split_label="H = {}")
    found = [
        Point(method, split, x, 0.5, 0.1, 2)
        for method in ("direct-mle", "ed-mle")
        for split in ("5", "9")
        for x in (1000.0, 10_000.0)
    ]
    axes = Figure().subplots()
    plots._draw_panel(axes, study, FRACTION, found)
    drawn = [one[0] for one in axes.containers]  # by method, and then by the second column
    handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    assert list(handles) == ["direct-mle", "ed-mle", "H = 5", "H = 9"]
    signs = [(handles[name].get_linestyle(), handles[name].get_marker()) for name in ("direct-mle", "ed-mle")]
    assert signs[0] != signs[1]
    assert [(one.get_linestyle(), one.get_marker()) for one in drawn] == [signs[0], signs[0], signs[1], signs[1]]
    colours = [handles[name].get_color() for name in ("H = 5", "H = 9")]
    assert [one.get_color() for one in drawn] == colours * 2
    for name in ("direct-mle", "ed-mle"):
        assert handles[name].get_color() == "black"
        assert handles[name].get_markersize() == drawn[0].get_markersize()  # as on the curves
    assert {handles[name].get_linewidth() for name in ("H = 5", "H = 9")} == {4}


# paired differences


def made_row(method, instance, value, n_sessions=100, **changes):
    settings = {
        "kind": "ordinary",
        "n_types": 2,
        "n_arms": 5,
        "horizon": 4,
        "separation": 0.0,
        "status": "done",
        **changes,
    }
    names = [field.name for field in fields(Row)]
    row = dict.fromkeys(names, None) | dict.fromkeys(("note", "lmab", "numpy", "python", "finished"), "")
    row |= {"id": f"{method}{instance}{n_sessions}{settings}", "method": method, "instance": instance, "seed": instance}
    return Row(**(row | {"commit": "", "machine": "", "n_sessions": n_sessions, "value": value} | settings))


def test_differences_are_paired_by_instance_and_budget():
    values = {("a", 100): [2.0, 4.0, 3.0], ("b", 100): [1.6, 3.2, 7.0], ("a", 200): [4.0], ("b", 200): [2.0]}
    rows = [made_row(m, i, v, n) for (m, n), own in values.items() for i, v in enumerate(own)]
    rows = [row for row in rows if (row.method, row.instance) != ("b", 2)]
    rows.append(made_row("b", 2, 1.0, status="ValueError"))  # failed rows do not count
    small, large = compare(rows, "a", "b")
    assert (small.n_sessions, small.n_instances, small.n_arms) == (100, 2, 5)
    assert small.mean == pytest.approx((0.1 + 0.2) / 2)
    assert small.stderr == pytest.approx(0.05)
    assert (large.n_sessions, large.mean) == (200, 0.5)
    assert np.isnan(large.stderr)
    assert str(small) == "M=2 A=5 H=4 N=100: +0.15 ± 0.05 over 2 instances"
    assert [one.mean for one in compare(rows, "b", "a")] == pytest.approx([-0.15, -0.5])


def test_a_method_that_does_not_learn_is_compared_at_every_budget():
    rows = [made_row("ucb", i, 2.0 + i, n) for i in range(2) for n in (100, 200)]
    rows += [made_row("genie", i, 4.0 + i, 0) for i in range(2)]
    assert [(one.n_sessions, one.mean) for one in compare(rows, "ucb", "genie")] == [(100, -0.5), (200, -0.5)]
    assert [one.n_sessions for one in compare(rows, "genie", "genie")] == [0]
    fractions = compare(rows, "ucb", "genie", measure="fraction")
    assert fractions[0].mean == pytest.approx(((2 / 4 - 1) + (3 / 5 - 1)) / 2)


def test_methods_and_measures_that_are_not_there_are_named():
    rows = [made_row("ucb", 0, 2.0)]
    with pytest.raises(InvalidArgument, match="rows must have the method 'mine', got methods ucb"):
        compare(rows, "mine", "ucb")
    with pytest.raises(InvalidArgument, match=r"measure must be one of per_step, .*, got 'reward'"):
        compare(rows, "ucb", "ucb", measure="reward")
