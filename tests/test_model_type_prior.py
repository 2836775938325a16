"""The prior of a session as a function of what is known when it begins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab import TypePrior
from lmab.data.features import Features
from lmab.errors import InvalidArgument
from lmab.model import type_prior
from lmab.model.type_prior import ASSUMED_KEEP, Category, Numeric

COUNTRY = {"de": [0.8, 0.1, 0.1], "fr": [0.3, 0.3, 0.4]}


def brute_force(x, coefficients):
    """softmax(x B) for one row, as it is written down."""
    masses = [np.exp(sum(x[d] * coefficients[d][m] for d in range(len(x)))) for m in range(len(coefficients[0]))]
    return np.array(masses) / sum(masses)


def mixed_prior(keep=0.25) -> TypePrior:
    country = Category("country", ("de", "fr"), (0.75, 0.25))
    age = Numeric("age", 40.0, 10.0, missing=True)
    return TypePrior((country, age), [[0.1, 0.0], [0.5, -0.5], [-1.0, 1.0], [0.3, 0.2], [2.0, 0.0]], keep)


def test_weights_are_the_softmax_of_the_columns():
    prior = mixed_prior()
    found = prior.weights({"country": ["fr", None, "it"], "age": [50.0, np.nan, 40.0]})
    expected = [
        [1, -0.75, 0.75, 1.0, 0.0],
        [1, 0.0, 0.0, 0.0, 1.0],  # of a missing level the average person, of a missing number the mean and a mark
        [1, 0.0, 0.0, 0.0, 0.0],  # a level that was never seen is the average person
    ]
    for row, x in zip(found, expected, strict=True):
        np.testing.assert_allclose(row, brute_force(x, prior.coefficients.tolist()), rtol=1e-12)


def test_by_value_has_the_given_weights():
    prior = TypePrior.by_value("country", COUNTRY)
    for value, weights in COUNTRY.items():
        np.testing.assert_allclose(prior.weights({"country": value}), [weights], rtol=1e-12)
    assert prior.columns == ("country",)
    assert prior.by_values()["country"].keys() == COUNTRY.keys()
    with pytest.raises(InvalidArgument, match="weights of 'x' must sum to 1"):
        TypePrior.by_value("country", {"x": [0.5, 0.6]})


def test_tables_show_the_most_frequent_values_and_say_so():
    levels = tuple(f"l{i:02}" for i in range(30))
    shares = np.array([1.0] * 20 + [2.0] * 10) / 40
    when = Numeric("when", 1_795_000_000.0, 86_400.0)
    prior = TypePrior((Category("land", levels, tuple(shares)), when), np.ones((32, 2)))
    land, days = prior.shown()
    assert [name for name, _ in land.rows] == ["l00", "l01", *levels[20:]]
    assert land.remark == "Feature land: the 12 most frequent of 30 values are shown."
    assert len({name for name, _ in days.rows}) == 3
    assert days.remark == ""
    for name, weights in land.rows:
        np.testing.assert_allclose(weights, prior.weights({"land": name})[0])


def test_one_person_many_people_and_the_features_of_a_log_agree():
    prior = mixed_prior()
    columns = {"country": ["de", "fr", "de"], "age": [30.0, 50.0, 30.0]}
    together = prior.weights(columns)
    np.testing.assert_array_equal(prior.weights(Features.of(columns, 3)), together)
    np.testing.assert_allclose(prior.weights({"country": "fr", "age": 50})[0], together[1], rtol=1e-15)
    np.testing.assert_array_equal(prior.weights({"country": "fr"}), prior.weights({"country": "fr", "age": None}))
    assert prior.weights().shape == prior.weights({}).shape == (1, 2)


@given(st.floats(0, 1), st.lists(st.floats(0.01, 1), min_size=2, max_size=2))
def test_after_a_session_the_type_is_kept_or_drawn_anew(keep, posterior):
    prior = mixed_prior(keep)
    share = np.array(posterior) / sum(posterior)
    expected = keep * share + (1 - keep) * prior.weights({"age": 45.0})[0]
    np.testing.assert_allclose(prior.after(posterior, {"age": 45.0}), [expected], rtol=1e-12)


def test_where_no_log_told_the_type_is_mostly_kept():
    np.testing.assert_allclose(
        mixed_prior(None).after([1.0, 0.0]),
        [ASSUMED_KEEP * np.eye(2)[0] + (1 - ASSUMED_KEEP) * mixed_prior().weights()[0]],
    )


def test_numbers_are_cut_where_the_log_had_many():
    age = Numeric("age", 0.0, 2.0, edges=(1.0, 3.0), values=(0.5, 2.0, 4.0))
    assert age.terms(np.array([-9.0, 0.99, 1.0, 2.9, 3.0, 99.0]))[:, 0].tolist() == [0.25, 0.25, 1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixed_prior().weights({"city": "x"}), r"features must be among \['country', 'age'\], got 'city'"),
        (lambda: mixed_prior().weights({"age": "old"}), r"features\['age'\] must hold numbers, got text such as 'old'"),
        (lambda: mixed_prior().weights({"country": 7}), r"features\['country'\] must hold text, got numbers such as 7"),
        (lambda: mixed_prior().weights({"country": ["de"], "age": [1, 2]}), "as many values in every column"),
        (lambda: mixed_prior().after([0.2, 0.3, 0.5]), "posterior must hold 2 probabilities a row"),
        (lambda: mixed_prior().after([-0.5, 1.5]), r"posterior must hold probabilities, got \[-0.5, 1.5\]"),
        (lambda: mixed_prior().after([[0.0, 0.0]]), r"posterior must hold probabilities, got \[0.0, 0.0\]"),
        (lambda: mixed_prior().after(np.eye(2), {"age": [1, 2, 3]}), "a row for each of the 3 sessions, got 2"),
        (lambda: mixed_prior().weights(pd.DataFrame({"age": [1]})), "features must be a mapping.*got a DataFrame"),
        (lambda: mixed_prior().weights("age"), "features must be a mapping such as .*, got a str"),
        (lambda: TypePrior.by_value("c", {}), r"weights must be a mapping such as .*, got \{\}"),
        (lambda: TypePrior.by_value("c", [0.5, 0.5]), r"weights must be a mapping such as .*, got \[0.5, 0.5\]"),
        (lambda: TypePrior.by_value("c", {1: [0.5, 0.5]}), "values must be text, got 1"),  # type: ignore[dict-item]
        (lambda: TypePrior.by_value("c", {"a": [0.5, 0.5], "b": [1.0]}), "as many types for every value"),
        (lambda: TypePrior.constant([0.5, 0.5], keep="often"), "keep must be a probability or None, got 'often'"),
        (lambda: mixed_prior(keep=1.5), "keep must be a probability or None, got 1.5"),
        (lambda: TypePrior(["a", "b"], [[1.0, 2.0]]), "coefficients must have 3 rows.*got 1"),
        (lambda: TypePrior(["a", "a"], np.zeros((3, 2))), "columns must have different names"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_a_column_by_its_name_alone_is_a_number_as_it_is():
    prior = TypePrior(columns=["x"], coefficients=[[0.0, 0.0], [1.0, -1.0]], keep=0.5)
    np.testing.assert_allclose(prior.weights({"x": 0.5}), [brute_force([1, 0.5], [[0, 0], [1, -1]])], rtol=1e-12)


def test_saved_priors_are_the_same_to_the_bit(tmp_path):
    for prior in (mixed_prior(), TypePrior.by_value("country", COUNTRY), TypePrior.constant([0.4, 0.6], keep=0.3)):
        prior.save(tmp_path / "prior.lmab")
        assert lmab.load(tmp_path / "prior.lmab") == prior
    assert mixed_prior() != mixed_prior(0.3)


def test_types_are_renamed():
    prior = mixed_prior().relabel([1, 0])
    np.testing.assert_array_equal(prior.weights({"age": 60})[:, ::-1], mixed_prior().weights({"age": 60}))


@pytest.mark.parametrize("share", [0.94, 0.97, 0.99])
@pytest.mark.parametrize("mirrored", [False, True])
def test_numbers_of_which_nearly_all_are_the_same_are_cut_too(share, mirrored):
    """As orders of earlier sessions are, which most people have none of: all quantiles may be 0."""
    most = round(2000 * share)
    numbers = np.append(np.zeros(most), 1 + np.arange(2000 - most) % 40) * (-1 if mirrored else 1)
    (term,), remarks = type_prior.make_columns(Features.of({"orders": numbers}, 2000))
    assert remarks == ()
    assert len(term.values) == len(term.edges) + 1 > 1
    bins = np.searchsorted(term.edges, numbers, side="right")
    assert len(np.unique(bins[:most])) == 1
    assert (bins[:most][0] != bins[most:]).mean() > 0.9
    np.testing.assert_allclose(term.values, [numbers[bins == b].mean() for b in range(len(term.values))])


def test_numbers_lie_between_the_same_edges_as_a_search_finds(rng):
    edges = (-1.0, 0.0, 0.5, 2.0)
    numbers = np.append(rng.normal(0, 2, 500), [*edges, -np.inf, np.inf])
    np.testing.assert_array_equal(type_prior._between(edges, numbers), np.searchsorted(edges, numbers, side="right"))


@pytest.mark.parametrize("n_types", [1, 3, 7, 8, 20])
def test_softmax_of_few_and_of_many_numbers(n_types, rng):
    logits = rng.normal(0, 300, (50, n_types))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_array_equal(type_prior.softmax(logits), powers / powers.sum(axis=1, keepdims=True))


def test_weights_of_many_rows_are_those_of_each(monkeypatch, rng):
    monkeypatch.setattr(type_prior, "_CHUNK", 7)
    features = Features.of({"age": rng.normal(size=40), "land": ["de", "fr"] * 20}, 40)
    terms, _ = type_prior.make_columns(features)
    prior = lmab.TypePrior(terms, rng.normal(size=(1 + sum(term.n_terms for term in terms), 3)))
    one_by_one = [prior.weights({name: features[name][i] for name in features})[0] for i in range(40)]
    np.testing.assert_allclose(prior.weights(features), one_by_one, rtol=1e-13)


def test_quantiles_of_a_long_column_are_those_of_a_part_of_it(monkeypatch, rng):
    """Sixteen equal shares of the sessions, up to what a tenth of them tells; means are those of all numbers."""
    monkeypatch.setattr(type_prior, "_SORTED", 2_000)
    numbers = rng.exponential(size=20_000)
    (term,), _ = type_prior.make_columns(Features.of({"wait": numbers}, len(numbers)))
    bins = np.searchsorted(term.edges, numbers, side="right")
    np.testing.assert_allclose(np.bincount(bins) / len(numbers), 1 / 16, atol=0.02)
    np.testing.assert_allclose(term.values, np.bincount(bins, numbers) / np.bincount(bins), rtol=1e-12)
    assert term.mean == pytest.approx(numbers.mean())
