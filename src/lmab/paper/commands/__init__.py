"""The commands `learn`, `budget` and `reproduce`."""
