"""Draws: uniform numbers keyed by session and step, which a retry, a restart or another replica draws again."""

from __future__ import annotations

import hmac


class Draws:
    """HMAC-SHA-256 with a secret that is hashed once, because every decision draws.

    Examples:
        >>> import hashlib, hmac
        >>> draws = Draws(b"secret")
        >>> draws.digest(b"text") == hmac.digest(b"secret", b"text", "sha256")
        True
        >>> first, second = draws("session", 0)
        >>> 0 <= first < 1 and 0 <= second < 1
        True
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._keyed = hmac.new(secret, digestmod="sha256")

    def digest(self, text: bytes) -> bytes:
        """The HMAC of a text."""
        mac = self._keyed.copy()
        mac.update(text)
        return mac.digest()

    def __call__(self, session: str, step: int) -> tuple[float, float]:
        """Two uniform numbers for a step of a session."""
        digest = self.digest(f"{session}\0{step}".encode())
        return int.from_bytes(digest[:7], "big") / 2**56, int.from_bytes(digest[8:15], "big") / 2**56
