"""Golden texts: the output of commands, reports, estimators and learners for small inputs.

Such faults as a superfluous digit, a wrong percentage or the sentence of another branch are visible to readers, and
few other tests detect them. Numbers are compared with their printed digits, up to a small tolerance for the rounding of
other machines. After an intended change of texts, regenerate the file with `python tests/golden_words.py`; the commit
then shows the difference.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from golden_answers import BINARY, COUNTS, HARD, LEAVING, NORMAL, THREE, played, with_features
from typer.testing import CliRunner

import lmab
from lmab import learning
from lmab.errors import LmabError, LmabWarning
from lmab.estimation import EM, MomentMatching, TensorDecomposition, Traits
from lmab.evaluation import diagnostics
from lmab.planning import Lookahead, PointBased

FILE = Path(__file__).with_suffix(".json")
WIDTH = 160  # columns of the terminal
ENVIRONMENT = {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
WEIGHTS = re.compile(r"(?<=weights )[\d.]+(, [\d.]+)+")  # of a model, in words


def command(words: str) -> str:
    """Return the output of a command and its exit status."""
    from lmab.cli import output
    from lmab.cli.app import app

    before = output.console.width, output.errors.width  # of the terminal that the process began in
    output.console.width = output.errors.width = WIDTH
    try:
        result = CliRunner().invoke(app, words.split(), env=ENVIRONMENT)
    finally:
        output.console.width, output.errors.width = before
    refused = f"{type(result.exception).__name__}: {result.exception}" if result.exit_code else ""
    text = re.sub(r"/tmp/[\w/.-]*/", "", result.output)
    text = re.sub(r"(│ \w+ +│ +[\d,]+ │) +[\d.]+ │", r"\1 seconds │", text) if words.startswith("learn") else text
    return f"{re.sub(r' +', ' ', text)}[{result.exit_code}] {refused}"


def page(path: str) -> str:
    """Return the text of a page, including that of its pictures."""
    text = re.sub(r"(?s)<(style|script).*?</\1>", "", Path(path).read_text())
    text = re.sub(
        r"[\d-]{10} [\d:]{5} UTC, lmab [\w.]+, NumPy [\w.]+, Python [\w.]+", "then, with these versions", text
    )
    shown = " ".join(re.findall(r'(?:title|aria-label|alt)="([^"]*)"', text))
    return f"{words(text, shown)} {elements(text)}"


def words(text: str, more: str = "") -> str:
    """Return the text of a page without its elements."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)) + more).strip()


def elements(text: str) -> str:
    """Count the elements of a page by name, class and names of other attributes."""

    def named(tag: str, attributes: str) -> str:
        values = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
        return " ".join([".".join([tag, *values.pop("class", "").split()]), *sorted(values)])

    counts = Counter(named(*found) for found in re.findall(r"<(\w+)([^>]*)>", text))
    return "; ".join(f"{name}: {counts[name]}" for name in sorted(counts))


COMMANDS = {
    "fit": "fit log.csv --types 2 --prior 1 --restarts 2 --verbose",
    "fit, number of types": "fit log.csv --prior 1 --restarts 1 --no-check -o number.lmab",
    "fit, features and persons": "fit known.csv --types 2 --prior 1 --restarts 2 --features age,town --person person "
    "-o known.lmab",
    "fit, who leaves": "fit leaving.csv --types 2 --prior 1 --restarts 2 --ended ended -o leaving.lmab",
    "fit, traits": "fit log.csv --traits --factors 1 --no-check -o traits.lmab",
    "fit, rare arms": "fit log.csv --types 1 --prior 1 --restarts 1 --min-plays 118 -o rare.lmab",
    "fit, regret": "fit log.csv --types 2 --prior 1 --restarts 1 --regret 0.05 --horizon 2 -o regret.lmab",
    "fit, counts": "fit counts.csv --types 2 --prior 1 --restarts 2 --rewards counts --no-check -o counts.lmab",
    "fit, bins": "fit normal.csv --types 2 --prior 1 --restarts 2 --rewards binned --no-check -o binned.lmab",
    "plan": "plan model.lmab --horizon 3",
    "plan, anyway": "plan model.lmab --horizon 3 --anyway -o anyway.lmab",
    "plan of a bandit": "plan truth.lmab --horizon 3 -o truth.plan",
    "plan without repeats": "plan truth.lmab --horizon 3 --no-repeats -o once.lmab",
    "plan where people leave": "plan leaving.lmab --horizon 3 --anyway -o leaves.plan",
    "evaluate on a model": "evaluate anyway.lmab --model truth.lmab",
    "evaluate where people leave": "evaluate leaves.plan --model leaving.lmab",
    "evaluate on a log": "evaluate anyway.lmab --logs held.csv --propensity propensity",
    "evaluate with an assessment": "evaluate anyway.lmab --assess log.csv --save-assessment c.lmab",
    "compare on a model": "compare anyway.lmab once.lmab --model truth.lmab",
    "compare on a log": "compare anyway.lmab truth.plan --logs held.csv --propensity propensity",
    "report": "report model.lmab anyway.lmab --assessment c.lmab --logs held.csv -o report.html",
    "report where people leave": "report leaving.lmab leaves.plan -o leaves.html",
    "report of known people": "report known.lmab --horizon 3 -o known.html",
    "report of traits": "report traits.lmab --horizon 2 -o traits.html",
    "sample": "sample shop.csv --sessions 7",
    "simulate": "simulate truth.lmab -o played.csv --sessions 9 --horizon 2 --policy greedy",
    "pack": "pack log.csv -o packed",
    "budget": "budget --types 3 --arms 10 --horizon 5",
    "budget, normal rewards": "budget --types 2 --arms 10 --horizon 3 --gaussian --epsilon 0.2",
    "budget, types apart": "budget --types 3 --arms 10 --horizon 5 --gamma 0.5 --values 3 --w-min 0.2",
    "learn": "learn truth.lmab --horizon 2 --learner ucb --sessions 50",
    "studies": "reproduce --list",
}
PAGES = ("report.html", "leaves.html", "known.html", "traits.html")


