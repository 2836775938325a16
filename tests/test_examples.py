"""The examples run, on people made up for the occasion; on the real ones where LMAB_TRUTHS names their folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from seeds import generator

ROOT = Path(__file__).parent.parent
RATINGS = Path(os.environ.get("LMAB_TRUTHS", "")) / "jester" / "jester1_dense_7200x100_int16.npz"


@pytest.fixture(scope="module")
def jester():
    spec = importlib.util.spec_from_file_location("jester", ROOT / "examples" / "jester.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["jester"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def test_the_notebook_is_the_tutorial_with_what_its_code_shows():
    spec = importlib.util.spec_from_file_location("make_notebook", ROOT / "examples" / "make_notebook.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    cells = json.loads(make.NOTEBOOK.read_text())["cells"]
    kinds = {"markdown": "markdown", "code": "python"}
    assert [(kinds[cell["cell_type"]], "".join(cell["source"])) for cell in cells] == make.parts(make.PAGE.read_text())
    shown = [output for cell in cells for output in cell.get("outputs", ())]
    assert any("image/svg+xml" in output.get("data", {}) for output in shown), "run: python examples/make_notebook.py"
    said = "".join("".join(output.get("text", ())) for output in shown)
    assert "Latent types are supported" in said
    assert "(2436, 25)" in said


def test_a_cell_shows_what_it_prints_and_its_last_value():
    spec = importlib.util.spec_from_file_location("make_notebook", ROOT / "examples" / "make_notebook.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    page = "# Title\n\n```sh\nls\n```\n\n```python\na = 2\nprint(a)\na + 1\n```\n\nEnd.\n"
    assert make.parts(page) == [
        ("markdown", "# Title\n\n```sh\nls\n```"), ("python", "a = 2\nprint(a)\na + 1"), ("markdown", "End."),
    ]  # fmt: skip
    text, code, _ = make.notebook(page)["cells"]
    assert "outputs" not in text
    assert code["outputs"][0]["text"] == ["2\n"]
    assert code["outputs"][1]["data"] == {"text/plain": "3"}


def people(n: int, tastes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ratings of n people of equally frequent types, with different generosity."""
    types = rng.integers(len(tastes), size=n)
    return (tastes[types] + rng.normal(size=(n, 1)) + rng.normal(size=(n, 100))).clip(-10, 10)


def test_the_table_is_printed_from_a_csv_file(jester, tmp_path, capsys, monkeypatch):
    rng = generator(0)
    taste = rng.normal(size=100)
    ratings = people(600, np.stack([taste, -taste]), rng).round(2)
    half_rated = ratings[:5].copy()
    half_rated[:, 7] = 99  # people who did not rate every joke are left out
    counts = np.r_[np.full(600, 100), np.full(5, 99)]
    np.savetxt(tmp_path / "jester.csv", np.column_stack([counts, np.vstack([ratings, half_rated])]), delimiter=",")
    assert np.array_equal(jester.read(tmp_path / "jester.csv"), ratings)

    options = ["--rewards", "A", "--shown", "20", "--horizons", "10"]
    monkeypatch.setattr(sys, "argv", ["jester.py", str(tmp_path / "jester.csv"), *options])
    monkeypatch.setattr(jester, "FREE", jester.FREE[:2])
    monkeypatch.setattr(jester, "CONFINED", jester.CONFINED[:1])
    monkeypatch.setattr(jester, "N_FACTORS", (2,))
    jester.main()
    out = capsys.readouterr().out
    assert out.startswith("300 people to learn from, 300 to replay")
    row = next(line for line in out.splitlines() if line.startswith("| A | 20 | "))
    gains = [float(gain) for gain in re.findall(r"([+-][\d.]+) ±", row)]
    assert len(gains) == 4
    assert min(gains) > 0.3  # what one type likes best, the other likes least


def test_generosity_alone_is_one_type(jester):
    rng = generator(1)
    alike = people(600, np.tile(rng.normal(size=100), (2, 1)), rng)
    feedback = jester.show(jester.rewards(alike, "A"), 10, rng)
    n_types, _, note = jester.choose_types(feedback, rng)
    assert n_types == 1, note
    assert re.search(r"predict a held-out person better by -0\.\d", note)


def test_one_type_is_the_popular_sequence(jester):
    rng = generator(2)
    liked = jester.rewards(people(200, rng.normal(size=(1, 100)), rng), "A")
    feedback = jester.show(liked, 10, rng)
    bandit = jester.fit(feedback, 1, jester.FREE[0][1], rng)
    popular = np.argsort(-feedback.popularity, kind="stable")[:5]
    for method in (jester.lmab.QMDP(), jester.lmab.planning.Lookahead()):
        policy = jester.lmab.plan(bandit, horizon=5, method=method, repeats=False).policy
        assert np.array_equal(jester.replay(policy, liked, 5), liked[:, popular].sum(axis=1))


@pytest.mark.slow
@pytest.mark.skipif(not RATINGS.exists(), reason="LMAB_TRUTHS does not name a folder with jester/")
def test_real_people_gain_and_never_lose(jester, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["jester.py", str(RATINGS)])
    jester.main()
    found = {}
    for line in capsys.readouterr().out.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 10 and cells[0] in ("A", "B"):
            for name, cell in zip(("greedy", "lookahead"), cells[6:8], strict=True):
                mean, stderr = (float(part) for part in cell.split("±"))
                found[cells[0], int(cells[1]), int(cells[4]), name] = mean
                assert mean >= -2 * stderr, line
    for case, least in {("A", 20, 10): 0.034, ("B", 20, 10): 0.10, ("B", 50, 10): 0.19}.items():
        assert max(found[*case, name] for name in ("greedy", "lookahead")) >= least
