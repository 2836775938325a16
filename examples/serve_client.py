"""A client of `lmab serve` without any dependency: sessions that survive timeouts, restarts and lost answers."""

import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any


class Client:
    """Asks for arms and tells rewards; a request that got no answer is simply sent again."""

    def __init__(self, address: str, token: str = "", timeout: float = 1.0, tries: int = 8) -> None:
        self.address, self.timeout, self.tries = address.rstrip("/"), timeout, tries
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer; the service answers a repeated request as it did the first time."""
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), self.headers)
        for attempt in range(self.tries):
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return dict(json.load(answer))
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503):  # the request itself is wrong: trying again is no use
                    raise ValueError(json.load(error)["error"]) from None
            except OSError:
                pass
            time.sleep(0.05 * 2**attempt)
        raise TimeoutError(f"no answer from {self.address} after {self.tries} tries")

    def decide(self, session: str, step: int, reward: float | None = None, **more: Any) -> dict[str, Any]:
        """The arm for this step, after the reward of the step before."""
        return self.post("/v1/decide", {"session": session, "step": step, "reward": reward, **more})

    def reward(self, session: str, step: int, reward: float) -> None:
        """A reward that came late, or that of the last step."""
        self.post("/v1/rewards", {"rewards": [{"session": session, "step": step, "reward": reward}]})


def play(client: Client, session: str, horizon: int) -> float:
    """One session with a visitor who likes every second thing."""
    reward, total = None, 0.0
    for step in range(horizon):
        try:
            arm = client.decide(session, step, reward)["label"]
        except TimeoutError:
            return total  # the visitor must not wait: play your usual choice from here on, without the service
        reward = float(hash((session, arm)) % 2)
        total += reward
    client.reward(session, horizon - 1, reward or 0.0)
    return total


if __name__ == "__main__":
    address, horizon = sys.argv[1], int(sys.argv[2])
    print(sum(play(Client(address), f"visitor-{time.time_ns()}-{n}", horizon) for n in range(20)) / 20)
