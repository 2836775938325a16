"""One contract for all learners, found by themselves; then what is special to each."""

from __future__ import annotations

import doctest
import itertools
import warnings
from dataclasses import dataclass, replace

import learners
import numpy as np
import pytest
from policies import always
from seeds import generator

import lmab
from lmab import Sessions, learning
from lmab.errors import InvalidArgument, InvalidFile, LmabWarning, TooLarge
from lmab.learning.learner import Task
from lmab.paper.baselines import next_plays
from lmab.paper.learner_checks import check_learner

HORIZON, BUDGET = 4, 1200
BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.1], [0.1, 0.3, 0.6, 0.8]])


@pytest.fixture(params=learners.EXAMPLES)
def example(request):
    return learners.EXAMPLES[request.param]


class Recorder:
    """Nothing but the protocol of an environment, and a list of what was played."""

    def __init__(self, seed: int = 1) -> None:
        self._simulator = lmab.Simulator(BANDIT, horizon=HORIZON, rng=generator(seed))
        self.rounds: list[Sessions] = []

    n_arms, horizon = BANDIT.n_arms, HORIZON

    @property
    def sessions_used(self) -> int:
        return sum(map(len, self.rounds))

    def play(self, arms) -> Sessions:
        self.rounds.append(self._simulator.play(arms))
        return self.rounds[-1]

    def run(self, policy, n_sessions) -> Sessions:
        self.rounds.append(self._simulator.run(policy, n_sessions))
        return self.rounds[-1]


def learn(learner, environment, seed: int = 2):
    return lmab.learn(environment, learner, n_sessions=BUDGET, rng=generator(seed))


def test_every_learner_keeps_the_laws(example):
    report = check_learner(example(BANDIT), bandit=BANDIT, horizon=HORIZON)
    assert report.not_checked == {}


def test_every_learner_is_among_them():
    assert set(learners.concrete()) <= {type(example(BANDIT)).__name__ for example in learners.EXAMPLES.values()}


def test_learns_a_policy_for_the_environment(example):
    environment = Recorder()
    learned = learn(example(BANDIT), environment)
    value, fixed = lmab.evaluate(learned.policy, BANDIT, horizon=HORIZON).mean, BANDIT.best_fixed(HORIZON)
    assert value == pytest.approx(fixed) if "one arm" in example.tags else value > 1.1 * fixed
    assert environment.sessions_used == (0 if "plays nothing" in example.tags else BUDGET)
    assert learned.policy.horizon == HORIZON
    assert (learned.plan is None) == (learned.bandit is None) == ("no model" in example.tags)


# ask and tell


def new_run(learner=None, **options):
    settings = {"n_arms": 4, "horizon": HORIZON, "n_sessions": 100, "rng": generator(0), **options}
    return learning.Run(learner or lmab.DirectMLE(2, thompson_rounds=0), **settings)


def test_a_run_takes_a_task_or_its_fields():
    task = Task(4, HORIZON, 100, values=[1.0, 0.0, 1.0])
    given, named = (
        learning.Run(lmab.DirectMLE(2, thompson_rounds=0), task, rng=0),
        new_run(values=[1.0, 0.0], rng=0),
    )
    assert given.task == named.task == Task(4, HORIZON, 100, values=(0.0, 1.0))
    assert given.seed == named.seed
    with pytest.raises(InvalidArgument, match="task must be given without its fields, got horizon"):
        learning.Run(lmab.DirectMLE(2), task, horizon=3, rng=0)
    with pytest.raises(InvalidArgument, match="values must be"):
        new_run(values=[])
    with pytest.raises(TypeError, match="n_sessions"):
        learning.Run(lmab.DirectMLE(2), n_arms=4, horizon=3, rng=0)


def test_ask_is_what_is_left():
    run, live = new_run(), Recorder()
    run.tell(live.run(run.ask().policy, 30))
    assert (run.ask().n_sessions, run.sessions_used, run.finished) == (70, 30, False)
    with pytest.raises(InvalidArgument, match=r"must be finished first, got one that still asks for .*70 sessions"):
        _ = run.learned
    run.tell(run.ask().on(live))
    assert run.finished
    with pytest.raises(InvalidArgument, match="nothing left to play"):
        run.ask()


def test_rows_of_an_exploration_are_asked_once():
    run, live = new_run(learning.UCB()), Recorder()
    run.tell(run.ask().on(live))
    while run.ask().n_sessions == 1:
        run.tell(run.ask().on(live))
    plan = run.ask()
    run.tell(live.play(plan.arms[:1]))
    assert np.array_equal(run.ask().arms, plan.arms[1:])


def test_wrong_sessions_are_refused():
    run = new_run()
    with pytest.raises(InvalidArgument, match="4 arms, got 5"):
        run.tell(Sessions.from_arrays([[0]], [[1.0]], n_arms=5))
    with pytest.raises(InvalidArgument, match="at most 4 steps, got 5"):
        run.tell(Sessions.from_arrays([[0] * 5], [[1.0] * 5], n_arms=4))
    with pytest.raises(InvalidArgument, match="at most the 100 asked for, got 101"):
        run.tell(Sessions.from_arrays([[0]] * 101, [[1.0]] * 101, n_arms=4))


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="learner must be a Learner"):
        new_run("direct")
    with pytest.raises(InvalidArgument, match="n_sessions must be an integer of at least 1, got 0"):
        new_run(n_sessions=0)
    with pytest.raises(InvalidArgument, match="n_types"):
        lmab.DirectMLE(0)
    with pytest.raises(InvalidArgument, match="environment's 4 arms, got 3"):
        new_run(learning.Genie(lmab.LatentBandit.bernoulli([1.0], [[0.1, 0.2, 0.3]])))


def test_a_run_of_an_unknown_learner_is_refused(tmp_path):
    from lmab import files

    record = new_run().record()
    learner = files.Record("Oracle", {}, {}, {})
    changed = files.Record(record.kind, record.fields, record.arrays, {**record.records, "learner": learner})
    files.write(tmp_path / "run.lmab", changed)
    with pytest.raises(InvalidFile, match="Oracle"):
        lmab.load(tmp_path / "run.lmab")


def test_short_sessions_are_learned_from_as_they_are(rng):
    arms = rng.integers(4, size=(100, HORIZON))
    arms[:50, 2:] = -1
    run = new_run()
    run.tell(Sessions.from_arrays(arms, (rng.random(arms.shape) < 0.5).astype(float), n_arms=4))
    assert run.finished


# single learners


def ucb1(rewards, n_plays: int) -> np.ndarray:
    """UCB1 play by play, as in Auer et al. (2002), with the means fixed."""
    counts = np.ones(len(rewards))
    for _ in range(n_plays):
        # The logarithm as at the end of the round: within one it hardly changes.
        counts[np.argmax(rewards + np.sqrt(2 * np.log(len(rewards) + n_plays) / counts))] += 1
    return counts - 1


def test_a_round_of_ucb_spreads_as_ucb1_does(rng):
    for n_arms, n_plays in ((2, 50), (10, 1000), (30, 400), (5, 3)):
        means = rng.random(n_arms)
        plays = next_plays(np.ones(n_arms), means, n_plays, 1.0)
        assert plays.sum() == n_plays
        assert np.abs(plays - ucb1(means, n_plays)).max() <= 2  # counts are whole


def test_ucb_plays_every_arm_first():
    run = new_run(learning.UCB(), n_arms=10)
    assert np.array_equal(np.unique(run.ask().arms), np.arange(10))
    plays = next_plays(np.zeros(5), np.zeros(5), 3, 1.0)
    assert plays.tolist() == [1, 1, 1, 0, 0]
    assert next_plays(np.array([1.0, 0, 0]), np.ones(3), 6, 1.0).tolist() == [2, 2, 2]  # the two, then all around


