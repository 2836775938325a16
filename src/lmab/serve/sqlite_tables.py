"""The tables of SqliteStore, and how a file with the tables of earlier versions is taken over.

Sessions are numbered in the order of their first step, and steps are kept by that number. Sessions that are played at
the same time are then neighbours in the file, so that one commit writes few pages: keyed by the names of sessions, each
row had a page of its own, and a commit took twice the processor time.
"""

from __future__ import annotations

import sqlite3

_TABLES = (
    "CREATE TABLE IF NOT EXISTS sessions(number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, person TEXT)",
    "CREATE TABLE IF NOT EXISTS steps(number INTEGER NOT NULL, step INTEGER NOT NULL, arm INTEGER NOT NULL, "
    "propensity REAL, policy TEXT NOT NULL, at REAL NOT NULL, explored INTEGER NOT NULL, fallback INTEGER NOT NULL, "
    "wish INTEGER, allowed TEXT, PRIMARY KEY(number, step)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS step_rewards(number INTEGER NOT NULL, step INTEGER NOT NULL, reward REAL NOT NULL, "
    "at REAL NOT NULL, defaulted INTEGER NOT NULL, PRIMARY KEY(number, step)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS sessions_person ON sessions(person) WHERE person IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS steps_at ON steps(at)",
    "CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS arms(arm INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS policies(version TEXT PRIMARY KEY, at REAL NOT NULL, note TEXT NOT NULL, "
    "body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS register(number INTEGER PRIMARY KEY AUTOINCREMENT, active TEXT NOT NULL, canary TEXT, "
    "share REAL NOT NULL, at REAL NOT NULL, note TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS signals(name TEXT PRIMARY KEY, count INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO signals VALUES('changed', 0), ('erased', 0)",
)
_STEP = "step, arm, propensity, policy, at, explored, fallback, wish, allowed"
_REWARD = "step, reward, at, defaulted"
_MOVES = (  # from the tables `decisions` and `rewards`, which had the name of the session in every row
    "INSERT INTO sessions(session, person) SELECT session, max(person) FROM (SELECT session, person, at FROM decisions "
    "UNION ALL SELECT session, NULL, at FROM rewards) GROUP BY session ORDER BY min(at)",
    f"INSERT INTO steps SELECT number, {_STEP} FROM sessions CROSS JOIN decisions USING(session)",
    f"INSERT INTO step_rewards SELECT number, {_REWARD} FROM sessions CROSS JOIN rewards USING(session)",
    "DROP TABLE decisions",
    "DROP TABLE rewards",
)
_VIEWS = (  # what people read by their own SQL
    f"CREATE VIEW IF NOT EXISTS decisions AS SELECT session, {_STEP}, CASE step WHEN 0 THEN person END AS person "
    "FROM steps JOIN sessions USING(number)",
    f"CREATE VIEW IF NOT EXISTS rewards AS SELECT session, {_REWARD} FROM step_rewards JOIN sessions USING(number)",
)


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables that are missing, and move what earlier versions kept, all of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        old = db.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='decisions'").fetchone()
        for statement in (*_TABLES, *(_MOVES if old else ()), *_VIEWS):
            db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
