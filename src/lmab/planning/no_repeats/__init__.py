"""Parts of planning that differ if sessions play each arm at most once.

Problems, dynamic programming, lookaheads, simulated sessions, the information bound, search of the relaxed problem and
results are shared with sessions that repeat arms. Separate are values after a step (the best unplayed arms in turn, not
one arm throughout; `sequences`), backups and policies (plans carry the arms that they may use and conflict with played
ones; `backups`, `vector_policy`), greedy first steps (`point_based`), and upper bounds (`relaxation`, `branching`).
"""
