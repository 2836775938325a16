"""Claims: what the paper says and what we say, each with a check against the rows."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import (
    Check,
    approaches_the_genie,
    at_least,
    ed_beats_tensor,
    fewer_episodes,
    greedy_does_not_probe,
    lucrl_is_near,
    parameters_need_the_horizon,
    rises_with_horizon,
    separation_gives_the_fast_rate,
    tensor_falls_behind,
    tensor_falls_with_contexts,
    tensor_is_close,
    values_do_not,
    who_scales,
)
from .methods import DIRECT_MLE, ED_MLE, L_UCRL


@dataclass(frozen=True)
class Claim:
    """A sentence about one study; `check` gives None while rows are missing."""

    study: str
    source: str  # "the paper" or "ours"
    text: str
    check: Check


PAPER, OURS = "the paper", "ours"

CLAIMS = (
    Claim(
        "fig2a",
        PAPER,
        "With M = 4, all methods but UCB earn more per step as sessions grow longer.",
        rises_with_horizon,
    ),
    Claim("fig2a", PAPER, "With M = 4 (full rank) even pure tensor decomposition works well.", tensor_is_close),
    Claim(
        "fig2a",
        OURS,
        "H = 5: DirectMLE at least .997 of the genie, ED+MLE at least .988 (certified planner).",
        at_least("fraction", {DIRECT_MLE: 0.997, ED_MLE: 0.988}, horizon=5),
    ),
    Claim(
        "fig2b",
        PAPER,
        "With M = 7 (rank 4) tensor decomposition falls well behind L-UCRL and ED+MLE.",
        tensor_falls_behind(horizon=7),
    ),
    Claim(
        "fig2b", OURS, "H = 7: ED+MLE minus tensor is more than .05 of the genie (certified planner).", ed_beats_tensor
    ),
    Claim(
        "fig2b",
        PAPER,
        "ED+MLE and L-UCRL do not drop much at M = 7: at least .95 of the genie at H = 7.",
        at_least("fraction_qmdp", {ED_MLE: 0.95, L_UCRL: 0.95}, horizon=7),
    ),
    Claim(
        "fig2b",
        OURS,
        "H = 7: DirectMLE at least .993 of the genie, ED+MLE at least .987 (certified planner).",
        at_least("fraction", {DIRECT_MLE: 0.993, ED_MLE: 0.987}, horizon=7),
    ),
    Claim("fig2b", OURS, "L-UCRL is within .03 of DirectMLE at N = 100,000, H = 7 (certified planner).", lucrl_is_near),
    Claim(
        "fig3a",
        PAPER,
        "Tensor decomposition gets worse as M grows at rank 4; ED+MLE does not.",
        tensor_falls_with_contexts,
    ),
    Claim("fig3b", PAPER, "ED+MLE and L-UCRL approach the genie as N grows.", approaches_the_genie),
    Claim(
        "fig3b",
        OURS,
        "N = 10,000: DirectMLE at least .98, ED+MLE at least .957 (certified planner).",
        at_least("fraction", {DIRECT_MLE: 0.98, ED_MLE: 0.957}, n_episodes=10_000),
    ),
    Claim(
        "fig3b",
        OURS,
        "N = 2,000: DirectMLE at least .945 (certified planner).",
        at_least("fraction", {DIRECT_MLE: 0.945}, n_episodes=2_000),
    ),
    Claim(
        "episodes",
        OURS,
        "For .97 of the genie DirectMLE needs at least 15 times fewer episodes than the literal recipe.",
        fewer_episodes,
    ),
    Claim(
        "identifiability",
        PAPER,
        "Parameters can be learned when H >= 2M - 1 and need not be identifiable below.",
        parameters_need_the_horizon,
    ),
    Claim(
        "identifiability",
        PAPER,
        "Below 2M - 1 a near-optimal policy can be learned all the same (theorem 3.6).",
        values_do_not,
    ),
    Claim(
        "separation",
        PAPER,
        "With separation gamma and H of order M^2 / gamma^2 the sample complexity is polynomial.",
        separation_gives_the_fast_rate,
    ),
    Claim(
        "planning",
        OURS,
        "Q-MDP never pays for information: it loses a quarter and more on hard instances; certified plans lose 1%.",
        greedy_does_not_probe,
    ),
    Claim(
        "arms",
        OURS,
        "At the most arms DirectMLE is ahead of all others, by more than two standard errors.",
        who_scales,
    ),
)
