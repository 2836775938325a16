"""The climb: when it stops."""

from __future__ import annotations

import numpy as np

from lmab.estimation.squarem import climb


class Stairs:
    """Model k is the number k, one map ahead is k + 1, and the objective is the sum of the first k gains."""

    def __init__(self, *gains):
        self.heights = np.concatenate([[0.0], np.cumsum(gains), np.full(50, sum(gains))])

    def map(self, models):
        return self.heights[models[:, 0, 0].astype(int)], models + 1

    def repair(self, trial, near):
        return trial


def ends(*gains, left=0.1):
    return climb(Stairs(*gains), np.zeros((1, 1, 1)), left=left, max_maps=40, accelerate=False)


def test_a_climb_ends_after_three_calm_cycles_in_a_row():
    found = ends(1.0, 0.0, 0.0, 5.0)
    assert found.objectives.tolist() == [6.0]
    assert found.converged.all()
    assert found.n_maps.tolist() == [8]  # the first, one per gain, three calm ones
    assert ends(1.0, 0.0, 0.0, 0.0, 5.0).objectives.tolist() == [1.0]


def test_the_limit_on_maps_is_no_convergence():
    found = ends(*[1.0] * 60)
    assert (found.n_maps.tolist(), found.converged.tolist()) == ([40], [False])