def test_what_cannot_be_learned_is_refused_before_anything_is_played():
    for learner, options, message in (
        (learning.HistoryUCBVI(), {"rewards": "gaussian"}, "rewards must be categorical"),
        (learning.Tensor(2), {"horizon": 2}, "horizon must be at least 3"),
        (learning.EDMLE(2), {"horizon": 1}, "horizon must be at least 2"),
        (learning.EDMoments(2), {"horizon": 1}, "horizon must be at least 2"),
        (learning.EDMLE(2), {"n_sessions": 1}, "n_sessions must be at least 2"),
        (learning.EDMLE(2), {"n_sessions": 7}, "leave at least 2 sessions for the fit, .*, got 7, which leaves 1"),
        (learning.EDMoments(3), {"n_sessions": 4}, "leave at least 3 sessions for the fit"),
        (lmab.DirectMLE(3), {"n_sessions": 4}, "leave at least 3 sessions for the fit, .*, got 4, which leaves 2"),
        (lmab.DirectMLE(3, thompson_rounds=0), {"n_sessions": 2}, "leave at least 3 .*, got 2, which leaves 2"),
        (lmab.DirectMLE("auto"), {"n_sessions": 2}, "leave at least 2 sessions for the fit"),
        (learning.Tensor(3), {"n_sessions": 2}, "leave at least 3 sessions for the fit"),
        (learning.LUCRL(2), {"n_sessions": 4}, "leave at least 2 sessions for the fit"),
        (learning.LUCRL(2), {"n_sessions": 1}, "n_sessions must be at least 2"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            new_run(learner, **options)


def test_history_ucbvi_refuses_what_is_too_large():
    with pytest.raises(TooLarge, match=r"1\.05e\+08 histories"):
        new_run(learning.HistoryUCBVI(), n_arms=20, horizon=5)


def test_history_ucbvi_hopes_while_it_plays_and_not_after():
    from lmab.learning.learner import Task
    from lmab.paper.history_ucbvi import _Tree

    tree = _Tree.for_task(Task(2, 2, 10, values=(-1.0, 3.0)))
    tree.count(Sessions.from_arrays([[0, 1]], [[3.0, -1.0]], n_arms=2))
    playing, after = tree.scores(0.1, 10), tree.scores(None, 10)
    assert playing[0][0, 1] == 6.0  # never played: the most that two steps can pay
    assert after[0][0, 1] == -2.0
    assert after[1].shape == (4, 2)
    assert after[1][1, 1] == -1.0  # after (arm 0, value 3) arm 1 paid -1
    assert after[0][0, 0] == 2.0  # 3, then -1 whatever is played


def test_history_ucbvi_finds_the_optimum(rng):
    import oracle

    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 2)), [-1.0, 0.0, 2.0])
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    learned = lmab.learn(environment, learning.HistoryUCBVI(), n_sessions=50_000, values=[-1, 0, 2], rng=rng)
    best = oracle.optimal_value(bandit.weights, bandit.rewards.probabilities, bandit.rewards.values, 3)
    value = lmab.evaluate(learned.policy, bandit, horizon=3).mean
    assert best - 0.02 <= value <= best + 1e-12


def test_genie_is_the_planner():
    learned = learn(learning.Genie(BANDIT), Recorder())
    assert learned.bandit is BANDIT
    assert learned.plan.lower == lmab.plan(BANDIT, horizon=HORIZON).lower


def test_thompson_rounds_spend_half_the_budget():
    environment = Recorder()
    learned = learn(lmab.DirectMLE(2, thompson_rounds=3), environment)
    assert [len(sessions) for sessions in environment.rounds] == [600, 200, 200, 200]
    assert learned["thompson"].n_rounds == 3
    assert learned["thompson"].reward > 1.2 * learned["explore"].reward  # it plays what seems best


def test_two_rounds_are_the_default_and_none_is_uniform_play():
    environment = Recorder()
    learn(lmab.DirectMLE(2), environment)
    assert [len(sessions) for sessions in environment.rounds] == [600, 300, 300]
    environment = Recorder()
    assert learn(lmab.DirectMLE(2, thompson_rounds=0), environment)["explore"].n_rounds == 1
    assert [len(sessions) for sessions in environment.rounds] == [1200]


def test_thompson_rounds_draw_from_models_that_the_log_could_have_come_from(rng):
    """A round's policy knows the types of all drawn models; arms that look alike are both tried."""
    from lmab.learning.direct_mle import _possible

    log = lmab.simulate(BANDIT, lmab.Uniform(BANDIT.n_arms), n_sessions=200, horizon=HORIZON, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=rng, check=False)
    possible = _possible(fit, rng)
    assert possible.n_types == 2 * 16
    assert possible.weights.sum() == pytest.approx(1)
    spread = possible.means.reshape(16, 2, -1).std(axis=0)
    assert (spread > 0.005).all()
    assert np.abs(possible.weights @ possible.means - BANDIT.weights @ BANDIT.means).max() < 0.15


def test_direct_mle_confines_the_fit_to_the_rank_it_sees(rng):
    bandit = lmab.random_bandit(6, 12, rank=3, rng=rng)
    environment = lmab.Simulator(bandit, horizon=6, rng=rng)
    learned = lmab.learn(environment, lmab.DirectMLE(6), n_sessions=4000, planner=lmab.QMDP(), rng=rng)
    facts = learned["polish"].facts
    assert facts["kept"]
    assert facts["rank"] == learned["subspace"].facts["rank"] + 1
    spread = learned.estimate.bandit.means - learned.estimate.bandit.means[0]
    assert np.linalg.matrix_rank(spread, tol=1e-6) == facts["rank"] - 1
    free = lmab.learn(environment, lmab.DirectMLE(6, rank=None), n_sessions=4000, planner=lmab.QMDP(), rng=rng)
    assert "polish" not in [phase.name for phase in free.diagnostics]


def test_the_gain_of_a_polish_is_akaikes(rng):
    """AIC before less AIC after: what the likelihood lost counts against the parameters that were saved."""
    bandit = lmab.random_bandit(6, 12, rank=3, rng=rng)
    environment = lmab.Simulator(bandit, horizon=6, rng=rng)
    learner = lmab.DirectMLE(6, thompson_rounds=0)
    learned = lmab.learn(environment, learner, n_sessions=2000, planner=lmab.QMDP(), rng=rng)
    facts, confined = learned["polish"].facts, learned.estimate
    assert facts["kept"]
    free = 5 + 6 * 12
    assert facts["parameters_saved"] == free - confined.n_parameters > 0
    lost = learned["fit"].facts["log_likelihood"] - confined.log_likelihood
    assert lost > 0
    assert facts["aic_gain"] == pytest.approx(2 * facts["parameters_saved"] - 2 * lost)


def test_direct_mle_leaves_alone_what_the_spectrum_does_not_rule_out():
    # Seven types of full rank; the weak ones do not stand out from the noise, but push its eigenvalues up.
    rng = np.random.default_rng(7004)
    bandit = lmab.random_bandit(7, 30, kind="hard", rng=rng)
    environment = lmab.Simulator(bandit, horizon=4, rng=rng)
    learned = lmab.learn(environment, lmab.DirectMLE(7), n_sessions=6000, planner=lmab.QMDP(), rng=rng)
    assert learned["subspace"].facts["rank"] < 6
    assert learned["subspace"].facts["skew"] > 1.1
    assert "polish" not in [phase.name for phase in learned.diagnostics]


