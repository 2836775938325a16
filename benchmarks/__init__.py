"""Benchmarks: our numbers beside the peers', from the same run."""
