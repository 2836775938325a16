"""Hypothesis strategies for the nouns."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import lmab


@st.composite
def bandits(draw, max_types: int = 3, max_arms: int = 3, max_values: int = 3, zeros: bool = True):
    """Small categorical bandits, with exact zeros now and then."""
    m, a = draw(st.integers(1, max_types)), draw(st.integers(1, max_arms))
    z = draw(st.integers(2, max_values))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    probabilities = rng.dirichlet(np.ones(z), size=(m, a))
    if zeros and draw(st.booleans()):
        probabilities[0, 0] = np.eye(z)[0]
    values = np.sort(rng.choice(np.arange(-4, 5) / 4, size=z, replace=False))
    return lmab.LatentBandit.categorical(rng.dirichlet(np.ones(m)), probabilities, values)


@st.composite
def logs(draw, max_sessions: int = 6, max_steps: int = 4, n_arms: int = 3):
    """Small ragged logs of 0/1 rewards."""
    n, h = draw(st.integers(1, max_sessions)), draw(st.integers(1, max_steps))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arms = rng.integers(n_arms, size=(n, h))
    arms[np.arange(h) >= rng.integers(1, h + 1, size=n)[:, None]] = -1
    return lmab.Sessions.from_arrays(arms, rng.integers(2, size=(n, h)).astype(float), n_arms=n_arms)
