"""Files load as what was saved, the commands take every kind that they can use; strangers are refused."""

from __future__ import annotations

import json
import subprocess
import sys

import policies
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab import _registry, files
from lmab.cli.app import app
from lmab.cli.options import load_model, load_planned, load_policy
from lmab.errors import InvalidFile
from lmab.estimation.result import estimate_of
from lmab.policies.policy import restore_policy

LOG = ["--step", "step"]
RUNNER = CliRunner()


def run(*arguments: object) -> dict:
    result = RUNNER.invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


MODULES_TO_ACT = 40  # measured: what a policy needs of models, policies and planning, with their packages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bandit, a log of it, and what the commands make of the log: a model, a plan, and a policy alone."""
    folder = tmp_path_factory.mktemp("saved")
    lmab.random_bandit(2, 4, rng=generator(3)).save(folder / "bandit.lmab")
    run("simulate", folder / "bandit.lmab", "-o", folder / "log.csv", "--sessions", 300, "--horizon", 3)
    run("fit", folder / "log.csv", *LOG, "--types", 2, "--no-check", "-o", folder / "fit.lmab")
    run("plan", folder / "fit.lmab", "--horizon", 3, "-o", folder / "plan.lmab")
    lmab.load(folder / "plan.lmab").policy.save(folder / "policy.lmab")
    return folder


def test_files_load_as_what_they_are(folder):
    kinds = {"bandit": lmab.LatentBandit, "fit": lmab.Estimate, "plan": lmab.Plan, "policy": lmab.Policy}
    for name, kind in kinds.items():
        assert isinstance(lmab.load(folder / f"{name}.lmab"), kind), name


@pytest.mark.parametrize("model", ["bandit.lmab", "fit.lmab"])
def test_every_command_takes_a_model(folder, tmp_path, model):
    bandit = load_model(folder / model)
    run("simulate", folder / model, "-o", tmp_path / "log.csv", "--sessions", 20, "--horizon", 3)
    log = lmab.Sessions.read(tmp_path / "log.csv", step="step")
    assert (len(log), log.n_steps) == (20, 60)
    planned = run("plan", folder / model, "--horizon", 3, "-o", tmp_path / "policy.lmab")
    plan = lmab.plan(bandit, horizon=3)
    assert (planned["lower"], planned["upper"]) == (pytest.approx(plan.lower), pytest.approx(plan.upper))
    assert planned["fixed"] == pytest.approx(bandit.best_fixed(3))
    told = run("evaluate", folder / "policy.lmab", "--model", folder / model)["model"]
    value = lmab.evaluate(lmab.load(folder / "policy.lmab"), bandit, horizon=3).mean
    assert (told["mean"], told["stderr"]) == (pytest.approx(value), 0.0)
    report = run("report", folder / model, "-o", tmp_path / "report.html", "--horizon", 3)
    assert report["known"] == pytest.approx(bandit.known_type(3))
    assert "best fixed" in (tmp_path / "report.html").read_text()
    learned = run("learn", folder / model, "--horizon", 3, "--sessions", 200, "--types", 2)
    assert learned["value"] <= learned["genie"] + 1e-9 <= plan.upper + 2e-9
    assert learned["sessions_used"] == 200


