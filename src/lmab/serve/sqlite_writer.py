"""Writer: writes the jobs of one commit into SQLite, in few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from .stores import Decision, Job, RewardRow

MOST = 128  # rows of one statement
_KNOWN = 50_000  # sessions whose numbers are remembered


class Writer:
    """Jobs in, rows out; remembers the numbers of sessions, for as long as nobody else writes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._numbers: dict[str, int] = {}
        self._data_version = -1

    def forget(self) -> None:
        """Ask the file for the numbers of sessions again: some were erased, or what was written was rolled back."""
        self._numbers.clear()

    def write(self, jobs: Sequence[Job]) -> None:
        """All jobs; rows that are there already stay, and each job is told what the store has."""
        numbers = self._find_numbers(jobs)
        rewards = [(numbers[row[0]], *row[1:]) for job in jobs for row in job.rewards]
        if self._insert("step_rewards", rewards) != len(rewards):
            for job in jobs:
                job.conflict = self._conflict(job.rewards)
            # A job whose reward contradicts the store writes nothing, so its other rewards must go again.
            for job in jobs:
                if job.conflict is not None:
                    self._take_back(job)
        kept = [job for job in jobs if job.decision is not None and job.conflict is None]
        decisions = [(numbers[row[0]], *row[1:10]) for row in (job.decision for job in kept) if row is not None]
        all_new = self._insert("steps", decisions) == len(decisions)
        for job in kept:
            assert job.decision is not None
            job.stored = job.decision if all_new else self._stored(job.decision)

    def _find_numbers(self, jobs: Sequence[Job]) -> dict[str, int]:
        """The numbers of the jobs' sessions, among others; new sessions get one."""
        (version,) = self.db.execute("PRAGMA data_version").fetchone()
        if version != self._data_version or len(self._numbers) > _KNOWN:  # it changes when another process has written
            self._data_version = version
            self.forget()
        numbers, persons = self._numbers, dict[str, str | None]()
        for job in jobs:
            for reward in job.rewards:
                if reward[0] not in numbers:
                    persons.setdefault(reward[0])
            row = job.decision
            if row is not None and row[0] not in numbers and persons.get(row[0]) is None:
                persons[row[0]] = row.person
        self._insert("sessions(session, person)", list(persons.items()))
        names = list(persons)
        for start in range(0, len(names), MOST):
            part = names[start : start + MOST]
            marks = ",".join("?" * len(part))
            numbers.update(self.db.execute(f"SELECT session, number FROM sessions WHERE session IN ({marks})", part))
        return numbers

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows whose keys are new, and count them.

        Many rows go into one statement, because the driver lets other threads run at every statement, and a writer
        that has to wait its turn for every row is slow.
        """
        inserted = 0
        for start in range(0, len(rows), MOST):
            part = rows[start : start + MOST]
            statement = _statement(table, len(part), len(part[0]))
            inserted += self.db.execute(statement, list(chain.from_iterable(part))).rowcount
        return inserted

    def _conflict(self, rows: Sequence[RewardRow]) -> RewardRow | None:
        """A reward in the store that contradicts one of the rows."""
        for row in rows:
            key = self._numbers[row.session], row.step
            query = "SELECT step, reward, at, defaulted FROM step_rewards WHERE number=? AND step=?"
            found = self.db.execute(query, key).fetchone()
            if found is not None and found[1] != row.reward:
                return RewardRow(row.session, *found)
        return None

    def _take_back(self, job: Job) -> None:
        for row in job.rewards:  # only rows that this transaction wrote have this very time
            key = self._numbers[row.session], *row[1:4]
            self.db.execute("DELETE FROM step_rewards WHERE number=? AND step=? AND reward=? AND at=?", key)

    def _stored(self, row: Decision) -> Decision:
        query = "SELECT * FROM decisions WHERE session=? AND step=?"
        return Decision(*self.db.execute(query, row[:2]).fetchone())


@cache
def _statement(table: str, n_rows: int, n_columns: int) -> str:
    marks = ",".join(["(" + ",".join("?" * n_columns) + ")"] * n_rows)
    return f"INSERT INTO {table} VALUES {marks} ON CONFLICT DO NOTHING"
