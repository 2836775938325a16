"""The study behind the table of README: replay on known answers, and means over splits."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from benchmarks import rows, study_headline


def test_the_replay_pays_the_answers_of_each_person():
    answers = np.array([[1.0, 0.0, 5.0], [0.0, 2.0, 5.0]])
    policy = lmab.policies.Ranking([2, 1, 0], horizon=2, repeats=False)
    assert study_headline.replay(policy, answers, 2).tolist() == [5.0, 7.0]


def test_a_split_compares_with_the_most_popular_list(monkeypatch):
    def people():
        rng = np.random.default_rng(0)
        chances = np.array([[0.9, 0.1, 0.5, 0.2], [0.1, 0.8, 0.5, 0.2]])[rng.integers(2, size=400)]
        return ("a", "b", "c", "d"), (rng.random((400, 4)) < chances).astype(float)

    monkeypatch.setattr(study_headline, "STUDIES", {"made up": study_headline.Study(people, 300, 3, 2)})
    found = study_headline.run("made up", 0)
    assert (found["logged"], found["kept"], found["arms"]) == (300, 100, 4)
    assert found["gain"] == pytest.approx(found["policy"] - found["popular"])
    assert found["fixed"] or found["claimed"] is None or found["claimed"][0] < found["claimed"][1]


def test_the_error_is_the_larger_of_that_over_people_and_that_over_splits():
    row = {"study": "anger", "popular": 1.0, "policy": 1.5, "logged": 10, "kept": 5, "sure": True}
    done = [row | {"gain": gain, "stderr": 0.1, "claimed": (gain - 1, gain + 1)} for gain in (0.0, 1.0)]
    found = study_headline.summary(done)
    assert found["anger/stderr"] == pytest.approx(0.5), "over splits"
    assert (found["anger/gain"], found["anger/low"], found["anger/high"], found["anger/sure"]) == (0.5, -0.5, 1.5, 2)
    assert study_headline.summary(done[:1]) == {}, "one split has no spread"


def test_the_stored_sums_are_those_of_the_stored_rows():
    stored = rows.read()["headline"].rows
    found = study_headline.summary(study_headline.stored())
    assert stored == {name: float(f"{found[name]:.6g}") for name in stored}
