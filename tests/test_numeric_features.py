"""Features whose numbers are not cut into bins, on the survey `election` of the R package poLCA and on made-up logs."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

import lmab
from lmab import Sessions
from lmab.data.features import Features
from lmab.errors import InvalidArgument
from lmab.model.type_prior import Numeric, make_columns

ITEMS = 12  # questions on the traits of two candidates, with four answers each


def election(features: list[str]) -> Sessions:
    """Return the complete answers of the survey with these features."""
    data = gzip.decompress((Path(__file__).parent / "golden" / "election.csv.gz").read_bytes()).decode()
    rows = list(csv.DictReader(io.StringIO(data)))
    names = [*list(rows[0])[:ITEMS], *features]
    table = np.array([[float(row[name]) for name in names] for row in rows if all(row[name] for name in names)])
    known = {name: table[:, ITEMS + place] for place, name in enumerate(features)}
    return Sessions.from_arrays(np.tile(np.arange(ITEMS), (len(table), 1)), table[:, :ITEMS], features=known)


@pytest.mark.parametrize(
    ("features", "n_types", "n_sessions", "maximum"),
    [
        (["PARTY"], 3, 1300, -16222.3233),
        (["PARTY", "AGE"], 3, 1294, -16135.7136),
        (["PARTY", "AGE", "EDUC", "GENDER"], 2, 1292, -16746.7886),
    ],
)
def test_published_maxima_of_the_survey(features, n_types, n_sessions, maximum):
    log = election(features)
    assert len(log) == n_sessions
    numeric = [name for name in features if name == "AGE"]
    method = lmab.EM(prior=0.0, restarts=30)
    found = lmab.fit(log, n_types=n_types, method=method, numeric=numeric, rng=0)
    assert found.log_likelihood == pytest.approx(maximum, abs=1e-3)


def made_up(rng: np.random.Generator, n: int = 400) -> Sessions:
    age = rng.uniform(18, 80, n).round(3)
    young = rng.random(n) < 1 / (1 + np.exp((age - 45) / 5))
    arms = np.tile(np.arange(4), (n, 1))
    means = np.where(young[:, None], [0.9, 0.1, 0.8, 0.3], [0.2, 0.8, 0.1, 0.7])
    return Sessions.from_arrays(arms, (rng.random((n, 4)) < means).astype(float), features={"age": age})


def test_a_numeric_column_enters_as_it_is(rng):
    age = rng.uniform(18, 80, 500)
    (binned,), _ = make_columns(Features.of({"age": age}, 500))
    (exact,), _ = make_columns(Features.of({"age": age}, 500), numeric=("age",))
    assert isinstance(exact, Numeric)
    np.testing.assert_allclose(exact.terms(age)[:, 0], (age - age.mean()) / age.std(), rtol=1e-12)
    assert len(np.unique(binned.terms(age))) == len(np.unique(exact.coded(age)[0])) <= 17


def test_the_weights_follow_the_number_and_files_hold_bins(rng, tmp_path):
    log = made_up(rng)
    found = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), numeric=("age",), rng=0)
    prior = found.type_prior
    assert prior is not None
    near = prior.weights({"age": [44.0, 44.5]})
    assert near[0, 0] != near[1, 0]
    assert len(np.unique(prior.people.features["age"])) <= 16
    found.save(tmp_path / "model.lmab")
    again = lmab.load(tmp_path / "model.lmab").type_prior
    np.testing.assert_array_equal(again.weights({"age": [44.0, 44.5]}), near)
    binned = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0).type_prior
    same = binned.weights({"age": [44.0, 44.5]})
    assert same[0, 0] == same[1, 0]


def test_the_number_of_types_is_selected_with_the_column(rng):
    found = lmab.fit(made_up(rng, 300), numeric=("age",), rng=0, check=False)
    assert found.type_prior is None or found.type_prior.terms[0].exact


@pytest.mark.parametrize(("numeric", "message"), [(("height",), "height"), (("city",), "city"), ("age", "sequence")])
def test_other_names_are_refused(rng, numeric, message):
    log = made_up(rng, 40)
    features = {"age": log.features["age"], "city": ["here", "there"] * 20}
    log = Sessions.from_arrays(log.arms.reshape(-1, 4), log.rewards.reshape(-1, 4), features=features)
    with pytest.raises(InvalidArgument, match=message):
        lmab.fit(log, n_types=2, numeric=numeric, rng=0)
