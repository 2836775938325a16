"""`lmab fit --traits`: factors at the door, and the road on from there."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rng, loadings = generator(7), generator(8).normal(0, 1.5, (8, 2))
    arms = np.array([rng.permutation(8)[:6] for _ in range(600)])
    logits = np.einsum("nd,nhd->nh", rng.normal(size=(600, 2)), loadings[arms])
    rewards = (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0
    columns = {
        "session": np.repeat(np.arange(600), 6),
        "arm": [f"joke {arm}" for arm in arms.ravel()],
        "reward": rewards.ravel(),
    }
    path = tmp_path_factory.mktemp("traits") / "log.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = RUNNER.invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_factors_are_shown_with_the_arms_at_their_ends_and_the_checks(log, tmp_path):
    said = run("fit", log, "--traits", "--factors", 3, "--verbose", "-o", tmp_path / "model.lmab")
    assert "Continuous latent factors, 512 integration points" in said
    assert "factor 1" in said
    assert "joke" in said
    assert "share of sessions" not in said
    flat = " ".join(said.split())
    assert "Masked replay on 600 held-out sessions" in flat
    model = lmab.load(tmp_path / "model.lmab")
    assert model.factors.n_factors == 3
    assert model.check.replay.n_sessions == 600


def test_machines_get_the_factors(log, tmp_path):
    told = json.loads(run("fit", log, "--traits", "--no-check", "-o", tmp_path / "model.lmab", "--json"))
    assert told["factors"]["offered"] == 8
    assert told["factors"]["alive"] == len(told["factors"]["ends"])
    assert all(label.startswith("joke") for end in told["factors"]["ends"][0] for label in end)
    types = json.loads(run("fit", log, "--types", 2, "-o", tmp_path / "types.lmab", "--json"))
    assert types["factors"] is None
    assert types["check"]["masked_replay"]["n_sessions"] == 600
    assert types["check"]["over_traits"] is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--types", 3), "must not be given with --traits, got 3"),
        (("--prior", "1"), "must be learned with --traits"),
    ],
)
def test_options_of_types_are_refused(log, tmp_path, options, message):
    said = run("fit", log, "--traits", *options, "-o", tmp_path / "model.lmab", code=2)
    assert message in " ".join(said.replace("│", " ").split())


def test_a_log_without_tastes_is_told_by_mean_rewards(tmp_path):
    rng = generator(9)
    arms = rng.random((300, 20)).argsort(axis=1)[:, :6]
    rewards = (rng.random(arms.shape) < np.linspace(0.2, 0.8, 20)[arms]) * 1.0
    columns = {"session": np.repeat(np.arange(300), 6), "arm": arms.ravel(), "reward": rewards.ravel()}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    options = ("--traits", "--factors", 2, "--no-check", "-o", tmp_path / "model.lmab")
    said = " ".join(run("fit", tmp_path / "log.parquet", *options).split())
    sentence = "no factor distinguishes arms, so rewards of a session do not help to choose its next arm; arms are"
    assert sentence in said
    told = json.loads(run("fit", tmp_path / "log.parquet", *options, "--json"))["factors"]
    assert (told["tell_arms_apart"], told["arms_ranked_by_mean_reward"]) == (False, True)
    planned = run("plan", tmp_path / "model.lmab", "--horizon", 2, "--no-repeats", "-o", tmp_path / "policy.lmab")
    assert sentence in " ".join(planned.split())
