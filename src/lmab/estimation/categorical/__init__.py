"""Rewards on finitely many values: one code per step."""

from .models import LEAST as LEAST
from .observations import CategoricalObservations as CategoricalObservations
