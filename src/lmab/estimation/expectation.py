"""The pass of the expectation step over the parts of a log, for every reward family."""

from __future__ import annotations

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer
from .passes import Passes
from .steps import Steps


def expectation(
    family: str, steps: Steps, models: Float[Array, "R K P"], n_sums: int, passes: Passes
) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
    """Expected statistics, `n_sums` rows of them, and log-likelihood under every model, by the kernel of the family."""
    parts = steps.parts(8 * n_sums * models.shape[2])
    n_models, n_parts = len(models), len(parts)
    arguments = (steps, parts, np.ascontiguousarray(models), family, n_sums)
    work = steps.n_steps * n_models
    statistics, logs = passes.ordered(_tasks, n_parts * n_models, *arguments, work=work)
    if n_parts == 1:
        return statistics, logs
    statistics = statistics.reshape(n_parts, n_models, *statistics.shape[1:])
    return statistics.sum(axis=0), np.ascontiguousarray(logs.reshape(n_parts, n_models).T).sum(axis=1)


def _tasks(
    steps: Steps,
    parts: Integer[Array, "B 2"],
    models: Float[Array, "R K P"],
    family: str,
    n_sums: int,
    first: int,
    last: int,
) -> tuple[Float[Array, "n Q P"], Float[Array, "n"]]:
    """Statistics and log-likelihood of tasks first to last - 1; task b * R + r is part b under model r.

    So a range of tasks asks for each of its parts once, for all models.
    """
    n_models, sum_up = len(models), getattr(kernel("em"), family)
    statistics, logs = np.empty((last - first, n_sums, models.shape[2])), np.empty(last - first)
    asked = range(first // n_models, -(-last // n_models))
    room = np.empty(1 + int(np.diff(parts[asked.start : asked.stop], axis=1).max()) if steps.travels else 0, np.int64)
    for part in asked:
        low, high = parts[part].tolist()
        window = steps.window(low, high, room)
        edges = np.array([window.low, window.high])
        start = max(part * n_models, first)
        end = min((part + 1) * n_models, last)
        one, other = start % n_models, end - part * n_models
        own = slice(start - first, end - first)
        sum_up(*window[:3], edges, models, statistics[own], logs[own], one, other)
    return statistics, logs
