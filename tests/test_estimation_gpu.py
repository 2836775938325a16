"""The backend of a fit: by name, refused where it cannot be used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lmab
from lmab._kernel.arrays import Short
from lmab.errors import InvalidArgument, TooLarge
from lmab.estimation import gpu as gpu_module
from lmab.estimation.families import observe
from lmab.estimation.gpu import shelve
from lmab.estimation.passes import opened
from lmab.parallel import Threads


@pytest.fixture
def sessions(rng):
    return lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=50, horizon=3, rng=rng)


def test_no_gpu_is_said_and_nothing_else_is_used(sessions, monkeypatch):
    monkeypatch.setattr("lmab.estimation.gpu.missing", lambda: "none was found")
    with pytest.raises(InvalidArgument, match=r"backend must be None .*\(none was found\), got 'gpu'"):
        lmab.fit(sessions, n_types=2, backend="gpu", method=lmab.EM(prior=0.0), rng=0)


@pytest.mark.parametrize("error", [ImportError("no module"), AttributeError("no row_stack"), TypeError("no option")])
def test_what_hinders_an_import_is_said(monkeypatch, error):
    def broken():
        raise error

    monkeypatch.setattr(gpu_module, "on_gpu", broken)
    said = gpu_module.missing() or ""
    assert str(error) in said
    assert "numba-cuda" in said


def test_a_machine_without_a_driver_says_so():
    program = "from lmab.estimation.gpu import missing; print(missing())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None" or "GPU" in done.stdout or "numba-cuda" in done.stdout


def test_the_command_line_names_its_own_option(sessions, monkeypatch, tmp_path, capsys):
    from lmab.cli.app import main

    monkeypatch.setattr("lmab.estimation.gpu.missing", lambda: "none was found")
    monkeypatch.setattr("sys.argv", ["lmab", "fit", str(tmp_path / "missing.csv"), "--device", "gpu"])
    with pytest.raises(SystemExit):
        main()
    assert "--device must be cpu where no GPU can be used (none was found)" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["tpu", 1])
def test_a_backend_has_a_name(sessions, backend):
    with pytest.raises(InvalidArgument, match="backend must be"):
        lmab.fit(sessions, n_types=2, backend=backend, method=lmab.EM(prior=0.0), rng=0)


def test_a_cluster_has_no_gpu_of_ours(monkeypatch, tmp_path, capsys):
    from lmab.cli.app import main

    arguments = ["lmab", "fit", str(tmp_path / "missing.csv"), "--device", "gpu", "--cluster", "tcp://127.0.0.1:9"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        main()
    assert "--device must be cpu with --cluster, got gpu" in capsys.readouterr().err


def test_moments_have_no_backend(sessions, monkeypatch):
    monkeypatch.setattr("lmab.estimation.gpu.missing", lambda: None)
    with pytest.raises(InvalidArgument, match="backend must be None for the method MomentMatching, got 'gpu'"):
        lmab.fit(sessions, n_types=2, method=lmab.estimation.MomentMatching(), backend="gpu", rng=0)


def test_without_a_name_passes_run_on_threads():
    with opened(None, 2) as found:
        assert isinstance(found, Threads)
        assert found.threads == 2
        assert found.processor is found


@pytest.mark.parametrize("rewards", ["categorical", "gaussian"])
def test_partitions_hold_the_whole_log(sessions, rewards, monkeypatch):
    monkeypatch.setattr("lmab.estimation.log.PARTITION", 40)
    log = observe(sessions, rewards=rewards)
    parts = list(log.partitions())
    assert len(parts) > 1
    steps = log.codes if rewards == "categorical" else log.arms
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), steps)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), np.diff(log.offsets))
    np.testing.assert_array_equal(
        np.concatenate([part[2] for part in parts]), log.counts if rewards == "categorical" else []
    )
    np.testing.assert_array_equal(
        np.concatenate([part[3] for part in parts]), [] if rewards == "categorical" else log.numbers
    )
    assert log.n_steps == len(steps)


@pytest.mark.parametrize("every", [1, 16])
def test_partitions_of_a_packed_log_are_those_of_the_same_log_in_memory(rng, every, monkeypatch, tmp_path):
    monkeypatch.setattr("lmab.estimation.log.PARTITION", 200)
    monkeypatch.setattr("lmab.estimation.passes._PART", 20)
    lengths = rng.integers(1, 9, size=400)
    n_steps, offsets = int(lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])
    sessions = lmab.Sessions(rng.integers(40, size=n_steps), rng.integers(2, size=n_steps).astype(float), offsets, 40)
    packed = lmab.pack(sessions, tmp_path / "packed")
    logs = [observe(one, values=(0.0, 1.0)).level(every) for one in (sessions, packed)]
    held, filed = (list(log.partitions()) for log in logs)
    assert len(filed) == len(held) > 1
    for ours, theirs in zip(filed, held, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
    assert sum(int(part[1].sum()) for part in filed) == pytest.approx(n_steps / every, rel=0.3)
    assert logs[1].n_steps == n_steps // every


def test_shelves_know_how_much_they_stand_for_and_where_long_sessions_begin():
    lengths = np.array([40, 1, 3])
    merged = shelve(np.zeros(44, np.uint8), lengths, np.array([2.0, 5.0, 1.0]))
    assert merged.weight == 40 * 2 + 1 * 5 + 3 * 1
    assert shelve(np.zeros(44, np.uint8), lengths).weight == 44
    assert merged.long_tile == 2


class Device:
    """Passes that answer what they were told, and remember what they were asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked: list = []

    def expectation(self, log, models):
        self.asked = [log, models]
        return self.answer


