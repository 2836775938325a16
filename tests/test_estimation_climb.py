"""The climb itself, on hills whose every height is written down."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import climb as climb_module
from lmab.estimation.climb import climb, cluster, draw_starts
from lmab.estimation.families import observe

BOTTOM = np.zeros((1, 1, 1))


class Stairs:
    """A model is the number of its stair; a map goes one stair up."""

    def __init__(self, heights: list[float]) -> None:
        self.heights = np.array(heights)

    def map(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place = np.clip(models[:, 0, 0], 0, len(self.heights) - 1).astype(int)
        return self.heights[place], models + 1

    def repair(self, trial: np.ndarray, near: np.ndarray) -> np.ndarray:
        return trial


def heights(gains: list[float]) -> list[float]:
    return np.concatenate([[0.0], np.cumsum(gains)]).tolist()


def test_three_calm_cycles_in_a_row_end_a_climb():
    """Two small gains, a large one, then small ones only: the third of these in a row is the last map."""
    stairs = Stairs(heights([1, 1e-9, 1e-9, 1, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1]))
    found = climb(stairs, BOTTOM, left=1e-6, max_maps=100, accelerate=False)
    assert found.converged.tolist() == [True]
    assert found.n_maps.tolist() == [8]
    assert found.traces[0] == pytest.approx(stairs.heights[:8])
    assert found.objectives[0] == stairs.heights[7]
    assert found.models[0, 0, 0] == 7


def test_a_gain_of_exactly_what_may_be_left_is_calm():
    stairs = Stairs(heights([0.5] * 10))
    assert climb(stairs, BOTTOM, left=0.5, max_maps=9, accelerate=False).n_maps[0] == 4
    never = climb(stairs, BOTTOM, left=0.49, max_maps=9, accelerate=False)
    assert (never.n_maps[0], never.converged[0]) == (9, False)


def test_gains_below_rounding_end_a_climb_that_may_leave_nothing():
    stairs = Stairs([1e6, *(1e6 + 1e-9 * np.arange(1, 20))])
    assert climb(stairs, BOTTOM, left=0.0, max_maps=15, accelerate=False).n_maps[0] == 4
    higher = Stairs([1e6, *(1e6 + 2e-7 * np.arange(1, 20))])  # twice what counts as noise at this height
    assert climb(higher, BOTTOM, left=0.0, max_maps=15, accelerate=False).n_maps[0] == 15


def test_climbs_stop_one_by_one():
    """The second one starts near the top; it rests while the first goes on."""
    stairs = Stairs(heights([1, 1, 1, 1, 0, 0, 0, 0]))
    models = np.array([0.0, 3.0]).reshape(2, 1, 1)
    found = climb(stairs, models, left=1e-9, max_maps=100, accelerate=False)
    assert found.n_maps.tolist() == [8, 5]
    assert found.converged.all()
    assert [len(trace) for trace in found.traces] == [8, 5]
    assert found.objectives.tolist() == [4.0, 4.0]


class Parabola:
    """Climbs -(x - 1)^2 by tenths: slow enough for a jump to pay, and the jump lands on the top."""

    def __init__(self) -> None:
        self.repaired = 0

    def map(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -((models[:, 0, 0] - 1) ** 2), models + 0.1 * (1 - models)

    def repair(self, trial: np.ndarray, near: np.ndarray) -> np.ndarray:
        self.repaired += 1
        return trial


def test_a_jump_goes_as_far_as_the_curve_suggests():
    """Maps that shorten by 0.9 each have ratio 10, and scheme S3 then lands on their limit."""
    hill = Parabola()
    found = climb(hill, BOTTOM, left=-1.0, max_maps=4, accelerate=True)
    assert found.traces[0] == pytest.approx((-1.0, -0.81, 0.0, 0.0), abs=1e-12)  # the last one is a plain map
    assert found.models[0, 0, 0] == pytest.approx(1.0)
    assert hill.repaired == 1


def test_no_jump_is_longer_than_the_reach():
    """Maps that shorten by 0.99 have ratio 100; the first jump may go 16 only, the next 64."""

    class Slow(Parabola):
        def map(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return -((models[:, 0, 0] - 1) ** 2), models + 0.01 * (1 - models)

    def left_after(jump: float) -> float:
        return 1 - 2 * jump * 0.01 + jump**2 * 0.0001

    first = climb(Slow(), BOTTOM, left=-1.0, max_maps=4, accelerate=True)  # two maps ahead, a jump, a plain map
    assert 1 - first.models[0, 0, 0] == pytest.approx(0.99 * left_after(16))
    second = climb(Slow(), BOTTOM, left=-1.0, max_maps=6, accelerate=True)
    assert 1 - second.models[0, 0, 0] == pytest.approx(0.99 * left_after(16) * left_after(64))


@pytest.mark.parametrize("beyond", [-10.0, 0.05])
def test_a_jump_that_falls_is_taken_back(beyond):
    """The way bends after what two maps see: the jump is lower than the first of these, and a plain map replaces it."""

    class Bent(Parabola):
        def map(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            place = models[:, 0, 0]
            return np.where(place > 0.3, beyond, place), models + 0.1 * (1 - models)

    found = climb(Bent(), BOTTOM, left=-1.0, max_maps=4, accelerate=True)
    assert found.traces[0] == pytest.approx((0.0, 0.1, 0.1, 0.19))
    assert found.n_maps.tolist() == [4]
    assert found.models[0, 0, 0] == pytest.approx(0.19)


def test_the_observer_hears_the_best_and_may_stop():
    heard: list[tuple[int, float]] = []

    def observe(maps: int, objective: float) -> bool:
        heard.append((maps, objective))
        return len(heard) == 3

    models = np.array([0.0, 2.0]).reshape(2, 1, 1)
    stairs = Stairs(heights([1.0] * 20))
    found = climb(stairs, models, left=0.0, max_maps=100, accelerate=False, observer=observe)
    assert heard == [(2, 3.0), (3, 4.0), (4, 5.0)]
    assert found.stopped
    assert found.n_maps.tolist() == [4, 4]
    assert not found.converged.any()


def test_order_pick_and_after():
    stairs = Stairs(heights([1.0] * 20))
    first = climb(stairs, np.array([0.0, 5.0, 2.0]).reshape(3, 1, 1), left=0.0, max_maps=2, accelerate=False)
    assert first.order().tolist() == [1, 2, 0]
    better = first.pick(first.order()[:2])
    assert better.objectives.tolist() == [6.0, 3.0]
    more = climb(stairs, better.models, left=0.0, max_maps=3, accelerate=False).after(better)
    assert more.n_maps.tolist() == [5, 5]
    assert more.traces[0] == (5.0, 6.0, 6.0, 7.0, 8.0)
    assert not more.stopped


def test_clusters_of_a_part_take_the_others_in():
    features = np.repeat([[0.0], [9.0], [20.0]], 40, axis=0) + np.linspace(-1, 1, 120)[:, None]
    labels = cluster(features, np.ones(120), 3, np.random.default_rng(0), every=7)
    assert [len(np.unique(labels[i : i + 40])) for i in (0, 40, 80)] == [1, 1, 1]
    assert len(np.unique(labels)) == 3


@pytest.mark.parametrize(("many", "every"), [(False, 1), (True, 6)])
def test_of_many_arms_clusters_are_looked_for_in_a_part(many, every, monkeypatch):
    log = observe(lmab.simulate(lmab.random_bandit(3, 8, rng=0), lmab.Uniform(8), n_sessions=300, horizon=5, rng=0))
    asked = []

    def spy(*arguments, every=1):
        asked.append(every)
        return cluster(*arguments, every=every)

    monkeypatch.setattr(climb_module, "cluster", spy)
    monkeypatch.setattr(climb_module, "_CLUSTERED", log.n_distinct // 6)
    monkeypatch.setattr(climb_module, "many_arms", lambda log: many)
    draw_starts(log, 3, 2, np.random.default_rng(0))
    assert asked[0] == every
