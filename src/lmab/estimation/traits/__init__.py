"""Traits: sessions that differ by degrees instead of by kinds."""
