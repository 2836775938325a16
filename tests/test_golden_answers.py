"""Small questions to estimators, planners, learners and certificates have the answers that they had."""

from __future__ import annotations

import golden_answers
import numpy as np
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
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