@contextlib.contextmanager
def folder() -> Iterator[None]:
    """Make a folder with the files that the commands read."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # logs are short
        BINARY.save("truth.lmab")
        played(BINARY).write("log.csv")
        held = lmab.simulate(BINARY, lmab.Uniform(5), n_sessions=150, horizon=3, rng=9)
        replace(held, propensities=np.full(held.n_steps, 0.2)).write("held.csv")
        with_features().write("known.csv")
        played(LEAVING).write("leaving.csv")
        played(COUNTS).write("counts.csv")
        played(NORMAL).write("normal.csv")
        yield


def printed() -> dict[str, str]:
    """Return the output of all commands, and the text of their pages."""
    with folder():
        return {name: command(words) for name, words in COMMANDS.items()} | {name: page(name) for name in PAGES}


def fit_words(bandit: Any, method: Any, n_types: Any = 2, n: int = 120, **options: Any) -> list[str]:
    log, stages = played(bandit, n), []
    found = lmab.fit(
        log, n_types=n_types, method=method, rng=3, check=False, progress=lambda news: stages.append(news.stage),
        **options,
    )  # fmt: skip
    return [found.message, str(found), page_of(found), *dict.fromkeys(stages)]


def page_of(value: Any) -> str:
    text = value._repr_html_()
    return f"{words(text)} {elements(text)}"


def plan_words(bandit: Any, method: Any, horizon: int = 3, **options: Any) -> list[str]:
    found = lmab.plan(bandit, horizon=horizon, method=method, **options)
    return [found.message, str(found), re.sub(r"in [\d.]+ s ", "in s ", page_of(found)), repr(found.policy)]


def learner_words(learner: Any, n: int = 120) -> list[str]:
    run = learning.Run(learner, n_arms=5, horizon=4, n_sessions=n, rng=0)
    begun, plan = repr(run), run.ask()
    found = lmab.learn(lmab.Simulator(BINARY, horizon=4, rng=6), learner, n_sessions=n, rng=7, planner=lmab.QMDP())
    phases = [f"{one.name}: {one.n_sessions} in {one.n_rounds}, {sorted(one.facts)}" for one in found.diagnostics]
    return [begun, repr(plan), repr(found), *phases]


def refused(call: Callable[[], Any]) -> str:
    try:
        return f"not refused: {call()!r}"
    except LmabError as error:
        return str(error)


def check_words() -> list[str]:
    found = diagnostics.check(played(BINARY, 80), n_types=2, rng=1)
    return [found.verdict, *found.sentences, page_of(found)]


QUESTIONS: dict[str, Callable[[], Any]] = {
    "fit": lambda: fit_words(BINARY, EM(restarts=3, prior=1.0)),
    "fit, learned prior": lambda: fit_words(BINARY, EM(restarts=2, sweeps=6)),
    "fit, three values": lambda: fit_words(THREE, EM(restarts=2, prior=1.0)),
    "fit, normal rewards": lambda: fit_words(NORMAL, EM(restarts=2, prior=1.0), rewards="gaussian"),
    "fit, counts": lambda: fit_words(COUNTS, EM(restarts=2, prior=1.0), rewards="counts"),
    "fit, bins": lambda: fit_words(NORMAL, EM(restarts=2, prior=1.0), rewards="binned"),
    "fit, who leaves": lambda: fit_words(LEAVING, EM(restarts=2, prior=1.0)),
    "fit, stopped": lambda: fit_words(BINARY, EM(restarts=2, prior=1.0, max_iterations=2)),
    "fit, moments": lambda: fit_words(BINARY, MomentMatching(), n=300),
    "fit, moments of normal rewards": lambda: fit_words(NORMAL, MomentMatching(restarts=2), n=200, rewards="gaussian"),
    "fit, tensors": lambda: fit_words(BINARY, TensorDecomposition(), n=300),
    "fit, traits": lambda: fit_words(BINARY, Traits(n_factors=1, n_points=9, max_iterations=6), "auto"),
    "check": check_words,
    "plan": lambda: plan_words(BINARY, None),
    "plan, exact": lambda: plan_words(BINARY, lmab.Exact()),
    "plan, Q-MDP": lambda: plan_words(BINARY, lmab.QMDP()),
    "plan, lookahead": lambda: plan_words(BINARY, Lookahead(2)),
    "plan, points": lambda: plan_words(BINARY, PointBased(n_beliefs=20)),
    "plan, points with a gap": lambda: plan_words(HARD, PointBased(n_beliefs=20, gap=0.001), 5),
    "plan without repeats": lambda: plan_words(BINARY, None, repeats=False),
    "plan, people leave": lambda: plan_words(LEAVING, None),
    "plan, normal rewards": lambda: plan_words(NORMAL, None, bins=4),
    "plan of one step": lambda: plan_words(BINARY, None, 1),
    "UCB": lambda: learner_words(learning.UCB()),
    "L-UCRL": lambda: learner_words(learning.LUCRL(2)),
    "ED+MLE": lambda: learner_words(learning.EDMLE(2), 300),
    "ED+moments": lambda: learner_words(learning.EDMoments(2), 300),
    "UCBVI": lambda: learner_words(learning.HistoryUCBVI()),
    "direct MLE": lambda: learner_words(lmab.DirectMLE(2, method=EM(restarts=1, prior=1.0))),
    "too many histories": lambda: refused(
        lambda: learning.Run(learning.HistoryUCBVI(), n_arms=50, horizon=8, n_sessions=100, rng=0).ask()
    ),
    "too many states": lambda: refused(lambda: lmab.plan(HARD, horizon=30, method=lmab.Exact())),
    "too many states without repeats": lambda: refused(
        lambda: lmab.plan(lmab.random_bandit(3, 40, rng=0), horizon=12, method=lmab.Exact(), repeats=False)
    ),
    "too few sessions": lambda: refused(
        lambda: learning.Run(learning.EDMoments(2), n_arms=5, horizon=4, n_sessions=3, rng=0).ask()
    ),
    "least weights": lambda: refused(
        lambda: learning.Run(learning.EDMoments(2, w_min="tried"), n_arms=5, horizon=4, n_sessions=20, rng=0).ask()
    ),
    "no repeats beyond the arms": lambda: refused(lambda: lmab.plan(BINARY, horizon=9, repeats=False)),
}


def asked(name: str) -> Any:
    """Return the text of one case in JSON form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # logs are short
        found = QUESTIONS[name]()
    return found if isinstance(found, str) else list(found)


