"""Which jokes to tell: session policies for real people, learned from what a website would have logged.

    python examples/jester.py PATH [--shown 5 10 20 50] [--horizons 5 10 20] [--seed 1]

The data are not part of this repository. Get "Jester dataset 1" (jester_dataset_1_1.zip, 24,983 people) from
https://eigentaste.berkeley.edu/dataset/ and save its sheet as CSV: a row per person, first how many jokes they rated,
then 100 ratings from -10 to 10, 99 where there is none. PATH is that file; the 7,200 people who rated every joke are
used. (An .npz file with an array of 100 times their ratings does as well.) Source: K. Goldberg, T. Roeder, D. Gupta,
C. Perkins, Eigentaste: A Constant Time Collaborative Filtering Algorithm, Information Retrieval 4(2), 2001.

A person is a session, a joke an arm that is shown at most once. Half of the people are learned from, and of each only
L random jokes are seen: bandit feedback, not a table of ratings. On the other half every policy can be replayed,
because we know what each person would have said. Two kinds of reward:

    A   the person liked the joke: rating > 0
    B   the person liked it better than most: rating > their own median

Ways to choose the next joke, all from the same feedback:

    popular   the jokes liked by most people, the same for everyone
    types     a latent bandit fitted by `lmab.fit`: 2 to 8 free types, or up to 32 confined to a low rank,
              whichever held-out likelihood prefers; policies from `lmab.plan(..., repeats=False)`: greedy on the
              belief (`QMDP`), and one step ahead (`Lookahead`)
    factors   what a practitioner would use instead: a linear-Gaussian factor model, updated during the session
    256 types those factors turned into a latent bandit: 256 types on the surface that they span

Some people like every joke: types that differ by that alone predict well, but change nobody's best joke. So free types
have to predict held-out people better than types that differ in generosity alone; otherwise the answer is `popular`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import norm, qmc

import lmab
from lmab.model.belief import log_joint, posterior

N_JOKES, UNRATED = 100, 99.0
FREE = [(n_types, lmab.EM(restarts=4, prior=10.0, tolerance=1e-6)) for n_types in (2, 4, 8)]
CONFINED = [  # more types than the data could tell apart, on a surface of few dimensions
    (n_types, lmab.EM(restarts=3, prior=2.0, rank=rank, tolerance=1e-6)) for n_types, rank in ((16, 3), (32, 5))
]
N_FACTORS = (1, 2, 3, 4, 5)
FOLDS = 3
LOW_RANK_TYPES = 256


@dataclass(frozen=True, eq=False)
class Feedback:
    """What is seen of the people learned from."""

    jokes: np.ndarray  # (N, L) the jokes that were shown
    liked: np.ndarray  # (N, L) 1 or 0

    def __getitem__(self, people: np.ndarray) -> Feedback:
        return Feedback(self.jokes[people], self.liked[people])

    @property
    def sessions(self) -> lmab.Sessions:
        return lmab.Sessions.from_arrays(self.jokes, self.liked, n_arms=N_JOKES)

    @property
    def popularity(self) -> np.ndarray:
        """Share of people who liked each joke, of those who saw it."""
        jokes, liked = self.jokes.ravel(), self.liked.ravel()
        return np.bincount(jokes, liked, minlength=N_JOKES) / np.bincount(jokes, minlength=N_JOKES)


# ---------------------------------------------------------------------------------------------------------- the data


def read(path: Path) -> np.ndarray:
    """Ratings (7200, 100) of the people who rated every joke."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return arrays[arrays.files[0]] / 100
    table = np.loadtxt(path, delimiter=",")
    ratings = table[:, 1:] if table.shape[1] == N_JOKES + 1 else table
    return ratings[(ratings != UNRATED).all(axis=1)]


def rewards(ratings: np.ndarray, kind: str) -> np.ndarray:
    bar = 0.0 if kind == "A" else np.median(ratings, axis=1, keepdims=True)
    return (ratings > bar).astype(float)