@pytest.mark.parametrize("rewards", ["categorical", "gaussian"])
def test_another_device_may_do_the_expectation(sessions, rewards):
    """The map gives the device its log and models, and takes what it answers."""
    data = observe(sessions, rewards=rewards)
    models = data.random_models(2, 2, np.random.default_rng(0))
    device = Device((np.full((2, data.n_sums, 8), 3.0), np.zeros(2)))
    statistics, logs = data.expectation(models, device)
    assert device.asked[0] is data
    assert device.asked[1] is models
    assert (statistics == 3.0).all()
    constant = 0.0 if rewards == "categorical" else np.log(models[:, -1, 0] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(logs, -data.n_steps * constant)


def test_too_little_memory_is_said_with_what_to_do_and_other_errors_stay_what_they_are(sessions, monkeypatch):
    class Full:
        words = "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"

        def free_memory(self):
            return 1 << 20

        def upload(self, part, stream=0):
            raise RuntimeError(self.words)

    monkeypatch.setattr(gpu_module, "_WORTH_THE_WAY", 0)
    monkeypatch.setattr(gpu_module, "on_gpu", Full)
    monkeypatch.setattr("lmab.estimation.gpu.on_gpu", Full)
    data = observe(sessions)
    model = data.pack(lmab.random_bandit(2, sessions.n_arms, rng=0))
    with gpu_module.Gpu() as gpu, pytest.raises(TooLarge, match=r"too little free memory: .* or use the CPU"):
        gpu.expectation(data, model)
    Full.words = "[700] CUDA_ERROR_ILLEGAL_ADDRESS"
    with gpu_module.Gpu() as gpu, pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        gpu.expectation(data, model)


def test_empty_counts_and_rewards_stay_empty():
    part = (np.zeros(4, np.uint8), np.array([1, 3]), np.empty(0), np.empty(0))
    assert [len(array) for array in part] == [4, 2, 0, 0]


def test_short_sessions_are_those_of_few_words_with_their_tiles():
    """Four steps to a word; where all sessions have one length, the last word of each has so many steps."""
    several = gpu_module._short(np.array([8, 6, 5, 3, 2]), 4, np.array([1, 2, 1, 3, 1]))
    assert several == (Short(1, 0, 4, 8), Short(2, 0, 0, 4))
    alone = gpu_module._short(np.array([4 * gpu_module._MOST_WORDS + 1, 7, 3]), 4, np.array([5, 2, 1]))
    assert alone == (Short(1, 3, 7, 8), Short(2, 3, 5, 7))
