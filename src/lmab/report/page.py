"""The report as one HTML file that needs no other file and no network."""

from __future__ import annotations

import os
from importlib.resources import files as package_files
from pathlib import Path

from .._markup import Markup, element
from .._words import count
from ..checks import check_writable
from . import checks, sections, traits
from .contents import Contents
from .tree import palette

#: Nothing outside the file may be fetched, and no script runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(contents: Contents) -> str:
    """The report as HTML text."""
    style = package_files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {palette(dark=True)} }} }}"
    style = f":root {{ {palette()} }}\n{dark}\n{style}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", contents.title),
        element("style", Markup(style)),
    )
    beside = element("div", sections.worth(contents), checks.certificate(contents), class_="pair")
    model = (sections.types, sections.heat_map) if contents.people is None else (traits.factors, traits.people)
    parts = (
        sections.tree,
        *model,
        checks.held_out,
        checks.number_of_types,
        sections.settings,
    )
    body = element("body", element("main", _opening(contents), beside, *(part(contents) for part in parts)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def write(contents: Contents, path: str | os.PathLike[str]) -> None:
    """Write the report to `path`; the file is replaced as a whole."""
    check_writable(path)
    target = Path(path)
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        half.write_text(render(contents), encoding="utf-8")
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _opening(contents: Contents) -> Markup:
    bandit, people = contents.bandit, contents.people
    types = f"{count(bandit.n_types, 'hidden type')} of sessions"
    what = types if people is None else count(people.factors.n_alive, "hidden factor")
    text = f"{what}, {count(bandit.n_arms, 'arm')} to choose from, {count(contents.horizon, 'step')} per session."
    return element("header", element("h1", contents.title), element("p", text, class_="soft"))