def test_direct_mle_drops_a_polish_that_does_not_pay(monkeypatch, rng):
    from lmab.learning import direct_mle

    monkeypatch.setattr(direct_mle, "_SYMMETRY", np.inf)
    bandit = lmab.random_bandit(7, 20, kind="hard", rng=rng)
    environment = lmab.Simulator(bandit, horizon=6, rng=rng)
    learned = lmab.learn(environment, lmab.DirectMLE(7), n_sessions=4000, planner=lmab.QMDP(), rng=rng)
    assert not learned["polish"].facts["kept"]
    means = learned.estimate.bandit.means
    assert np.linalg.matrix_rank(means - means[0], tol=1e-6) == 6


def test_the_number_of_types_can_be_found(rng):
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.8, 0.2], [0.2, 0.7, 0.1, 0.9]])
    environment = lmab.Simulator(bandit, horizon=5, rng=rng)
    learned = lmab.learn(environment, lmab.DirectMLE("auto"), n_sessions=1500, rng=rng)
    assert learned.bandit.n_types in (2, 3)
    best = lmab.evaluate(lmab.plan(bandit, horizon=5).policy, bandit, horizon=5).mean
    assert lmab.evaluate(learned.policy, bandit, horizon=5).mean > 0.98 * best


def test_edmle_reads_a_core_arm_by_pairs_or_in_full(rng):
    environment = Recorder()
    by_pairs = learn(learning.EDMLE(2), environment)
    first, second = environment.rounds
    assert (len(first), len(second)) == (960, 240)
    core = by_pairs["design"].facts["core_set"]
    assert set(second.arms.tolist()) == {arm for arm, _ in core}
    assert by_pairs["design"].facts["g"] <= 4 + 1e-9
    for options in ({"likelihood": "full"}, {"pairs": "first-two"}, {"rank": "auto"}, {"rank": 3, "split": 0.5}):
        learned = learn(learning.EDMLE(2, **options), Recorder())
        assert lmab.evaluate(learned.policy, BANDIT, horizon=HORIZON).mean > 2.7


def test_edmoments_looks_at_as_many_directions_as_it_is_told():
    for options, size in (({}, 2), ({"rank": 3}, 3)):
        learned = learn(learning.EDMoments(2, restarts=1, **options), Recorder())
        assert learned["subspace"].facts["rank"] == size


def test_core_plays_of_other_arms_are_refused():
    run, live = new_run(learning.EDMLE(2, rank=1), n_sessions=500), Recorder()
    run.tell(run.ask().on(live))
    n = run.ask().n_sessions
    core = set(np.unique(run.ask().arms).tolist())
    other = next(arm for arm in range(4) if arm not in core)
    with pytest.raises(InvalidArgument, match=f"must play the core arms .* got arm {other}"):
        run.tell(live.play(np.full((n, HORIZON), other)))


def test_core_arms_have_numbers_and_no_names():
    from lmab.paper.designed import as_core_arms

    core = lmab.moments.design(lmab.moments.Subspace(np.eye(4)[:, [0, 3]], np.ones(2), 4))
    log = lmab.Sessions.from_arrays([[3, 0], [0, 3]], np.ones((2, 2)), n_arms=4)
    found = as_core_arms(core, replace(log, arm_labels=("a", "b", "c", "d")))
    assert found.arms.tolist() == [1, 0, 0, 1]
    assert (found.n_arms, found.arm_labels) == (2, None)


def test_indicators_say_whether_a_pair_paid_its_value(rng):
    from lmab.paper.designed import as_indicators

    features = lmab.moments.Subspace(np.eye(6)[:, :3], np.ones(3), 3, np.array([0.0, 1.0]))
    core = lmab.moments.design(features)  # the pairs (0, 0), (0, 1), (1, 0)
    assert core.pairs == [(0, 0.0), (0, 1.0), (1, 0.0)]
    log = Sessions.from_arrays(rng.integers(2, size=(500, 3)), rng.integers(2, size=(500, 3)).astype(float), n_arms=3)
    read = as_indicators(core, log, rng)
    arms, values = np.array(core.pairs).T
    assert np.array_equal(arms[read.arms], log.arms)
    assert np.array_equal(read.rewards == 1, values[read.arms] == log.rewards)
    assert 0.4 < (read.arms[log.arms == 0] == 0).mean() < 0.6


@pytest.mark.parametrize("name", ["EDMLE", "EDMoments", "Tensor", "DirectMLE", "LUCRL"])
def test_normal_rewards_are_learned(name, rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[2.0, 0.0, 0.5, 1.0], [0.0, 2.0, 1.0, 0.5]], scale=1.0)
    environment = lmab.Simulator(bandit, horizon=5, rng=rng)
    learner = learners.EXAMPLES[name](bandit)
    learned = lmab.learn(environment, learner, n_sessions=2000, rewards="gaussian", planner=lmab.QMDP(), rng=rng)
    assert learned.bandit.distance(bandit) < 0.25


def test_every_sweep_of_l_ucrl_climbs():
    """The model of the first optimistic round fits the exploration better, the more sweeps went over it."""
    sessions = Recorder().run(lmab.Uniform(4), 300)
    found = []
    for sweeps in (1, 2, 5, 20):
        learner = learning.LUCRL(2, start=0.5, sweeps=sweeps, prior=1e-6)
        run = learning.Run(learner, n_arms=4, horizon=HORIZON, n_sessions=600, rng=np.random.default_rng(5))
        run.tell(sessions)
        model = run.ask().policy.bandit
        found.append(np.logaddexp.reduce(lmab.model.belief.log_joint(model, sessions), axis=1).sum())
    assert (np.diff(found) > 0).all()


def test_optimism_fades_with_what_was_seen():
    learner = learning.LUCRL(2)
    few, many = (learner._bonus(BANDIT, np.full((2, 4), count), 1000) for count in (200.0, 20_000.0))
    assert (few > many).all()
    assert np.allclose(few, 10 * many)
    assert (BANDIT.means + learner._bonus(BANDIT, np.ones((2, 4)), 1000) <= 1).all()


def test_l_ucrl_sweeps_over_all_sessions_after_every_batch(monkeypatch):
    from lmab.paper import l_ucrl

    seen = []

    def recorded(bandit, sessions, **options):
        seen.append((len(sessions), options["sweeps"], options["prior"]))
        return sweep(bandit, sessions, **options)

    sweep = l_ucrl.sweep
    monkeypatch.setattr(l_ucrl, "sweep", recorded)
    environment = lmab.Simulator(BANDIT, horizon=4, rng=generator(0))
    learner = learning.LUCRL(2, start=0.5, growth=0.5, sweeps=4, prior=1.5)
    lmab.learn(environment, learner, n_sessions=200, planner=lmab.QMDP(), rng=generator(0))
    assert seen == [(100, 4, 1.5), (150, 4, 1.5), (200, 4, 1.5)]
    assert learning.LUCRL(2).sweeps is None  # Three, where rounds are refitted.


@pytest.mark.parametrize("name", ["DirectMLE", "EDMLE", "EDMoments", "Tensor", "LUCRL"])
def test_beliefs_under_an_estimate_never_rule_a_type_out(name):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.1, 0.5], [0.0, 0.9, 0.5]])
    environment = lmab.Simulator(bandit, horizon=3, rng=generator(0))
    learner = learners.EXAMPLES[name](bandit)
    learned = lmab.learn(environment, learner, n_sessions=3000, values=[0, 1, 7], rng=generator(0))
    probabilities = learned.bandit.rewards.probabilities
    assert probabilities.shape[2] == 3  # the value never seen is possible, too
    assert probabilities.min() > 0.9e-3
    assert probabilities.max() > 0.99


def test_values_too_rare_to_be_seen_can_be_named():
    environment = Recorder()
    learned = lmab.learn(environment, lmab.DirectMLE(2), n_sessions=200, values=[0, 1, 5], rng=generator(0))
    assert learned.policy.act_on([(0, 5.0)]) in range(4)


