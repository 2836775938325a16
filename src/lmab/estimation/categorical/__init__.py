"""Rewards on finitely many values: one code per step."""

from .observations import CategoricalObservations as CategoricalObservations
