"""Secrets and data that lie in a checkout: neither the source distribution nor the image context holds them."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="builds the source distribution: pip install hatchling")
ROOT = Path(__file__).parent.parent
PLANTED = (
    "deploy/secrets/database",
    "deploy/secrets/tokens",
    "deploy/tokens",
    "deploy/arms.txt",
    "deploy/notes.txt",
    "deploy/proxy/lmab.example.com.key",
    "deploy/prometheus/lmab.token",
    "src/lmab/serve/secrets/database",
    "src/lmab/.env",
    "src/tokens",
    "docs/privkey.pem",
    "examples/events.db",
    "examples/events.db-wal",
    "examples/last.model.lmab",
    "events.db",
    ".env",
    "tokens",
)
SECRET = "hunter2, which must not leave this machine"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the source tree in which an installation has put its secrets."""
    copy = tmp_path_factory.mktemp("release") / "lmab"
    nothing = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "site", "results", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, copy, ignore=nothing)
    for name in PLANTED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(SECRET)
    return copy


def build(source: Path, target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (built,) = folder.iterdir()
    return built


def context(source: Path) -> list[str]:
    """Return the files that `docker build` sends: the last matching line of .dockerignore decides.

    Patterns are those that the file uses: names from the root, whole folders, and `**/` for any depth.
    """
    lines = [line for line in (source / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    found = []
    for path in sorted(file for file in source.rglob("*") if file.is_file()):
        name, ignored = path.relative_to(source).as_posix(), False
        parts = name.split("/")
        above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        for line in lines:
            pattern = line.removeprefix("!")
            names = parts if pattern.startswith("**/") else above
            one = pattern.removeprefix("**/")
            if any(fnmatch.fnmatchcase(each, one) and each.count("/") == one.count("/") for each in names):
                ignored = not line.startswith("!")
        if not ignored:
            found.append(name)
    return found


@pytest.mark.parametrize("with_gitignore", [True, False])
def test_the_source_distribution_holds_no_secret(checkout, tmp_path, with_gitignore):
    """A tree without .gitignore is what somebody has who unpacked an archive."""
    if not with_gitignore:
        shutil.copytree(checkout, tmp_path / "source", ignore=shutil.ignore_patterns(".gitignore"))
        checkout = tmp_path / "source"
    with tarfile.open(build(checkout, "sdist", tmp_path / "out")) as archive:
        files = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
        texts = {name: archive.extractfile(member).read() for name, member in files.items()}
    assert [name for name, text in texts.items() if text == SECRET.encode()] == []
    assert set(PLANTED).isdisjoint(texts)
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert {name for name in texts if name.startswith("deploy/")} <= shipped
    for name in ("deploy/Dockerfile", "deploy/compose.yaml", "deploy/proxy/nginx.conf", "deploy/systemd/lmab.service"):
        assert name in texts
    assert {"src/lmab/serve/app.py", "tests/test_release.py", ".dockerignore"} <= set(texts)


def test_the_source_distribution_holds_every_tracked_file_that_its_tests_need(tmp_path):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(build(ROOT, "sdist", tmp_path / "out")) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("src/", "tests/", "mutants/", "benchmarks/", "examples/", "docs/", "deploy/")
    missing = [name for name in tracked if name.startswith(folders) and name not in shipped and (ROOT / name).exists()]
    assert missing == []


def test_the_image_is_built_from_the_package_alone(checkout, tmp_path):
    """What the builder gets is enough to build the package, and holds no secret."""
    names = context(checkout)
    assert set(PLANTED).isdisjoint(names)
    assert {name.partition("/")[0] for name in names} == {"LICENSE", "README.md", "pyproject.toml", "src"}
    sent = tmp_path / "context"
    for name in names:
        assert (checkout / name).read_bytes() != SECRET.encode()
        (sent / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout / name, sent / name)
    assert build(sent, "wheel", tmp_path / "out").suffix == ".whl"


def test_git_ignores_secrets_where_the_guide_puts_them(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    asked = [name for name in PLANTED if name != "deploy/notes.txt"]
    found = subprocess.run(["git", "-C", str(tmp_path), "check-ignore", *asked], capture_output=True, text=True)
    assert found.stdout.split() == asked
