"""Draws: uniform numbers keyed by session and step, which a retry, a restart or another replica draws again."""

from __future__ import annotations

from hashlib import sha256

_BLOCK = 64  # bytes of a block of SHA-256


class Draws:
    """HMAC-SHA-256 with a secret whose two blocks are hashed once, because every decision draws.

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
        key = (secret if len(secret) <= _BLOCK else sha256(secret).digest()).ljust(_BLOCK, b"\0")
        self._inner, self._outer = (sha256(bytes(byte ^ pad for byte in key)) for pad in (0x36, 0x5C))

    def digest(self, text: bytes) -> bytes:
        """The HMAC of a text."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()

    def __call__(self, session: str, step: int) -> tuple[float, float]:
        """Two uniform numbers for a step of a session."""
        digest = self.digest(f"{session}\0{step}".encode())
        return int.from_bytes(digest[:7], "big") / 2**56, int.from_bytes(digest[8:15], "big") / 2**56
