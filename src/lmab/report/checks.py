"""The parts of the page that say how far to trust the model: certificate, held-out sessions, the number of types."""

from __future__ import annotations

import numpy as np

from .._charts import Frame, line, points
from .._charts import calibration as calibration_chart
from .._markup import Markup, element, join
from .contents import Contents
from .held_out import HeldOut

_NOTHING = Markup("")


def certificate(contents: Contents) -> Markup:
    """The certificate's sentence: what the log proves about the policy."""
    found = contents.certificate
    if found is None:
        return _NOTHING
    return element(
        "section",
        element("h2", "How sure this is"),
        element("p", found.sentence, class_="lead"),
        element("p", found.note, class_="soft"),
    )


def held_out(contents: Contents) -> Markup:
    """Predictions compared with sessions that the model has not seen."""
    seen = contents.held_out
    if seen is None:
        return _NOTHING
    return element(
        "section",
        element("h2", "On sessions the model has not seen"),
        element("p", seen.verdict(sure=contents.verdict.sure), class_="lead"),
        element("div", _calibration(seen), _memory(seen), class_="charts"),
        _evidence(seen, contents.horizon),
    )


def _calibration(seen: HeldOut) -> Markup:
    found = seen.calibration
    note = (
        f"Reward predicted from the session so far against the reward paid, for tenths of the steps of "
        f"{seen.n_sessions:,} sessions, ± one standard error. Of each difference predicted between sessions, "
        f"{found.slope:.0%} ± {found.slope_stderr:.0%} is real (100% is calibrated)."
    )
    chart = calibration_chart(found.predicted, found.observed, found.stderr)
    return element("figure", chart, element("figcaption", note))


def _memory(seen: HeldOut) -> Markup:
    steps = np.arange(1.0, len(seen.gain) + 1)
    frame = Frame.around(steps, np.concatenate([seen.gain - seen.gain_stderr, seen.gain + seen.gain_stderr, [0.0]]))
    marks = points(frame, steps.tolist(), seen.gain.tolist(), seen.gain_stderr.tolist())
    note = (
        "How much better the model predicts each step when it remembers the session than when it does not: the gain "
        "in log-likelihood (0.1 is about 10% more likely). It rises while the session still tells something new "
        "about the type."
    )
    curve = line(frame, steps.tolist(), seen.gain.tolist())
    zero = line(frame, list(frame.x), [0.0, 0.0], "ideal")
    chart = frame.draw("Gain from memory", "step", "log-likelihood gained", zero, curve, marks, integers=True)
    return element("figure", chart, element("figcaption", note))


def _evidence(seen: HeldOut, steps: int) -> Markup:
    if seen.evidence is None:
        text = (
            f"A logged session of {steps} steps earned {seen.logged:.4g}. What this policy would have earned in them "
            "cannot be said without logged propensities of sessions at least as long."
        )
        return element("p", text, class_="soft")
    value = seen.evidence.doubly_robust
    assert value is not None  # a model was given
    logged = f"As logged, a session of {steps} steps earned {seen.logged:.4g}. "
    if value.interval is None:
        text = Markup(f"{logged}What this policy would have earned, these sessions cannot tell.")
    else:
        text = join(
            Markup(f"{logged}By the logged propensities this policy would have earned "),
            element("strong", f"{value.mean:.4g}"),
            Markup(" ({:.4g} to {:.4g}, doubly robust, 95%).".format(*value.interval)),
        )
    remarks = [element("p", f"{note[:1].upper()}{note[1:]}.", class_="soft") for note in seen.evidence.notes]
    return join(element("p", text), *remarks)


def number_of_types(contents: Contents) -> Markup:
    """The held-out likelihood for each number of types, where the number was chosen."""
    curve = contents.curve
    if curve is None or len(curve.n_types) < 2:
        return _NOTHING
    numbers, scores = [float(number) for number in curve.n_types], curve.log_likelihood
    frame = Frame.around(np.array(numbers), np.concatenate([scores - curve.stderr, scores + curve.stderr]))
    marks = points(frame, numbers, scores.tolist(), curve.stderr.tolist())
    x, y = frame.at(float(curve.chosen), float(scores[curve.n_types.index(curve.chosen)]))
    ring = element("circle", cx=x, cy=y, r=8, class_="chosen")
    chart = frame.draw(
        "Number of types", "number of types", "log-likelihood per session",
        line(frame, numbers, scores.tolist()), marks, ring, integers=True,
    )  # fmt: skip
    note = (
        f"Log-likelihood of held-out sessions; bars are standard errors of the difference from one number to the next. "
        f"Chosen: {curve.chosen}, where in doubt one type is added because one too many costs little."
    )
    return element(
        "section", element("h2", "Why this many types"), element("figure", chart, element("figcaption", note))
    )
