"""Reporting: a self-contained HTML report, and plots of models and policies."""

from typing import TYPE_CHECKING

from .._doors import door

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

__getattr__, __dir__, __all__ = door(__name__)
