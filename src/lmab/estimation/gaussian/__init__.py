"""Normal rewards with one standard deviation, known or estimated."""

from .observations import GaussianObservations as GaussianObservations