def test_edmoments_cuts_normal_rewards_of_short_sessions(tmp_path):
    """Appendix B.2: 2 steps do not identify 2 types, yet the policy earns what the best one does."""
    rng = generator(0)
    bandit = lmab.LatentBandit.gaussian([0.6, 0.4], [[1.5, -1.5, 0.2, 0.0], [-1.5, 1.5, 0.2, 0.0]])
    environment = lmab.Simulator(bandit, horizon=2, rng=rng)
    learned = lmab.learn(environment, learning.EDMoments(2), n_sessions=30_000, rng=rng, rewards="gaussian")
    learned.policy.save(tmp_path / "policy.lmab")
    policy = lmab.load(tmp_path / "policy.lmab")
    value, best, fixed = (
        lmab.evaluate(one, bandit, horizon=2, n_sessions=50_000, rng=generator(1)).mean
        for one in (policy, lmab.plan(bandit, horizon=2).policy, always(0, 4))
    )
    assert value > best - 0.05
    assert value > fixed + 0.3


def test_shares_of_a_budget():
    from lmab.learning.learner import share_out

    assert share_out(10, 0.25) == (2, 8)
    assert share_out(10, 0.26) == (3, 7)  # rounded
    assert share_out(2, 0.99) == (1, 1)
    assert share_out(2, 0.01) == (1, 1)
    with pytest.raises(InvalidArgument, match="n_sessions must be at least 2"):
        share_out(1, 0.5)


def test_ucb_rounds_grow_by_the_stated_part():
    """Each arm once in the first round, then a twentieth of what was played, at least one session."""
    environment = Recorder()
    lmab.learn(environment, learning.UCB(growth=0.5), n_sessions=20, rng=0)
    assert [len(sessions) for sessions in environment.rounds] == [1, 1, 1, 1, 2, 3, 4, 6, 1]
    assert sorted(environment.rounds[0].arms.tolist()) == [0, 1, 2, 3]


def test_the_index_of_ucb_widens_with_the_spread(rng):
    counts, sums = np.array([50.0, 50.0]), np.array([40.0, 25.0])
    narrow, wide = (next_plays(counts, sums, 200, spread) for spread in (0.1, 10.0))
    assert narrow.sum() == wide.sum() == 200
    assert narrow.tolist() == [200, 0]
    assert wide[1] > 80


def test_optimism_of_a_learner_is_hoeffdings(rng):
    """bonus * spread * sqrt(log(MA * n) / (2 count)), and never beyond the highest reward."""
    bandit = lmab.LatentBandit.categorical([0.5, 0.5], rng.dirichlet(np.ones(2), size=(2, 3)), [-1.0, 3.0])
    counts = np.array([[100.0, 1000.0, 0.0], [1e6, 50.0, 2.0]])
    expected = 0.5 * 4 * np.sqrt(np.log(6 * 700) / (2 * np.maximum(counts, 1)))
    found = learning.LUCRL(2)._bonus(bandit, counts, 700)
    np.testing.assert_allclose(found, np.minimum(expected, 3 - bandit.means))
    assert (found[0, 2], found[1, 0]) == (pytest.approx(3 - bandit.means[0, 2]), pytest.approx(expected[1, 0]))


def test_rounds_of_l_ucrl_grow_by_the_stated_part():
    environment = Recorder()
    lmab.learn(environment, learning.LUCRL(2, start=0.5, growth=0.5), n_sessions=200, planner=lmab.QMDP(), rng=0)
    assert [len(sessions) for sessions in environment.rounds] == [100, 50, 50]


def test_core_plays_are_uniform_over_core_pairs():
    """An arm of two core pairs is played twice as often as an arm of one."""
    environment = Recorder()
    learned = lmab.learn(environment, learning.EDMLE(2, split=0.5), n_sessions=4000, planner=lmab.QMDP(), rng=3)
    core = [arm for arm, _ in learned["design"].facts["core_set"]]
    plays = np.bincount(environment.rounds[1].arms, minlength=4) / environment.rounds[1].n_steps
    np.testing.assert_allclose(plays, np.bincount(core, minlength=4) / len(core), atol=0.03)


def test_a_course_adds_phases_of_one_name():
    course = learning.Course()
    log = Sessions.from_arrays([[0, 1]], [[1.0, 0.5]])
    for _ in range(2):
        exploration = course.explore(learning.Exploration.of_arms("explore", np.array([[0, 1]])))
        next(exploration)
        with pytest.raises(StopIteration):
            exploration.send(log)
    course.note("fit", a=1, b=2)
    course.note("fit", b=3)
    learned = course.learned(always(0), None)
    assert learned.sessions_used == 2
    assert (learned["explore"].n_rounds, learned["explore"].reward) == (2, 3.0)
    assert learned["fit"].facts == {"a": 1, "b": 3}


def test_thompson_rounds_share_out_what_is_left():
    environment = Recorder()
    learner = lmab.DirectMLE(2, rank=None, thompson_rounds=3)
    lmab.learn(environment, learner, n_sessions=101, planner=lmab.QMDP(), rng=0)
    assert [len(sessions) for sessions in environment.rounds] == [51, 16, 17, 17]


def test_the_skew_of_eigenvalues():
    from lmab.learning.direct_mle import _skew

    values = np.array([5.0, 1.0, 0.4, 0.2, 0.0, -0.1, -0.2])
    assert _skew(values, 2, 4) == pytest.approx(0.6 / 0.3)
    assert _skew(values, 2, 2) == np.inf
    assert _skew(values, 3, 2) == np.inf
    assert _skew(np.array([5.0, 1.0, 0.4, 0.2]), 1, 3) == np.inf  # nothing is below zero


def test_values_of_histories_are_those_of_dynamic_programming():
    """Counts of a known truth: the table holds what each arm earns now and with the best arm afterwards."""
    from lmab.learning.learner import Task
    from lmab.paper.history_ucbvi import _Tree

    chance = {0: 0.25, 1: 0.5}  # of a reward, by arm at the first step
    later = {(0, 1): (1.0, 0.0), (0, 0): (0.0, 0.5), (1, 1): (0.5, 0.25), (1, 0): (0.25, 0.25)}  # of each arm then
    sessions = []
    for arm, reward, then, paid in itertools.product(range(2), repeat=4):
        here = chance[arm] if reward else 1 - chance[arm]
        there = later[arm, reward][then] if paid else 1 - later[arm, reward][then]
        sessions += [((arm, then), (float(reward), float(paid)))] * round(16 * here * there)
    tree = _Tree.for_task(Task(n_arms=2, horizon=2, n_sessions=10))
    tree.count(Sessions.from_arrays([arms for arms, _ in sessions], [rewards for _, rewards in sessions]))
    first, second = tree.scores(None, 10)
    np.testing.assert_allclose(second, [later[0, 0], later[0, 1], later[1, 0], later[1, 1]])
    np.testing.assert_allclose(first, [[0.25 + 0.25 * 1.0 + 0.75 * 0.5, 0.5 + 0.5 * 0.5 + 0.5 * 0.25]])
    assert tree.n_histories == 4 + 16


def test_values_of_histories_are_renewed_to_the_same_bits():
    """Sessions change the values of the histories on their way alone."""
    from lmab.paper.history_ucbvi import _Tree

    rng, task = generator(8), Task(n_arms=3, horizon=3, n_sessions=60, values=(0, 0.5, 1))
    tree = _Tree.for_task(task)
    tables = tree.scores(0.1, 60)
    for n in (1, 4, 30):
        arms, rewards = rng.integers(3, size=(n, 3)), rng.choice([0, 0.5, 1], size=(n, 3))
        arms[0, 2] = -1  # A session that ended early.
        followed = tree.count(Sessions.from_arrays(arms, rewards, n_arms=3))
        tree.renew(tables, followed, 0.1, 60)
        for renewed, table in zip(tables, tree.scores(0.1, 60), strict=True):
            np.testing.assert_array_equal(renewed, table)


