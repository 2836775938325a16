"""The kernels in plain NumPy, which specify what every compiled kernel must compute."""
