"""Make the pictures of README and of the home page from the sample log: `python docs/pictures/make.py`.

Needs Chromium (Debian's package `chromium`, or CHROMIUM=path) for the screenshot of the report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lmab
from lmab.cli.demo import run_story

FOLDER = Path(__file__).parent
_SIZE = (1280, 1000)  # pixels of the screenshot: what a reader sees first


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        story = run_story(Path(made), 0)
        tree = story.plan.policy.tree(4)
        (FOLDER / "tree.svg").write_text(lmab.reporting.tree_svg(tree) + "\n", encoding="utf-8")
        shoot(Path(made) / "report.html", FOLDER / "report.png")


def shoot(page: Path, picture: Path) -> None:
    """A screenshot of a page, in light colours."""
    browser = os.environ.get("CHROMIUM", "chromium")
    size = ",".join(map(str, _SIZE))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
    command = [browser, *options, f"--screenshot={picture}", page.resolve().as_uri()]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        sys.exit(f"{browser} is not installed: CHROMIUM=path names another browser")


if __name__ == "__main__":
    main()
