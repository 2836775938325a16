"""Commits: how many may wait, who is answered when one goes away, and what is counted."""

from __future__ import annotations

import asyncio

import pytest
from serving import go

from lmab.serve import Problem
from lmab.serve.commits import Commits
from lmab.serve.stores import Job


class Gate:
    """A store that writes when it is let, and fails where it is told to."""

    def __init__(self, fails: bool = False) -> None:
        self.open, self.fails, self.written = asyncio.Event(), fails, 0

    async def write(self, jobs) -> None:
        await self.open.wait()
        if self.fails:
            raise OSError("the disk is gone")
        self.written += len(jobs)


async def waiting(commits: Commits, n: int) -> list[asyncio.Task]:
    """One commit under way, and `n` requests that wait for the next one."""
    tasks = [asyncio.create_task(commits.commit(Job()))]
    await asyncio.sleep(0.01)
    tasks += [asyncio.create_task(commits.commit(Job())) for _ in range(n)]
    await asyncio.sleep(0.01)
    return tasks


def test_as_many_wait_as_the_limit_says_and_not_one_more():
    async def scenario():
        store = Gate()
        commits = Commits(store, 2)
        tasks = await waiting(commits, 2)
        assert commits.depth == 2
        with pytest.raises(Problem, match="2 requests wait for the store: try again"):
            await commits.commit(Job())
        store.open.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert (commits.n_commits, commits.n_jobs, commits.n_failed, store.written) == (2, 3, 0, 3)

    go(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_a_client_that_goes_away_takes_no_other_answer_with_it(fails):
    async def scenario():
        store = Gate(fails)
        commits = Commits(store, 10)
        tasks = await waiting(commits, 2)
        tasks[1].cancel()
        store.open.set()
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert isinstance(answers[1], asyncio.CancelledError)
        for answer in (answers[0], answers[2]):
            assert not fails or str(answer) == "the store did not take this: OSError"
            assert (answer.code if fails else answer) == ("no-store" if fails else None)
        assert (commits.n_jobs, commits.n_failed) == ((0, 3) if fails else (3, 0))

    go(scenario())
