"""Session of a visitor: the service chooses the arms, and after any failure the product's usual arm is played."""

import sys
import time

from lmab.client import Client


def play(client: Client, session: str, horizon: int) -> float:
    """Play one session with a visitor who likes every second arm; return the sum of the rewards."""
    reward, total = None, 0.0
    for step in range(horizon):
        choice = client.decide(session, step, default="tea", reward=reward)
        reward = float(hash((session, choice.arm)) % 2)  # here the product shows `choice.arm`
        total += reward
    client.reward(session, horizon - 1, reward or 0.0)
    return total


if __name__ == "__main__":
    address, horizon = sys.argv[1], int(sys.argv[2])
    with Client(address) as client:
        print(sum(play(client, f"visitor-{time.time_ns()}-{n}", horizon) for n in range(20)) / 20)
        print(dict(client.counts))
