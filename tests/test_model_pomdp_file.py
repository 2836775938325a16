"""Files in Cassandra's POMDP format: read by a parser of its own, solved over all histories, equal to the planner."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import lmab


class Parsed:
    """The file's problem; keywords as in the format's grammar, later lines replace earlier ones."""

    def __init__(self, text: str) -> None:
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
        lines = [line for line in lines if line]
        head = dict(line.split(": ", 1) for line in lines if ": " in line and line[:2] not in ("T:", "O:", "R:"))
        self.discount, self.start = float(head["discount"]), np.array(head["start"].split(), float)
        self.n, self.n_actions, self.n_observations = (int(head[k]) for k in ("states", "actions", "observations"))
        assert head["values"] == "reward"
        self.moves = np.zeros((self.n_actions, self.n, self.n))
        self.shows = np.zeros((self.n_actions, self.n, self.n_observations))
        self.pays = np.zeros((self.n_actions, self.n))
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            kind, _, rest = line.partition(": ")
            if kind not in ("T", "O", "R"):
                continue
            parts = rest.replace(":", " ").split()
            arms = slice(None) if parts[0] == "*" else int(parts[0])
            if kind == "T":
                self.moves[arms, int(parts[1]), int(parts[2])] = float(parts[3])
            elif kind == "O":
                self.shows[arms, int(parts[1])] = np.array(following.split(), float)
            elif kind == "R":
                self.pays[arms, int(parts[1])] = float(parts[4])

    def value(self, belief, depth: int) -> float:
        if depth == 0 or belief.sum() == 0:
            return 0.0
        values = []
        for arm in range(self.n_actions):
            after = belief @ self.moves[arm]
            later = sum(self.value(after * self.shows[arm][:, z], depth - 1) for z in range(self.n_observations))
            values.append(belief @ self.pays[arm] + self.discount * later)
        return max(values)


def leaving(rng):
    return rng.random((2, 3, 2)) * 0.6


@pytest.mark.parametrize("kind", ["bernoulli", "values", "leaving", "sure"])
def test_the_problem_of_the_file_has_the_value_of_the_bandit(kind, tmp_path, rng):
    means = rng.random((2, 3))
    bandit = {
        "bernoulli": lambda: lmab.LatentBandit.bernoulli(rng.dirichlet([1, 1]), means),
        "values": lambda: lmab.LatentBandit.categorical(
            rng.dirichlet([1, 1]), rng.dirichlet([1, 1, 1], size=(2, 2)), [-1, 0.5, 2]
        ),
        "leaving": lambda: lmab.LatentBandit.bernoulli(rng.dirichlet([1, 1]), means, leaving=leaving(rng)),
        "sure": lambda: lmab.LatentBandit.bernoulli([1.0, 0.0], [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]),
    }[kind]()
    path = tmp_path / "bandit.pomdp"
    lmab.export_pomdp(bandit, 3, path)
    parsed = Parsed(path.read_text())
    assert parsed.n == 3 * bandit.n_types + 1
    np.testing.assert_allclose(parsed.moves.sum(axis=2), 1)
    np.testing.assert_allclose(parsed.shows.sum(axis=2), 1)
    exact = lmab.plan(bandit, horizon=3, method=lmab.Exact()).lower
    assert parsed.value(parsed.start, 3) == pytest.approx(exact, rel=1e-7)
    assert parsed.value(parsed.start, 5) == pytest.approx(exact, rel=1e-7)  # nothing is earned after the end


def test_the_discount_is_the_one_asked_for(tmp_path):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5]])
    lmab.export_pomdp(bandit, 4, tmp_path / "a.pomdp", discount=0.5)
    parsed = Parsed((tmp_path / "a.pomdp").read_text())
    assert parsed.value(parsed.start, 4) == pytest.approx(0.5 * (1 + 0.5 + 0.25 + 0.125))


def test_every_keyword_is_one_of_the_format(tmp_path):
    lmab.export_pomdp(lmab.random_bandit(2, 3, rng=0), 2, tmp_path / "a.pomdp")
    words = defaultdict(int)
    for line in (tmp_path / "a.pomdp").read_text().splitlines():
        if ":" in line and not line.startswith("#"):
            words[line.partition(":")[0]] += 1
    assert set(words) == {"discount", "values", "states", "actions", "observations", "start", "T", "O", "R"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon must be"),
        ({"discount": 0.0}, r"discount must be in \(0, 1\], got 0.0"),
        ({"discount": 1.1}, r"discount must be in \(0, 1\], got 1.1"),
        ({"bandit": lmab.LatentBandit.gaussian([1.0], [[0.0]])}, "finitely many values, got Gaussian rewards: cut"),
        ({"path": "missing/folder/a.pomdp"}, "missing"),
    ],
)
def test_arguments_are_checked_before_anything_is_written(arguments, message, tmp_path):
    given = {"bandit": lmab.random_bandit(2, 3, rng=0), "horizon": 2, "path": tmp_path / "a.pomdp", **arguments}
    with pytest.raises((ValueError, OSError), match=message):
        lmab.export_pomdp(**given)
    assert not (tmp_path / "a.pomdp").exists()


@pytest.mark.parametrize("seed", range(12))
def test_probabilities_of_going_on_are_at_most_1_whatever_rounding_does(seed, tmp_path):
    rng, path = np.random.default_rng([seed, 47]), tmp_path / "bandit.pomdp"
    bandit = lmab.LatentBandit.categorical([0.5, 0.5], rng.dirichlet(np.full(5, 0.7), (2, 9)), np.arange(5))
    lmab.export_pomdp(bandit, 2, path)
    moves = [float(line.split()[-1]) for line in path.read_text().splitlines() if line.startswith("T:")]
    assert max(moves) == 1.0
