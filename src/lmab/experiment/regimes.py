"""Figure 1 of the paper: which problem a horizon and a number of types make. Run as a module it writes the SVG."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import numpy as np

from ..theory import Regime, regime

_COLOURS = {
    Regime.BANDIT: "#999999",
    Regime.VALUES: "#E69F00",
    Regime.PARAMETERS: "#56B4E9",
    Regime.SEPARATED: "#0072B2",
    Regime.CLUSTERS: "#009E73",
}
_N_ARMS, _GAMMA = 200, 0.8


def draw_regimes() -> str:
    """The figure as SVG: the horizon from 1 to 1000, 1 to 16 types, 200 arms, separation 0.8."""
    import matplotlib
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    horizons, types, regimes = np.arange(1, 1001), np.arange(1, 17), list(_COLOURS)
    found = [[regimes.index(regime(m, h, n_arms=_N_ARMS, gamma=_GAMMA)) for h in range(1, 1001)] for m in range(1, 17)]
    settings: Any = {"svg.hashsalt": "regimes", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.add_subplot()
        edges = np.append(horizons, horizons[-1] + 1) - 0.5, np.append(types, types[-1] + 1) - 0.5
        axes.pcolormesh(*edges, found, cmap=ListedColormap([*_COLOURS.values()]), vmin=-0.5, vmax=4.5)
        axes.set(xscale="log", xlabel="horizon H", ylabel="types M", xlim=(0.7, 1000))
        axes.set_title(
            f"A = {_N_ARMS} arms, separation gamma = {_GAMMA}; constants and logarithms left out", fontsize=9
        )
        handles = [Patch(color=colour, label=one.value) for one, colour in _COLOURS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


if __name__ == "__main__":
    sys.stdout.write(draw_regimes())