def show(liked: np.ndarray, n_shown: int, rng: np.random.Generator) -> Feedback:
    """Every person sees `n_shown` random jokes, none twice."""
    jokes = rng.random(liked.shape).argsort(axis=1)[:, :n_shown]
    return Feedback(jokes, np.take_along_axis(liked, jokes, axis=1))


# ---------------------------------------------------------------------------------------------------------- the types


def fit(feedback: Feedback, n_types: int, method: lmab.EM, rng: np.random.Generator) -> lmab.LatentBandit:
    return lmab.fit(feedback.sessions, n_types=n_types, method=method, values=[0.0, 1.0], rng=rng).bandit


def generosity(feedback: Feedback) -> lmab.LatentBandit:
    """Types that differ in how easily they laugh, and not in which joke they like best: one shift of all log-odds."""
    shifts = np.linspace(-4, 4, 17)[:, None]
    share = feedback.popularity.clip(0.01, 0.99)
    popularity = np.log(share / (1 - share))
    base, weights = popularity.copy(), np.full(len(shifts), 1 / len(shifts))
    for _ in range(50):
        bandit = lmab.LatentBandit.bernoulli(weights, 1 / (1 + np.exp(-base - shifts)))
        weights = posterior(bandit, feedback.sessions).mean(axis=0)
        weights /= weights.sum()
        average = weights @ bandit.means
        base += popularity - np.log(average / (1 - average))  # so that the average stays the popularity
    return lmab.LatentBandit.bernoulli(weights, 1 / (1 + np.exp(-base - shifts)))


def held_out(learn: Callable[[Feedback], lmab.LatentBandit], feedback: Feedback) -> np.ndarray:
    """Log-likelihood of each person under a model of the others."""
    scores = np.empty(len(feedback.jokes))
    for fold in np.array_split(np.random.default_rng(0).permutation(len(scores)), FOLDS):
        bandit = learn(feedback[np.setdiff1d(np.arange(len(scores)), fold)])
        bandit = lmab.LatentBandit.bernoulli(bandit.weights, bandit.means.clip(0.001, 0.999))  # nothing is impossible
        scores[fold] = np.logaddexp.reduce(log_joint(bandit, feedback[fold].sessions), axis=1)
    return scores


def choose_types(feedback: Feedback, rng: np.random.Generator) -> tuple[int, lmab.EM, str]:
    """The model of types that predicts held-out people best; one type unless it beats generosity by two s.e."""
    one_type = (1, FREE[0][1])
    null = held_out(generosity, feedback)
    one = held_out(lambda part: fit(part, *one_type, rng), feedback)
    simplest = null if null.mean() > one.mean() else one
    best, gain, stderr = one_type, -np.inf, 0.0
    for family in (FREE, CONFINED):
        last = -np.inf
        for model in family:
            more = held_out(partial(fit, n_types=model[0], method=model[1], rng=rng), feedback) - simplest
            if more.mean() > gain:
                best, gain, stderr = model, more.mean(), more.std() / np.sqrt(len(more))
            if more.mean() <= last:  # larger ones of this family will not do better
                break
            last = more.mean()
    note = f"{describe(*best)} predict a held-out person better by {gain:+.4f} ± {stderr:.4f}"
    return *(best if gain > 2 * stderr else one_type), note


def describe(n_types: int, method: lmab.EM) -> str:
    return f"{n_types} types" + (f" of rank {method.rank}" if method.rank else "") if n_types > 1 else "one type"


# -------------------------------------------------------------------------------------------------------- the factors


