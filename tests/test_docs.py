"""Documentation cannot drift: its code runs, and every public name is on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_public import PUBLIC

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    names: dict[str, object] = {}
    for block in blocks:  # the blocks of a page are one story
        exec(compile(block, str(page), "exec"), names)


def test_every_public_name_is_on_the_api_page():
    text = (DOCS / "api.md").read_text()
    assert [name for name in PUBLIC if f"::: lmab.{name}\n" not in text] == []