def test_an_arm_of_two_core_pairs_is_played_twice_as_often():
    from lmab.learning.learner import Task
    from lmab.paper.designed import core_plays

    core = lmab.moments.design(lmab.moments.Subspace(np.eye(6)[:, :3], np.ones(3), 3, np.array([0.0, 1.0])))
    assert core.pairs == [(0, 0.0), (0, 1.0), (1, 0.0)]
    task = Task(n_arms=3, horizon=5, n_sessions=2000)
    asked = next(core_plays(task, core, 2000, np.random.default_rng(0), learning.Course()))
    assert asked.arms.shape == (2000, 5)
    np.testing.assert_allclose(np.bincount(asked.arms.ravel(), minlength=3) / 10_000, [2 / 3, 1 / 3, 0], atol=0.02)


THREE = lmab.LatentBandit.categorical(
    [0.4, 0.6],
    [[[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]], [[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [0.3, 0.4, 0.3]]],
    [0.0, 0.5, 1.0],
)


@pytest.mark.parametrize(
    "learner",
    [
        learning.EDMoments(2, restarts=4),
        learning.EDMoments(2, restarts=4, events="events"),
        learning.EDMLE(2),
        learning.EDMLE(2, events="events"),
        learning.EDMLE(2, likelihood="full"),
        learning.EDMoments(2, restarts=4, w_min=0.3),
    ],
)
def test_three_paid_values_end_to_end(learner):
    """Algorithm 1 and ED+MLE with Z = 3, from pairs and from the arm-events of Remark A.1."""
    environment = lmab.Simulator(THREE, horizon=3, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # a core set of one arm, or moments that just miss
        learned = lmab.learn(environment, learner, n_sessions=30_000, rng=2, planner=lmab.Exact())
    best = lmab.plan(THREE, horizon=3, method=lmab.Exact()).lower
    assert lmab.evaluate(learned.policy, THREE, horizon=3).mean > 0.985 * best
    assert learned.bandit is not None
    assert learned.bandit.rewards.n_values == 3
    kinds = {type(value) for _, value in learned["design"].facts["core_set"]}
    assert kinds == ({frozenset} if learner.events == "events" else {float})


def test_unknown_least_weights_are_tried_and_the_best_policy_is_kept():
    """Appendix A: with weights .1 and .9 a least weight of 1/2 is wrong, and the sessions played show it."""
    bandit = lmab.LatentBandit.bernoulli([0.1, 0.9], [[0.05, 0.95, 0.05, 0.5], [0.9, 0.1, 0.8, 0.5]])
    environment = lmab.Simulator(bandit, horizon=3, rng=1)
    learner = learning.EDMoments(2, restarts=4, w_min="tried")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # moments that a wrong least weight cannot match
        learned = lmab.learn(environment, learner, n_sessions=20_000, rng=2, planner=lmab.Exact())
    facts, played = learned["choice of w_min"].facts, learned["try policies"]
    assert facts["tried"] == [0.5 / 2**k for k in range(9)]  # The last is above 1/1000.
    assert facts["w_min"] == facts["tried"][int(np.argmax(facts["earned"]))]
    assert (played.n_sessions, played.n_rounds, learned["core plays"].n_sessions) == (2_000, 9, 8_000)
    assert learned.sessions_used == 20_000
    shares = np.diff(np.linspace(0, 2000, 10).astype(int))
    assert played.reward == pytest.approx(shares @ facts["earned"])
    assert learned.plan is not None
    assert learned.policy is learned.plan.policy
    assert learned.bandit.weights.min() >= facts["w_min"] - 1e-9


def test_the_policy_that_earned_most_is_kept():
    """The sessions decide: an environment that pays only while the n-th policy plays makes it the choice."""
    task, learner = (
        learning.Task(4, 3, 4000, planner=lmab.Exact()),
        learning.EDMoments(3, restarts=2, w_min="tried"),
    )
    world = lmab.Simulator(lmab.random_bandit(3, 4, rng=1), horizon=3, rng=1)
    for paid in (0, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LmabWarning)  # moments that a wrong least weight cannot match
            campaign, found, plans = learner.campaign(task, rng=np.random.default_rng(0)), None, []
            try:
                asked = next(campaign)
                while True:
                    seen = asked.on(world)
                    if asked.phase == "try policies":
                        seen = replace(seen, rewards=np.full(seen.n_steps, float(len(plans) == paid)))
                        plans.append(asked.policy)
                    asked = campaign.send(seen)
            except StopIteration as end:
                found = end.value
        assert len(plans) == 9  # 1/3, 1/6 and so on, above 1/1000.
        assert found.policy is plans[paid]
        assert found["choice of w_min"].facts["w_min"] == pytest.approx(1 / 3 / 2**paid)


def test_least_weights_to_try_need_sessions_and_two_types():
    environment = lmab.Simulator(lmab.random_bandit(3, 5, rng=1), horizon=5, rng=1)
    with pytest.raises(ValueError, match=r"n_sessions must leave at least 9 sessions to try policies.* leaves 8"):
        lmab.learn(environment, learning.EDMoments(3, w_min="tried"), n_sessions=80, rng=2)
    with pytest.raises(ValueError, match=r"w_min must be .* 'tried' or None, got 'all'"):
        learning.EDMoments(3, w_min="all")
    one = lmab.learn(environment, learning.EDMoments(1, w_min="tried"), n_sessions=400, rng=2)
    assert [phase.name for phase in one.diagnostics] == ["explore", "subspace", "design", "core plays", "fit", "plan"]


def test_events_are_for_indicators():
    with pytest.raises(ValueError, match="events must be 'pairs' for the full likelihood"):
        learning.EDMLE(2, likelihood="full", events="events")


def test_l_ucrl_starts_from_tensors():
    """The paper's start: third moments, so three steps at least."""
    learner = learning.LUCRL(2, method=lmab.estimation.TensorDecomposition())
    environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=1), horizon=4, rng=1)
    learned = lmab.learn(environment, learner, n_sessions=1500, rng=2)
    other = lmab.learn(environment, learning.LUCRL(2), n_sessions=1500, rng=2)
    assert learned["start"].facts["message"] != other["start"].facts["message"]
    with pytest.raises(ValueError, match="horizon must be at least 3 for third moments, got 2"):
        lmab.learn(lmab.Simulator(lmab.random_bandit(2, 5, rng=1), horizon=2, rng=1), learner, n_sessions=99, rng=2)


def test_without_a_number_of_types_it_is_chosen():
    """DirectMLE() is DirectMLE("auto"): the same sessions, the same choice, the same model."""
    both = [lmab.DirectMLE(number, thompson_rounds=1, method=learners.LIGHT) for number in (None, "auto")]
    found = [lmab.learn(Recorder(), one, n_sessions=400, rng=generator(2)) for one in both]
    assert [one["thompson"].n_sessions for one in found] == [200, 200]
    assert found[0].bandit == found[1].bandit
    with pytest.raises(InvalidArgument, match="n_types must be an integer of at least 1 or 'auto' or None, got 'all'"):
        lmab.DirectMLE("all")


def test_direct_mle_learns_with_traits(rng, tmp_path):
    environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
    learner = lmab.DirectMLE(method=lmab.Traits(n_factors=2, n_points=25), thompson_rounds=1)
    learned = lmab.learn(environment, learner, n_sessions=400, rng=rng)
    assert learned.estimate.factors is not None
    assert learned.bandit.n_types == 25
    run = learning.Run(learner, n_arms=5, horizon=4, n_sessions=10, rng=3)
    run.save(tmp_path / "run.lmab")
    assert lmab.load(tmp_path / "run.lmab").learner == learner
    with pytest.raises(InvalidArgument, match="n_types must be None, got 2"):
        lmab.DirectMLE(2, method=lmab.Traits())


