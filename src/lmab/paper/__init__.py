"""The paper: its learners, method of moments, theory, experiments and commands; nothing else depends on it."""
