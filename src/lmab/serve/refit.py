"""refit."""


class Night: ...


def refit() -> None: ...