def differs(found: str, golden: str) -> str:
    """Return the differences of two texts in words or in numbers.

    Numbers must have the same number of decimals, and agree within 2% or three units of the last digit. Weights of
    types are sorted first, because their order may depend on the rounding of a processor.
    """
    found, golden = (
        WEIGHTS.sub(lambda match: ", ".join(sorted(match[0].split(", "))), text) for text in (found, golden)
    )
    words, others = NUMBER.split(found), NUMBER.split(golden)
    for one, other in zip_longest(words, others):
        if one != other:
            return f"{one!r} is not {other!r}"
    for one, other in zip(NUMBER.findall(found), NUMBER.findall(golden), strict=True):
        value, wanted, digits = (float(text.replace(",", "")) for text in (one, other, _last_digit(other)))
        if max(abs(value), abs(wanted)) < 1e-9:
            continue  # zero up to rounding
        if _form(one) != _form(other) or abs(value - wanted) > max(0.02 * abs(wanted), 3 * digits):
            return f"{one} is not {other}"
    return ""


def _form(text: str) -> tuple[Any, ...]:
    mantissa, _, power = text.partition("e")
    return len(mantissa.partition(".")[2]) if not power else None, text[0] == "+", bool(power)


def _last_digit(text: str) -> str:
    mantissa, _, power = text.partition("e")
    return f"1e{int(power or 0) - len(mantissa.partition('.')[2])}"


if __name__ == "__main__":
    answers = {"printed": printed(), "asked": {name: asked(name) for name in QUESTIONS}}
    FILE.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