@pytest.mark.parametrize("name", [name for name in learning.__all__ if isinstance(getattr(learning, name), type)])
def test_every_public_name_has_an_example_that_runs(name):
    found = doctest.DocTestFinder(recurse=True).find(getattr(learning, name), name, globs={})
    examples = [test for test in found if test.examples]
    assert examples or name == "Phase"  # A part of `Learned`, which shows it.
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples:
        test.globs.update(vars(learning))
        runner.run(test)
    assert runner.failures == 0


# L-UCRL as published


def published(n_sessions=60, **options):
    """A run told session by session: the model that played each session, the session, and the run at its end."""
    run, live = new_run(learning.LUCRL(2, refit=False, start=0.5, **options), n_sessions=n_sessions), Recorder()
    run.tell(run.ask().on(live))
    played = []
    while not run.finished:
        plan = run.ask()
        assert plan.n_sessions == n_sessions // 2 - len(played)
        run.tell(plan.on(live))  # A live system plays one session and asks again.
        played.append((plan.policy.bandit, live.rounds[-1]))
    return played, run


def test_as_published_a_posterior_is_taken_once_under_the_model_that_played_the_session():
    """Weights after k sessions are sums of posteriors over k: what the next one adds is that session's posterior."""
    played, run = published()
    assert len(played) == 30
    models = [model for model, _ in played] + [run.learned.bandit]
    for k, (model, session) in enumerate(played):
        added = (31 + k) * models[k + 1].weights - (30 + k) * model.weights
        chances = model.weights.copy()
        for arm, reward in zip(session.arms, session.rewards, strict=True):
            chances = chances * np.where(reward == 1, model.means[:, arm], 1 - model.means[:, arm])
        np.testing.assert_allclose(added, chances / chances.sum(), atol=1e-9)


@pytest.mark.parametrize("implementation", ["compiled", "reference"])
@pytest.mark.parametrize("chance", [0.0, 0.02], ids=["two values", "a rare third value"])
def test_a_simulator_plays_as_a_live_system_would(implementation, chance, monkeypatch):
    """Told one by one what the simulator played at once, a run asks for the same arms and learns the same model."""
    from reference import em as reference

    from lmab._kernel.compiled import em as compiled

    monkeypatch.setattr(
        lmab.paper.l_ucrl, "kernel", lambda name: {"compiled": compiled, "reference": reference}[implementation]
    )
    bandit = BANDIT if chance == 0 else rare(chance)
    learner, live = learning.LUCRL(2, refit=False, start=0.2), lmab.Simulator(bandit, horizon=HORIZON, rng=generator(8))
    at_once, one_by_one = (new_run(learner, n_sessions=100, rng=0) for _ in range(2))
    explored = at_once.ask().on(live)
    if chance:  # The rare value comes while optimism plays.
        explored = replace(explored, rewards=np.where(explored.rewards == 1.0, 0.5, explored.rewards))
    at_once.tell(explored)
    one_by_one.tell(explored)
    played = at_once.ask().on(live)
    assert len(played) == 80
    assert live.sessions_used == 100
    at_once.tell(played)
    values = set()
    for session in range(80):
        policy, own = one_by_one.ask().policy, played[session : session + 1]
        history = list(zip(own.arms.tolist(), own.rewards.tolist(), strict=True))
        assert [policy.act_on(history[:step]) for step in range(HORIZON)] == own.arms.tolist()
        one_by_one.tell(own)
        values |= set(own.rewards.tolist())
    assert one_by_one.finished
    assert at_once.finished
    assert (1.0 in values and 0.5 in values) or chance == 0
    assert at_once.learned["optimistic"].n_rounds == 1
    assert one_by_one.learned["optimistic"].n_rounds == 80
    first, second = at_once.learned.bandit, one_by_one.learned.bandit
    np.testing.assert_allclose(first.weights, second.weights, rtol=1e-9)
    np.testing.assert_allclose(first.rewards.probabilities, second.rewards.probabilities, rtol=1e-9)


@pytest.mark.parametrize("kept", ["lmab._kernel.compiled", "reference"])
def test_arms_that_were_hardly_played_get_the_same_bonus_in_a_simulator(kept, monkeypatch):
    """With fewer than two plays of an arm, the least count in the bonus decides."""
    from importlib import import_module

    from lmab.paper.l_ucrl import OptimisticRule, SoftCounts

    monkeypatch.setattr(lmab.paper.l_ucrl, "kernel", lambda name: import_module(f"{kept}.{name}"))
    rng, task = generator(3), Task(4, HORIZON, 40)
    for _ in range(60):
        paid = rng.uniform(0, 1.2, (2, 4, 2)) * rng.integers(0, 2, (2, 4, 1))
        counts = SoftCounts(BANDIT, rng.uniform(0.5, 2, 2), paid.sum(axis=2), paid)
        rule = OptimisticRule(learning.LUCRL(2, refit=False, bonus=0.2), task, counts)
        played = rule.play(BANDIT, 1, HORIZON, rng)
        history = list(zip(played.arms.tolist(), played.rewards.tolist(), strict=True))
        assert [rule.policy().act_on(history[:step]) for step in range(HORIZON)] == played.arms.tolist()


def test_optimism_is_simulated_on_normal_rewards_and_where_people_leave():
    normal = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 4.0], [4.0, 0.0]])
    leaving = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.2, 0.9], [0.9, 0.2]], leaving=np.full((2, 2, 2), 0.5))
    for bandit, rewards in ((normal, "gaussian"), (leaving, None)):
        live = lmab.Simulator(bandit, horizon=3, rng=generator(1))
        learner = learning.LUCRL(2, refit=False)
        learned = lmab.learn(live, learner, n_sessions=60, rng=2, rewards=rewards, planner=lmab.QMDP())
        assert learned["optimistic"].n_sessions == 42
        assert live.sessions_used == 60


def test_soft_counts_are_sums_over_steps(rng):
    from lmab.paper.l_ucrl import SoftCounts

    log = lmab.simulate(BANDIT, lmab.Uniform(4), n_sessions=20, horizon=HORIZON, rng=rng)
    counts = SoftCounts.of(BANDIT, log)
    plays, paid = np.zeros((2, 4)), np.zeros((2, 4, 2))
    for session in range(20):
        arms, rewards = log.arms[4 * session : 4 * session + 4], log.rewards[4 * session : 4 * session + 4]
        likelihood = np.prod([np.where(r == 1, BANDIT.means[:, a], 1 - BANDIT.means[:, a])
                              for a, r in zip(arms, rewards, strict=True)], axis=0)  # fmt: skip
        share = BANDIT.weights * likelihood / (BANDIT.weights @ likelihood)
        for arm, reward in zip(arms, rewards, strict=True):
            plays[:, arm] += share
            paid[:, arm, int(reward)] += share
    np.testing.assert_allclose(counts.plays, plays)
    np.testing.assert_allclose(counts.paid, paid)
    means = (paid[:, :, 1] + 0.5 * 3) / (plays + 3)  # three pseudo-plays, half of them paid
    np.testing.assert_allclose(counts.bandit(3.0).means, means)
    np.testing.assert_allclose(counts.bandit(3.0).weights, counts.sessions / 20)