@pytest.mark.parametrize("policy", ["policy.lmab", "plan.lmab"])
def test_every_command_takes_a_policy(folder, tmp_path, policy):
    bandit, old = load_model(folder / "fit.lmab"), load_policy(folder / policy)
    run("simulate", folder / "fit.lmab", "--policy", folder / policy, "-o", tmp_path / "log.csv", "--sessions", 20,
        "--horizon", 3)  # fmt: skip
    log = lmab.Sessions.read(tmp_path / "log.csv", step="step")
    for session in log:
        steps = list(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        played = [log.arm_labels[arm] if log.arm_labels else arm for arm, _ in steps]
        history = list(zip(played, [reward for _, reward in steps], strict=True))
        assert played == [old.act_on(history[:step]) for step in range(3)]
    value = lmab.evaluate(old, bandit, horizon=3).mean
    assert run("evaluate", folder / policy, "--model", folder / "fit.lmab")["model"]["mean"] == pytest.approx(value)
    report = run("report", folder / "fit.lmab", folder / policy, "-o", tmp_path / "report.html")
    assert (report["policy"], report["horizon"]) == (pytest.approx(value), 3)


def test_a_plan_is_certified_by_its_log_and_no_other(folder, tmp_path):
    run("evaluate", folder / "plan.lmab", "--assess", folder / "log.csv", *LOG)
    lines = (folder / "log.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join(lines[:-3]))
    refused = RUNNER.invoke(app, ["evaluate", str(folder / "plan.lmab"), "--assess", str(tmp_path / "other.csv"), *LOG])
    assert "must be the log that the estimate was fitted to (300 sessions" in str(refused.exception)


def test_a_subclass_does_not_take_the_files_of_its_parent(folder):
    class Shy(lmab.Greedy):
        """Has no kind of its own."""

    bandit = lmab.load(folder / "bandit.lmab")
    assert type(restore_policy(lmab.Greedy(bandit).record())) is lmab.Greedy


def test_policies_of_others_load_once_their_class_is_there(tmp_path):
    class Lazy(lmab.policies.Ranking):
        kind = "lazy-of-a-test"

    Lazy([2, 0, 1], horizon=None).save(tmp_path / "lazy.lmab")
    assert type(lmab.load(tmp_path / "lazy.lmab")) is Lazy


def test_assessments_round_trip_to_the_bit(folder, tmp_path):
    plan = load_planned(folder / "plan.lmab")
    log = lmab.Sessions.read(folder / "log.csv", step="step")
    made = lmab.assess(estimate_of(plan.source), plan, log, n_draws=20, rng=0)
    made.save(tmp_path / "c.lmab")
    again = lmab.load(tmp_path / "c.lmab")
    assert isinstance(again, lmab.Assessment)
    assert {**vars(again), "draws": 0} == {**vars(made), "draws": 0}
    assert again.draws.tobytes() == made.draws.tobytes()
    assert (again.sentence, again.table) == (made.sentence, made.table)
    assert again.is_about(plan)
    assert not again.is_about(lmab.plan(estimate_of(plan.source), horizon=2))


def test_the_package_knows_the_module_of_each_of_its_policies(tmp_path):
    """A fresh process loads a policy of any kind, whose module nothing has imported before."""
    known = {cls.kind: cls.__module__ for cls in policies.concrete().values()}
    assert known.items() <= _registry.declared().items()
    for kind, module in _registry.declared().items():
        assert callable(_registry.class_of(kind).from_record), (kind, module)
        assert _registry.class_of(kind).__module__ == module
    lmab.plan(lmab.random_bandit(2, 4, rng=0), horizon=3, repeats=False).save(tmp_path / "plan.lmab")
    program = "import sys, lmab; print(lmab.load(sys.argv[1]).policy.act_on([]), 'lmab.learning.run' in sys.modules)"
    asked = [sys.executable, "-c", program, str(tmp_path / "plan.lmab")]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(lmab.load(tmp_path / "plan.lmab").policy.act_on([])), "False"]


def test_whoever_loads_a_plan_imports_nothing_that_fits(tmp_path):
    """A process that only acts starts in less time without it."""
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=0), lmab.Uniform(4), n_sessions=60, horizon=3, rng=0)
    lmab.plan(lmab.fit(log, n_types=2, check=False, rng=0), horizon=3, anyway=True).save(tmp_path / "plan.lmab")
    program = "import sys, lmab; lmab.load(sys.argv[1]).policy.act_on([]); print(*sys.modules)"
    asked = [sys.executable, "-c", program, str(tmp_path / "plan.lmab")]
    known = set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())
    assert not any(name.startswith(("lmab.estimation", "lmab.paper")) for name in known)
    assert not known & {"scipy", "numba", "pyarrow"}


def test_acting_with_a_saved_policy_imports_few_modules(tmp_path):
    """A process that only acts knows models, policies and planning, and nothing above them."""
    lmab.plan(lmab.random_bandit(2, 4, rng=0), horizon=3).policy.save(tmp_path / "policy.lmab")
    program = "import sys, lmab; lmab.load(sys.argv[1]).act_on([(0, 1.0)]); print(*sys.modules)"
    asked = [sys.executable, "-c", program, str(tmp_path / "policy.lmab")]
    imported = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in imported if name == "lmab" or name.startswith("lmab.")]
    layers = {name.split(".")[1] for name in ours if "." in name}
    above = {"estimation", "evaluation", "simulation", "moments", "learning", "paper", "reporting", "serve", "cli"}
    assert not layers & above
    assert len(ours) <= MODULES_TO_ACT, sorted(ours)


def test_a_certificate_of_an_earlier_version_is_refused_with_its_remedy(tmp_path):
    files.write(tmp_path / "certificate.lmab", files.Record("certificate", {"confidence": 0.9}, {}, {}))
    with pytest.raises(InvalidFile, match=r"certificate of an earlier version.*--assess LOG --save-assessment"):
        lmab.load(tmp_path / "certificate.lmab")
