"""The kernels in Numba."""
