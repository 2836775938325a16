"""Experiments: the studies of the paper as data, which are run, stored, resumed, analysed and drawn."""