def test_soft_counts_of_normal_rewards_are_sums(rng):
    from lmab.paper.l_ucrl import SoftCounts

    bandit = lmab.LatentBandit.gaussian([0.3, 0.7], [[0.0, 4.0], [4.0, 0.0]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=400, horizon=5, rng=rng)
    counts = SoftCounts.of(bandit, log)
    assert counts.plays.sum() == pytest.approx(2000)
    assert counts.paid.sum() == pytest.approx(log.rewards.sum())
    assert np.abs(counts.bandit(1.0).means - bandit.means).max() < 0.3


def test_passes_after_the_last_session_raise_the_likelihood():
    likelihoods = []
    for sweeps in (0, 1, 20):
        _, run = published(200, sweeps=sweeps)
        model = run.learned.bandit
        likelihoods.append(np.logaddexp.reduce(lmab.model.belief.log_joint(model, run.sessions), axis=1).sum())
    assert likelihoods[0] < likelihoods[1] < likelihoods[2]
    with pytest.raises(InvalidArgument, match="sweeps must be"):
        learning.LUCRL(2, sweeps=0)  # Refitted rounds without a pass would never be fitted.


def test_a_run_of_many_rounds_is_saved_as_one_log(tmp_path):
    run, live = new_run(learning.LUCRL(2, refit=False), n_sessions=40), Recorder()
    for _ in range(6):
        run.tell(run.ask().on(live))
    run.save(tmp_path / "run.lmab")
    again = lmab.load(tmp_path / "run.lmab")
    assert again.sessions_used == run.sessions_used == 17
    assert np.array_equal(again.sessions.rewards, run.sessions.rewards)
    assert np.array_equal(again.ask().policy.bonus, run.ask().policy.bonus)


# values that come late


def rare(chance):
    """Two types, four arms; the value 1 is paid rarely, so that exploration may miss it."""
    p = np.random.default_rng(3).dirichlet(np.ones(2), size=(2, 4))
    return lmab.LatentBandit.categorical(
        [0.5, 0.5], np.concatenate([p * (1 - chance), np.full((2, 4, 1), chance)], axis=2), [0.0, 0.5, 1.0]
    )


class Late(Recorder):
    """An environment that pays a new value from its second round on."""

    def _told(self, sessions):
        if len(self.rounds) == 0:
            sessions = replace(sessions, rewards=np.where(sessions.rewards == 1.0, 0.5, sessions.rewards))
        else:
            sessions = replace(sessions, rewards=np.where(np.arange(sessions.n_steps) == 0, 1.0, sessions.rewards))
        self.rounds.append(sessions)
        return sessions

    def __init__(self):
        super().__init__()
        self._simulator = lmab.Simulator(rare(0.002), horizon=HORIZON, rng=generator(4))

    def play(self, arms):
        return self._told(self._simulator.play(arms))

    def run(self, policy, n_sessions):
        return self._told(self._simulator.run(policy, n_sessions))


LATE = {
    "DirectMLE": lmab.DirectMLE(2),
    "EDMLE": learning.EDMLE(2),
    "EDMLE full": learning.EDMLE(2, likelihood="full"),
    "EDMoments": learning.EDMoments(2, restarts=2),
    "EDMoments events": learning.EDMoments(2, restarts=2, events="events"),
    "EDMoments tried": learning.EDMoments(2, restarts=2, w_min="tried"),
    "LUCRL": learning.LUCRL(2),
    "LUCRL published": learning.LUCRL(2, refit=False),
}


@pytest.mark.parametrize("declared", [None, [0, 0.5, 1], [0, 0.5]], ids=["undeclared", "declared", "half declared"])
@pytest.mark.parametrize("name", LATE)
def test_a_value_that_comes_after_exploration_loses_no_session(name, declared):
    environment = Late()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # 200 sessions match no moments
        learned = lmab.learn(
            environment, LATE[name], n_sessions=200, rng=generator(5), planner=lmab.QMDP(), values=declared
        )
    assert learned.sessions_used == 200
    assert 1.0 in np.concatenate([sessions.rewards for sessions in environment.rounds[1:]])
    assert 1.0 in learned.bandit.rewards.values


@pytest.mark.parametrize("epsilon", [0.5, 0.2])
def test_the_grid_of_the_appendix_works_end_to_end(epsilon):
    """Appendix B.2 has far more values than a log shows, so that core plays nearly always pay new ones."""
    rng = generator(0)
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)), 1.0)
    learner = learning.EDMoments(2, bins=None, epsilon=epsilon, restarts=1)
    environment = lmab.Simulator(bandit, horizon=2, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # a thousand sessions match no moments of so fine a grid
        learned = lmab.learn(environment, learner, n_sessions=1000, rng=rng, planner=lmab.QMDP(), rewards="gaussian")
    assert learned.sessions_used == 1000
    assert learned.policy.act_on([(0, 17.3)]) in range(4)


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_a_rare_type_has_its_weight(seed):
    """The truth has .1 and .9. A rule that prefers large weights within the noise gives .09, .50 and .25 here."""
    rng = np.random.default_rng([seed, 77])
    bandit = lmab.LatentBandit.bernoulli([0.1, 0.9], lmab.random_bandit(2, 8, rng=rng).means)
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    learned = lmab.learn(environment, learning.EDMoments(2), n_sessions=100_000, rng=rng, planner=lmab.QMDP())
    assert learned["fit"].facts["status"] == "converged"
    assert learned.bandit.weights.min() == pytest.approx(0.1, abs=0.06)
    assert bandit.distance(learned.bandit) < 0.1


class Failing(Recorder):
    """An environment that fails in its second round."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def play(self, arms):
        raise self.error("gone")

    run_before = Recorder.run

    def run(self, policy, n_sessions):
        if self.rounds:
            raise self.error("gone")
        return self.run_before(policy, n_sessions)


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt])
def test_an_error_keeps_the_sessions_that_were_played(error):
    environment = Failing(error)
    with pytest.raises(error, match="gone") as caught:
        learn(learning.EDMLE(2), environment)
    assert caught.value.run.sessions_used == environment.sessions_used == 960
    np.testing.assert_array_equal(caught.value.run.sessions.rewards, environment.rounds[0].rewards)
    assert "The 960 sessions that were told are kept" in caught.value.__notes__[0]


def test_an_error_before_the_first_session_is_left_as_it_is():
    with pytest.raises(InvalidArgument, match="horizon must be at least 3") as caught:
        lmab.learn(lmab.Simulator(BANDIT, horizon=2, rng=0), learning.Tensor(2), n_sessions=100, rng=0)
    assert not hasattr(caught.value, "run")


@pytest.mark.parametrize("learner", [learning.EDMLE(2), learning.EDMoments(2), learning.Tensor(2)])
def test_moments_of_binned_rewards_are_refused_before_anything_is_played(learner):
    environment = Recorder()
    with pytest.raises(
        InvalidArgument, match=r"rewards must not be 'binned' for (EDMLE|EDMoments|Tensor): use DirectMLE"
    ):
        lmab.learn(environment, learner, n_sessions=100, rng=0, rewards="binned")
    assert environment.rounds == []


def test_what_a_task_says_of_rewards_is_checked_before_anything_is_played():
    with pytest.raises(InvalidArgument, match="rewards must be 'categorical'"):
        Task(4, 3, 100, rewards="normal")
    with pytest.raises(InvalidArgument, match="values must be None for gaussian rewards, got 2 values"):
        Task(4, 3, 100, rewards="gaussian", values=[0, 1])
    with pytest.raises(
        InvalidArgument, match="rewards must be categorical: HistoryUCBVI counts histories, got 'counts'"
    ):
        lmab.learn(Recorder(), learning.HistoryUCBVI(), n_sessions=100, rng=0, rewards="counts")


AMOUNTS = lmab.LatentBandit.categorical([0.5, 0.5], generator(3).dirichlet(np.ones(3), size=(2, 4)), [0, 0.5, 11.5])
OTHER_REWARDS = {
    "binned": (lmab.DirectMLE(2, thompson_rounds=0), AMOUNTS, "binned"),
    "ties": (learning.EDMoments(2, restarts=1), AMOUNTS, "gaussian"),  # Half of the rewards are equal.
    "counts": (
        learning.EDMoments(2, restarts=1),
        lmab.LatentBandit.counts([0.5, 0.5], generator(3).uniform(0.2, 3, (2, 4))),
        "counts",
    ),
}


@pytest.mark.parametrize("name", OTHER_REWARDS)
def test_other_rewards_lose_no_session(name):
    """Each of these ended in an error when all sessions were played."""
    learner, bandit, rewards = OTHER_REWARDS[name]
    environment = lmab.Simulator(bandit, horizon=2, rng=generator(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # 200 sessions match no moments.
        learned = lmab.learn(environment, learner, n_sessions=200, rng=0, planner=lmab.QMDP(), rewards=rewards)
    assert learned.sessions_used == 200


def test_histories_take_unknown_rewards_for_the_nearest_value():
    environment = lmab.Simulator(rare(0.02), horizon=2, rng=generator(4))
    with pytest.warns(LmabWarning, match=r"\d+ rewards are none of the values \[0.0, 0.5\] and count as the nearest"):
        learned = lmab.learn(environment, learning.HistoryUCBVI(), n_sessions=300, rng=0, values=[0, 0.5])
    assert learned.sessions_used == 300
    with pytest.raises(InvalidArgument, match="must be among the values"):
        learned.policy.act_on([(0, 1.0)])  # What is played later is for the user to say.


def test_no_more_sessions_are_taken_than_are_left():
    run, live = new_run(), Recorder()
    run.tell(live.run(run.ask().policy, 30))
    with pytest.raises(InvalidArgument, match="sessions must be at most the 70 asked for, got 71"):
        run.tell(live.run(run.ask().policy, 71))
    assert run.sessions_used == 30
    run.tell(live.run(run.ask().policy, 70))
    assert run.finished


def known_space(bandit):
    """The span of the types' rewards, as `subspace` would find it without noise."""
    table = bandit.rewards.table
    basis, singular, _ = np.linalg.svd(table, full_matrices=False)
    rank = int((singular > 1e-9 * singular[0]).sum())
    return lmab.moments.Subspace(basis[:, :rank], singular**2, bandit.n_arms, bandit.rewards.values)


def test_a_given_subspace_needs_no_uniform_play(tmp_path):
    learner = learning.EDMLE(2, space=known_space(BANDIT))
    environment = Recorder()
    learned = lmab.learn(environment, learner, n_sessions=1000, rng=0, planner=lmab.QMDP())
    assert [phase.name for phase in learned.diagnostics if phase.n_rounds] == ["core plays"]
    assert learned["core plays"].n_sessions == 1000
    assert set(environment.rounds[0].arms.tolist()) == {arm for arm, _ in learned["design"].facts["core_set"]}
    run = learning.Run(learner, n_arms=4, horizon=HORIZON, n_sessions=1000, rng=0)
    run.save(tmp_path / "run.lmab")
    again = lmab.load(tmp_path / "run.lmab")
    assert np.array_equal(again.ask().arms, run.ask().arms)
    with pytest.raises(InvalidArgument, match="space must have 5 arms, got 4"):
        new_run(learner, n_arms=5)
    with pytest.raises(InvalidArgument, match="explore must be None where the subspace is given, got 10"):
        replace(learner, explore=10)


def test_sessions_of_step_1_can_be_counted_apart():
    learned = lmab.learn(Recorder(), learning.EDMLE(2, explore=500), n_sessions=600, rng=0, planner=lmab.QMDP())
    assert (learned["explore"].n_sessions, learned["core plays"].n_sessions) == (500, 100)
    with pytest.raises(InvalidArgument, match="n_sessions must be more than explore = 500, got 500"):
        new_run(learning.EDMLE(2, explore=500), n_sessions=500)


def test_the_number_of_types_is_chosen_once_while_exploring_and_again_at_the_end(monkeypatch):
    asked, plain = [], learning.DirectMLE._fit

    def spied(self, task, sessions, number, *rest):
        asked.append(number)
        return plain(self, task, sessions, number, *rest)

    monkeypatch.setattr(learning.DirectMLE, "_fit", spied)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.8], [0.1, 0.9, 0.2]])
    for n_types, wanted in (("auto", ["auto", 2, "auto"]), (2, [2, 2, 2])):
        asked.clear()
        learner = learning.DirectMLE(n_types, thompson_rounds=2)
        lmab.learn(lmab.Simulator(bandit, horizon=4, rng=generator(3)), learner, n_sessions=600, rng=generator(4))
        assert asked == wanted


