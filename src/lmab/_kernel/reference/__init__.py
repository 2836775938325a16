"""Plain NumPy: what every kernel must compute."""
