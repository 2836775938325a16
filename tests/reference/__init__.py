"""Reference implementations of the compiled kernels in plain NumPy."""
