"""Small questions to estimators, planners, learners and assessments have the answers that they had."""

from __future__ import annotations

import golden_answers
import pytest

GOLDEN = golden_answers.load()


def test_every_question_has_its_answer():
    assert list(GOLDEN) == list(golden_answers.QUESTIONS)


@pytest.mark.parametrize("name", golden_answers.QUESTIONS)
def test_an_answer_is_the_golden_one(name):
    """Where answers were changed on purpose, `python tests/golden_answers.py` makes them anew."""
    found, expected = golden_answers.ask(name), GOLDEN[name]
    assert type(found) is type(expected)
    assert golden_answers.words(found) == golden_answers.words(expected)
    mine, theirs = golden_answers.numbers(found), golden_answers.numbers(expected)
    assert len(mine) == len(theirs)
    assert golden_answers.same(mine, theirs, golden_answers.LOOSE.get(name, 1e-5))


@pytest.mark.parametrize(
    ("found", "known", "same"),
    [(0.5, 0.500004, True), (0.5, 0.50001, False), (23, 22, True), (24, 22, False), (12, 11, False), (22.4, 22, False)],
)
def test_numbers_are_close_and_long_climbs_may_differ_by_a_round(found, known, same):
    assert golden_answers.same([1.0, found], [1.0, known], 1e-5) is same