@dataclass(frozen=True, eq=False)
class Factors:
    """liked = mean of the joke + loadings of the joke times factors of the person + noise; factors are N(0, I)."""

    means: np.ndarray  # (100,)
    loadings: np.ndarray  # (100, k)
    noise: float  # variance

    def people(self, jokes: np.ndarray, liked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean (N, k) and covariance (N, k, k) of people's factors."""
        seen = self.loadings[jokes]
        precision = np.einsum("nlk,nlj->nkj", seen, seen) / self.noise + np.eye(seen.shape[2])
        covariance = np.linalg.inv(precision)
        pull = np.einsum("nlk,nl->nk", seen, liked - self.means[jokes]) / self.noise
        return np.einsum("nkj,nj->nk", covariance, pull), covariance

    def log_likelihood(self, feedback: Feedback) -> np.ndarray:
        seen = self.loadings[feedback.jokes]
        covariance = np.einsum("nik,njk->nij", seen, seen) + self.noise * np.eye(seen.shape[1])
        rest = feedback.liked - self.means[feedback.jokes]
        distance = np.einsum("ni,ni->n", rest, np.linalg.solve(covariance, rest[..., None])[..., 0])
        return -(distance + np.linalg.slogdet(covariance)[1] + seen.shape[1] * np.log(2 * np.pi)) / 2


def fit_factors(feedback: Feedback, n_factors: int, rng: np.random.Generator, n_rounds: int = 60) -> Factors:
    """Maximum likelihood by EM, with a weak ridge on the loadings."""
    jokes, n_shown = feedback.jokes.ravel(), feedback.jokes.shape[1]
    counts = np.bincount(jokes, minlength=N_JOKES)
    model = Factors(feedback.popularity, 0.1 * rng.normal(size=(N_JOKES, n_factors)), 0.2)
    for _ in range(n_rounds):
        mean, covariance = model.people(feedback.jokes, feedback.liked)
        second = np.repeat(covariance + mean[:, :, None] * mean[:, None, :], n_shown, axis=0)
        rest = (feedback.liked - model.means[feedback.jokes]).ravel()
        gram = np.zeros((N_JOKES, n_factors, n_factors))
        pull = np.zeros((N_JOKES, n_factors))
        np.add.at(gram, jokes, second)
        np.add.at(pull, jokes, np.repeat(mean, n_shown, axis=0) * rest[:, None])
        loadings = np.linalg.solve(gram + 0.01 * np.eye(n_factors), pull[..., None])[..., 0]
        seen = loadings[feedback.jokes]
        explained = np.einsum("nlk,nk->nl", seen, mean)
        spread = np.einsum("nlk,nkj,nlj->", seen, covariance, seen) / len(jokes)
        noise = ((rest - explained.ravel()) ** 2).mean() + spread
        means = np.bincount(jokes, (feedback.liked - explained).ravel(), minlength=N_JOKES) / counts
        model = Factors(means, loadings, float(noise))
    return model


def choose_factors(feedback: Feedback, rng: np.random.Generator) -> Factors:
    """As many factors as predict one held-out third of the people best."""
    order = np.random.default_rng(0).permutation(len(feedback.jokes))
    cut = len(order) // FOLDS
    train, test = feedback[order[cut:]], feedback[order[:cut]]
    scores = [fit_factors(train, k, rng, 30).log_likelihood(test).mean() for k in N_FACTORS]
    return fit_factors(feedback, N_FACTORS[int(np.argmax(scores))], rng)


def low_rank_types(factors: Factors) -> lmab.LatentBandit:
    """The factor model as a latent bandit: equally likely types, spread evenly over the factors' distribution."""
    points = norm.ppf(qmc.Sobol(factors.loadings.shape[1], seed=0).random(LOW_RANK_TYPES))
    means = np.clip(factors.means + points @ factors.loadings.T, 0.02, 0.98)
    return lmab.LatentBandit.bernoulli(np.full(LOW_RANK_TYPES, 1 / LOW_RANK_TYPES), means)


# ------------------------------------------------------------------------------------------------------- the sessions


def replay(policy: lmab.Policy, liked: np.ndarray, horizon: int) -> np.ndarray:
    """What the policy earns from each person in `horizon` jokes; it sees what people said of the jokes before."""
    people, state, total = np.arange(len(liked)), policy.start(len(liked)), np.zeros(len(liked))
    for _ in range(horizon):
        jokes = policy.act(state)
        total += liked[people, jokes]
        state = policy.observe(state, jokes, liked[people, jokes])
    return total


def replay_factors(factors: Factors, liked: np.ndarray, horizon: int) -> np.ndarray:
    """The same with the factor model: the joke with the highest expected rating among those not yet told."""
    people, total = np.arange(len(liked)), np.zeros(len(liked))
    fresh, told = np.ones(liked.shape, bool), np.empty((len(liked), 0), int)
    for _ in range(horizon):
        mean, _ = factors.people(told, np.take_along_axis(liked, told, axis=1))
        jokes = np.where(fresh, factors.means + mean @ factors.loadings.T, -np.inf).argmax(axis=1)
        total += liked[people, jokes]
        fresh[people, jokes] = False
        told = np.column_stack([told, jokes])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the ratings: CSV or .npz, see above")
    parser.add_argument("--rewards", nargs="+", choices=["A", "B"], default=["A", "B"])
    parser.add_argument("--shown", nargs="+", type=int, default=[5, 10, 20, 50], help="jokes seen per person (L)")
    parser.add_argument("--horizons", nargs="+", type=int, default=[5, 10, 20], help="jokes told per session (H)")
    parser.add_argument("--seed", type=int, default=1, help="of the jokes shown, and of the fits")
    parser.add_argument("--split", type=int, default=0, help="seed of who is learned from and who is replayed")
    options = parser.parse_args()
    ratings = read(options.path)
    order = np.random.default_rng(options.split).permutation(len(ratings))
    train, test = np.split(ratings[order], [len(ratings) // 2])
    print(f"{len(train)} people to learn from, {len(test)} to replay; gain over popular ± paired standard error")
    print(
        "| reward | L | types | factors | H | popular | types, greedy | types, lookahead | factor model | "
        "256 types of the factors |"
    )
    print("|---" * 10 + "|")
    notes = []
    for kind in options.rewards:
        for n_shown in options.shown:
            start, rng = time.perf_counter(), np.random.default_rng(options.seed)
            feedback = show(rewards(train, kind), n_shown, rng)
            note = study(kind, feedback, rewards(test, kind), options.horizons, rng)
            notes.append(f"{kind}, L={n_shown}: {note}; {time.perf_counter() - start:.0f} s")
    print("\n".join(["", *notes]))


def study(kind: str, feedback: Feedback, liked: np.ndarray, horizons: list[int], rng: np.random.Generator) -> str:
    """One line of the table per horizon."""
    n_types, method, note = choose_types(feedback, rng)
    bandit, factors = fit(feedback, n_types, method, rng), choose_factors(feedback, rng)
    surface = low_rank_types(factors)
    popular = np.argsort(-feedback.popularity, kind="stable")
    for horizon in horizons:
        base = liked[:, popular[:horizon]].sum(axis=1)
        greedy, ahead, low_rank = (
            lmab.plan(model, horizon=horizon, method=method, repeats=False).policy
            for model, method in ((bandit, lmab.QMDP()), (bandit, lmab.planning.Lookahead()), (surface, lmab.QMDP()))
        )
        earned = [
            replay(greedy, liked, horizon),
            replay(ahead, liked, horizon),
            replay_factors(factors, liked, horizon),
            replay(low_rank, liked, horizon),
        ]
        gains = [one - base for one in earned]
        cells = [f"{gain.mean():+.3f} ± {gain.std() / np.sqrt(len(gain)):.3f}" for gain in gains]
        models = f"{describe(n_types, method)} | {factors.loadings.shape[1]}"
        head = f"{kind} | {feedback.jokes.shape[1]} | {models} | {horizon}"
        print(f"| {head} | {base.mean():.3f} | {' | '.join(cells)} |", flush=True)
    return note


if __name__ == "__main__":
    main()
