"""Normal rewards with one standard deviation, known or estimated."""

from .fit_test import misfit as misfit
from .observations import GaussianObservations as GaussianObservations