# a planner of the user in a saved run


class OneArm:
    """No dataclass, and no subclass of `Planner`."""

    def __init__(self, arm=0):
        self.arm = arm

    def solve(self, problem, clock):
        others = [arm for arm in range(problem.bandit.n_arms) if arm != self.arm]
        policy = lmab.policies.Ranking([self.arm, *others], horizon=problem.horizon)
        lower = problem.horizon * float(problem.bandit.weights @ problem.bandit.means[:, self.arm])
        return lmab.Plan(policy, problem.horizon, lower, problem.bandit.known_type(problem.horizon), "heuristic", "one")

    solve_without_repeats = solve


@dataclass(frozen=True)
class OneArmAsData:
    """A dataclass that does not inherit from `Planner`."""

    arm: int = 0

    def solve(self, problem, clock):
        return OneArm(self.arm).solve(problem, clock)

    solve_without_repeats = solve


@pytest.mark.parametrize("planner", [OneArm(2), OneArmAsData(2)], ids=["class", "dataclass"])
def test_a_planner_of_the_user_survives_a_saved_run(planner, tmp_path):
    live = lmab.Simulator(BANDIT, horizon=HORIZON, rng=1)
    run = new_run(planner=planner)
    run.tell(live.run(run.ask().policy, 40))
    run.save(tmp_path / "run.lmab")
    loaded = lmab.load(tmp_path / "run.lmab")
    assert type(loaded.task.planner) is type(planner)
    assert loaded.task.planner.arm == 2
    while not loaded.finished:
        loaded.tell(loaded.ask().on(live))
    assert loaded.learned.plan.message == "one"


def test_a_planner_whose_class_is_not_there_is_named(tmp_path, monkeypatch):
    new_run(planner=OneArm(1)).save(tmp_path / "run.lmab")
    with monkeypatch.context() as patch:
        patch.delattr("test_learning.OneArm" if __name__ == "test_learning" else f"{__name__}.OneArm")
        with pytest.raises(InvalidFile, match=r"planner .*OneArm: import the module that defines this class first"):
            lmab.load(tmp_path / "run.lmab")
        patch.setattr(f"{__name__}.OneArm", print, raising=False)  # no planner
        with pytest.raises(InvalidFile, match="import the module that defines this class first"):
            lmab.load(tmp_path / "run.lmab")
    stateful = OneArm()
    stateful.arm = object()
    with pytest.raises(InvalidArgument, match="planner must have attributes that are numbers, texts"):
        new_run(planner=stateful).save(tmp_path / "other.lmab")


@pytest.mark.parametrize("learner", [learning.EDMoments(2), learning.EDMLE(2), lmab.DirectMLE(2), learning.Tensor(2)])
def test_normal_rewards_that_are_not_named_fail_before_anything_is_played(learner):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0, 2.0], [1.0, 0.0, 2.0]])
    live = lmab.Simulator(bandit, horizon=3, rng=0)
    assert live.rewards == "gaussian"
    with pytest.raises(InvalidArgument, match=r"rewards must be named for .*: the environment has normal rewards"):
        lmab.learn(live, learner, n_sessions=25_000, rng=0)
    assert live.sessions_used == 0
