"""Documentation cannot drift: its code runs, its links lead somewhere, every name, command and option is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import house
import pytest
import typer
from manual import manual
from typer.testing import CliRunner

from lmab.cli.app import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = "modules.md"  # The site's own page, which `make docs` writes and nobody keeps.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.name != MADE)
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
RUNNER = CliRunner()
LONG = {
    "compare",
    "reproduce",
    "demo",
    "serve",
    "refit",
}  # commands whose runs belong elsewhere: their options are checked, not their work


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the code blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch, capsys, light_work):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    failed: list[str] = []
    said: list[str] = []
    elsewhere = blocks(ROOT / "README.md") if page.name == "index.md" else []  # the README's own tests run these
    for language, block in (one for one in blocks(page) if one not in elsewhere):  # the blocks of a page are one story
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
            imported = re.findall(r"^import (\w+)(?: as (\w+))?", block, re.M)
            assert {alias or name for name, alias in imported} <= set(names), block
            said += re.findall(r"# prints: (.*)$", block, re.M)
        elif language == "sh" and page.name != "cli.md":  # there the examples name the reader's own files
            lines = re.sub(r"\\\n\s*", "", block).splitlines()
            failed += [failure for line in lines if (failure := failure_of(line))]
    assert failed == []
    printed = capsys.readouterr().out
    assert [line for line in said if line not in printed] == []
    assert len(said) >= (6 if page.name == "extending.md" else 0)


def failure_of(line: str) -> str:
    """What goes wrong where a line of shell is run, if it is a command of ours; empty: nothing does."""
    words = shlex.split(line, comments=True)
    if not words or words[0] != "lmab":
        return ""
    if words[1] in LONG:
        parameters = typer.main.get_command(app).commands[words[1]].params
        known = {option for parameter in parameters for option in parameter.opts}
        unknown = {word for word in words[2:] if word.startswith("-")} - known
        return f"{line}: no option {', '.join(sorted(unknown))}" if unknown else ""
    result = RUNNER.invoke(app, words[1:])
    return "" if result.exit_code == 0 else f"{line}\n{result.output}\n{result.exception}"


def test_a_line_that_fails_is_told():
    assert failure_of("ls -l") == failure_of("# lmab nonsense") == failure_of("lmab serve --port 1") == ""
    assert failure_of("lmab serve --nonsense") == "lmab serve --nonsense: no option --nonsense"
    assert "missing.csv" in failure_of("lmab fit missing.csv")


def test_blocks_name_their_language():
    for page in TEXTS:
        unnamed = [block for language, block in blocks(page) if not language]
        assert unnamed == [], page.name


def test_every_command_and_option_is_on_the_command_line_page():
    page = (DOCS / "cli.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():
        section = page.split(f"\n## lmab {name}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            if parameter.name == "help":
                continue
            written = parameter.opts if parameter.opts[0].startswith("-") else [parameter.name.upper()]
            assert [
                option for option in written if f"`{option}`" not in section.replace("`[", "`").replace("]`", "`")
            ] == []


def test_the_command_line_page_is_what_the_commands_say():
    assert (DOCS / "cli.md").read_text() == manual(), "run: python tests/manual.py > docs/cli.md"


def anchors(page: Path) -> set[str]:
    """The headings of a page, and the names documented on it, as links spell them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ +(.*)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)$", text, re.M))


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        file = page if not path else page.parent / path
        if file == DOCS / MADE:
            continue
        assert file.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    listed = re.findall(r":\s*([\w/-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted([*(str(page.relative_to(DOCS)) for page in PAGES), MADE])


def test_the_home_page_and_the_quick_start_tell_the_story_of_the_readme():
    """The same commands and the same program, so that a reader finds one path and not three."""
    told = set(blocks(ROOT / "README.md"))
    assert len(told) == 4
    ours = {(language, text) for language, text in told if "make " not in text}  # the others are run from a clone
    assert set(blocks(DOCS / "index.md")) == ours
    quick = (DOCS / "quickstart.md").read_text()
    program = next(text for language, text in told if language == "python")
    calls = re.findall(r"lmab\.(?:Sessions\.read|fit|plan|assess|report)\(.*?\)(?=  #|\n)", program)
    assert len(calls) == 5
    assert [call for call in calls if call not in quick] == []


def test_every_page_is_linked_from_the_first():
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", (DOCS / "index.md").read_text()))
    assert sorted(linked | {"index.md"}) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plan with --no-repeats", ["plan", "with", "no-repeats"]),
        ("fit(log, n_types=3)", ["fit", "log", "n_types", "3"]),
        ("`--types` - or 0.5 of lmab.fit", ["types", "or", "0.5", "of", "lmab", "fit"]),
    ],
)
def test_the_search_of_the_site_takes_options_and_names_for_words(text, words):
    found = re.search(r"search: \{separator: '(.*)'\}", (ROOT / "mkdocs.yml").read_text())
    assert found is not None
    assert [word for word in re.split(found[1], text) if word] == words


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="zensical is not installed (extra docs)")
def test_the_site_builds_without_a_warning(tmp_path):
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "docs" / MADE).write_text(house.chart())
    (tmp_path / "src").symlink_to(ROOT / "src")
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    assert (tmp_path / "site" / "api" / "index.html").stat().st_size > 50_000
