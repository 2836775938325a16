"""Components of a latent class model: laws of the protocol, components of a caller, and where they appear."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import EM
from lmab.components.component import Component
from lmab.components.latent_class_model import IndependentSessions, LatentClassModel
from lmab.components.rewards import Rewards
from lmab.components.weights import GroupWeights, Weights
from lmab.errors import InvalidArgument
from lmab.estimation import fitted_components
from lmab.estimation.arm_law import CategoricalArms
from lmab.estimation.climb import Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.gibbs import GibbsSampler
from lmab.estimation.log import Beside
from lmab.parallel import SERIAL
from lmab.reporting.contents import gather
from lmab.reporting.page import render

TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.2, 0.5], [0.3, 0.7, 0.5]])
METHOD = EM(restarts=3, sweeps=24, threads=1)


class Label(Component):
    """A label of each session, with a distribution in every type."""

    name, n_rows = "label", 3

    def __init__(self, labels):
        self.labels = labels

    def codes(self, sessions):
        return self.block(3, front=self.labels)

    def write(self, own, table):
        table[self.name][:] *= own

    def update(self, own, memo, counts, ahead):
        sums = counts[self.name] + 1.0
        return sums / sums.sum(axis=1, keepdims=True)

    def log_prior(self, own):
        return np.log(own[..., :2]).sum(axis=(1, 2))

    def n_parameters(self, n_types):
        return 2 * n_types

    def summary(self, parameters):
        return "Labels depend on the type."


class After(Label):
    """A label after each step, whose row exceeds 1 by a factor that its likelihood takes back."""

    name = "after"

    def codes(self, sessions):
        return self.block(3, steps=self.labels)


class Ageing(Component):
    """Sessions that count less the older they are."""

    name, n_rows = "ageing", 0

    def __init__(self, half_life):
        self.half_life = half_life

    def session_weights(self, sessions):
        return 0.5 ** (np.arange(len(sessions))[::-1] / self.half_life)

    def write(self, own, table):
        return None

    def update(self, own, memo, counts, ahead):
        return own


def labelled(rng, n=1500, steps=3, **more):
    """A log with the labels of its sessions: label m in 8 of 10 sessions of type m, else label 2."""
    types = rng.choice(2, n, p=TRUTH.weights)
    arms = rng.integers(3, size=(n, steps))
    rewards = TRUTH.rewards.sample(np.repeat(types, steps), arms.ravel(), rng=rng).reshape(n, steps)
    labels = np.where(rng.random(n) < 0.8, types, 2)
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=3, **more), labels, types


def model_of(log, *components, prior=1.0):
    coded = log.coded(log.sessions, Beside.of(*(one.codes(log.sessions) for one in components)))
    rewards = Rewards(coded, 2, log.prior(prior))
    return LatentClassModel((Weights(), rewards, *components), IndependentSessions(coded))


def parameters_of(log, model, rng, n=3):
    start = log.random_models(n, 2, rng)
    own = [np.repeat(rng.dirichlet(np.ones(3), (n, 8)).swapaxes(1, 2)[:, :3], 1, axis=0) for _ in model.components[2:]]
    return np.concatenate([start, *own], axis=1)


@pytest.mark.parametrize("family", ["categorical", "gaussian", "counts"])
def test_weights_and_rewards_alone_are_the_plain_model(family, rng):
    """The objective and one step of EM are those of the loop without components, for every family."""
    log = observe(labelled(rng, n=200)[0], rewards=family)
    start, prior = log.random_models(2, 2, rng), log.prior(1.0)
    found, ahead = LatentClassModel((Weights(), Rewards(log, 2, prior)), IndependentSessions(log)).map(start)
    expected, further = Likelihood(log, 2, prior, SERIAL).map(start)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(ahead[:, :, :2], further[:, :, :2], rtol=1e-12)


@pytest.mark.parametrize("family", ["categorical", "gaussian", "counts"])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_the_likelihood_is_the_product_of_all_components(family, scale, rng):
    """Rows of steps may exceed 1: they are scaled for the kernel, and the scale is taken back."""
    sessions, labels, _ = labelled(rng, n=60)
    after = rng.integers(-1, 3, size=sessions.n_steps)
    log = observe(sessions, rewards=family)
    model = model_of(log, Label(labels), After(after), prior=0.0)
    parameters = parameters_of(log, model, rng, n=1)
    parameters[:, model.place("after")] *= scale
    rows, _, table = model.written(parameters)
    bandit = log.bandit(log.random_models(1, 2, np.random.default_rng(0))[0], 2)
    bandit = log.bandit(parameters[0, : log.n_model_rows], 2)
    logs = lmab.model.belief.log_joint(bandit, sessions) + np.log(rows[2][0, labels, :2])
    steps = np.where(after[:, None] >= 0, np.log(rows[3][0, after, :2]), 0.0)
    logs += np.add.reduceat(steps, sessions.offsets[:-1], axis=0)
    found = model.e_step.expectation(table.array, SERIAL)[1][0]
    assert found == pytest.approx(np.logaddexp.reduce(logs, axis=1).sum(), rel=1e-9)


def test_the_objective_never_falls_and_the_labels_of_types_are_found(rng):
    sessions, labels, _ = labelled(rng)
    log = observe(sessions)
    model = model_of(log, Label(labels))
    done = climb(model, parameters_of(log, model, rng), left=0.0, max_maps=80, accelerate=False)
    for trace in done.traces:
        assert (np.diff(trace) >= -1e-9 * abs(trace[0])).all()
    best = done.models[done.order()[0]]
    shares = best[model.place("label"), :2]
    order = np.argsort(-shares[0])
    np.testing.assert_allclose(shares[:, order].T, [[0.8, 0.0, 0.2], [0.0, 0.8, 0.2]], atol=0.06)


def test_a_component_of_the_caller_is_fitted_with_the_types(rng):
    sessions, labels, _ = labelled(rng)
    plain, found = (
        lmab.fit(sessions, n_types=2, method=METHOD, components=own, check=False, rng=0)
        for own in ((), (Label(labels),))
    )
    assert plain.components == {}
    assert found.bandit.distance(TRUTH) < plain.bandit.distance(TRUTH)
    assert found.n_parameters == plain.n_parameters + 4
    assert found.converged
    table = found.components["label"].table
    assert [row["row"] for row in table] == [0, 1, 2]
    first = f"type {np.argmax(found.bandit.means[:, 0])}"
    np.testing.assert_allclose([row[first] for row in table], [0.8, 0.0, 0.2], atol=0.06)


def test_a_new_component_appears_everywhere(tmp_path, rng):
    sessions, labels, _ = labelled(rng, n=600)
    found = lmab.fit(sessions, n_types=2, method=METHOD, components=(Label(labels),), check=False, rng=0)
    found.save(tmp_path / "estimate.lmab")
    again = lmab.load(tmp_path / "estimate.lmab")
    assert again.components == found.components
    sentence = "Labels depend on the type."
    assert sentence in found.message
    assert sentence in found._repr_html_()
    page = render(gather(found, lmab.plan(found, horizon=2, anyway=True)))
    assert f"<p>{sentence}</p>" in page
    assert "<th>type 1</th>" in page


def test_the_components_of_the_package_are_one_list(monkeypatch, rng):
    found = lmab.fit(labelled(rng, n=200)[0], n_types=2, method=METHOD, check=False, rng=0)
    own = fitted_components.FittedComponent.of("new", "A new component.", [{"row": 1}])
    monkeypatch.setattr(fitted_components, "COMPONENTS", (*fitted_components.COMPONENTS, lambda estimate: own))
    assert found.components["new"].table == [{"row": 1}]
    assert "A new component." in found._repr_html_()
    assert "A new component." in render(gather(found, lmab.plan(found, horizon=2, anyway=True)))


def test_a_component_is_fitted_beside_features(rng):
    sessions, labels, types = labelled(rng, n=3000)
    groups = np.where(rng.random(len(types)) < 0.7, types, 1 - types).astype(str)
    sessions = lmab.Sessions.from_arrays(*sessions.to_arrays(), n_arms=3, features={"group": groups})
    found = lmab.fit(sessions, n_types=2, method=METHOD, components=(Label(labels),), check=False, rng=0)
    assert list(found.components) == ["features", "label"]
    first = int(np.argmax(found.bandit.means[:, 0]))
    weights = found.type_prior.weights({"group": ["0", "1"]})[:, first]
    shares = [np.mean(types[groups == group] == 0) for group in ("0", "1")]
    np.testing.assert_allclose(weights, shares, atol=0.05)


def test_old_sessions_count_less(rng):
    early, _, _ = labelled(rng, n=2000)
    swapped = replace(TRUTH, rewards=TRUTH.relabel(arms=[1, 0, 2]).rewards)
    late = replace(lmab.simulate(swapped, lmab.Uniform(3), n_sessions=2000, horizon=3, rng=rng), propensities=None)
    pooled, aged = (
        lmab.fit(early + late, n_types=2, method=METHOD, components=own, check=False, rng=0)
        for own in ((), (Ageing(300),))
    )
    assert aged.bandit.distance(swapped) < 0.5 * pooled.bandit.distance(swapped)


def test_weights_of_whole_sessions_are_repetitions(rng):
    log = observe(labelled(rng, n=50)[0])
    counts = rng.integers(1, 4, size=50)
    repeated = observe(log.sessions[np.repeat(np.arange(50), counts)])
    weighted = log.weighted(counts.astype(float))
    assert weighted.log_likelihood(TRUTH) == pytest.approx(repeated.log_likelihood(TRUTH), rel=1e-12)


@pytest.mark.parametrize("name", ["", "features", "rewards"])
def test_names_of_components_are_their_own(name, rng):
    sessions, labels, _ = labelled(rng, n=60)
    component = Label(labels)
    component.name = name
    with pytest.raises(InvalidArgument, match=f"one of weights, rewards.*; got {re.escape(repr(name))}"):
        lmab.fit(sessions, n_types=2, method=METHOD, components=(component,), check=False, rng=0)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"method": EM(prior=1.0, rank=1)}, "components must be () for methods other than EM without a rank, got 1"),
        ({"rewards": "gaussian"}, "session weights must be None for gaussian rewards, got some"),
    ],
)
def test_components_that_cannot_be_fitted_are_refused(more, wanted, rng):
    sessions, _, _ = labelled(rng, n=60)
    if "rewards" in more:
        sessions = replace(sessions, rewards=sessions.rewards + rng.normal(size=sessions.n_steps))
    with pytest.raises(InvalidArgument, match=re.escape(wanted)):
        lmab.fit(sessions, **({"n_types": 2, "method": METHOD, "components": (Ageing(9),), "rng": 0} | more))


def test_a_component_that_does_not_apply_is_refused(rng, monkeypatch):
    sessions, labels, _ = labelled(rng, n=60)
    monkeypatch.setattr(Label, "applies_to", lambda self, log: False)
    with pytest.raises(InvalidArgument, match="components must apply to the log, got 'label', which does not"):
        lmab.fit(sessions, n_types=2, method=METHOD, components=(Label(labels),), check=False, rng=0)


def test_a_sampler_of_components_stays_near_the_maximum(rng):
    """The posterior means of weights and rewards of the sampler are those of the sampler of rewards alone."""
    log = observe(labelled(rng, n=1500)[0])
    means = []
    for grouped in (False, True):
        first, model = (GroupWeights(2) if grouped else Weights()), log.pack(TRUTH)[:, :, :2]
        block = lmab.components.Component.block(Label(None), 2, front=np.arange(1500) % 2)._replace(name="features")
        coded = log.coded(log.sessions, Beside.of(block)) if grouped else log
        rewards = Rewards(coded, 2, log.prior(0.0), CategoricalArms(3, log.values))
        rows = [model[:, :1], np.ones((1, 2 * grouped, 2)), model[:, 1:]]
        latent = LatentClassModel((first, rewards), IndependentSessions(coded))
        sampler, drawn = GibbsSampler(latent, coded, np.concatenate(rows, axis=1)), []
        for sweep in range(60):
            sampler.sweep(rng)
            if sweep >= 20:
                drawn.append([*sampler.weights, *sampler.rewards.means.ravel()])
        means.append(np.mean(drawn, axis=0))
        if grouped:
            assert sampler.group_sums.sum() == 1500
    chain, drawn = log.chain(TRUTH), []
    for sweep in range(60):
        chain.sweep(rng)
        if sweep >= 20:
            drawn.append([*chain.weights, *chain.rewards.means.ravel()])
    for found in means:
        np.testing.assert_allclose(found, np.mean(drawn, axis=0), atol=0.06)


def test_candidates_are_the_compared_models():
    rng = generator(4)
    sessions, _, types = labelled(rng, n=1500)
    features = {"group": np.where(rng.random(1500) < 0.9, types, 1 - types).astype(str), "noise": rng.normal(size=1500)}
    log = lmab.Sessions.from_arrays(*sessions.to_arrays(), n_arms=3, features=features)
    found = lmab.fit(log, method=METHOD, check=False, rng=1)
    numbers = [one for one in found.candidates if one.name.endswith(("type", "types"))]
    assert [one.name for one in numbers] == ["1 type", *(f"{n} types" for n in range(2, len(numbers) + 1))]
    assert [one.name for one in numbers if one.selected] == [f"{found.curve.chosen} types"]
    assert numbers[1].gain == pytest.approx(found.curve.gain[1])
    features = next(one for one in found.candidates if one.name == "features")
    assert features.selected is (found.type_prior is not None)
    assert (features.gain, features.stderr) == found.known
    assert lmab.fit(sessions, n_types=2, method=METHOD, selected=False, check=False, rng=1).candidates == ()
