"""lmab: episodic latent bandits, from session logs to a provably near-optimal session policy."""

__version__ = "0.1.0"
