"""Reporting: a self-contained HTML report, and plots of models and policies."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .contents import Contents as Contents
    from .contents import gather as gather
    from .page import render as render
    from .page import report as report
    from .page import write as write
    from .plots import plot_bounds as plot_bounds
    from .plots import plot_calibration as plot_calibration
    from .plots import plot_curve as plot_curve
    from .plots import plot_means as plot_means
    from .plots import plot_worth as plot_worth
    from .tree import tree_svg as tree_svg

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".contents": "Contents gather",
        ".page": "render report write",
        ".plots": "plot_bounds plot_calibration plot_curve plot_means plot_worth",
        ".tree": "tree_svg",
    },
)
