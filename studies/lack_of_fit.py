"""Print every effect of both halves of the factorial with and without lack of fit in its interval.

    python studies/lack_of_fit.py

Both halves were registered with `inference.choice = "propagated"`: their intervals include that
other tuning seeds would have chosen another learning rate. They do not include that the loss curve
is not a parabola. docs/explanation/tuning.md summarises it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from paribus import load_results
from paribus.analysis import Analysis, Contrast, analyse
from paribus.analysis.contrasts import adjusted
from paribus.decision import decide
from paribus.statistics import TTest, decided

HERE = Path(__file__).parent
HALVES = {"300": "embedding-factorial", "1,500": "embedding-factorial-long"}
HEAD = (
    "| iterations | arm | registered | Holm p | with lack of fit | Holm p | word |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def with_lack_of_fit(analysis: Analysis) -> Analysis:
    """Return `analysis` with lack of fit in the error of every contrast, p adjusted again.

    Interactions keep their registered errors.
    """
    contrasts = [_widened(analysis, contrast) for contrast in analysis.contrasts]
    return replace(analysis, contrasts=tuple(adjusted(contrasts, analysis.study.inference.alpha)))


def _widened(analysis: Analysis, contrast: Contrast) -> Contrast:
    choice, test, says = contrast.choice, contrast.test, contrast.decided
    if choice is None or says is None or not choice.lack_of_fit or not isinstance(test, TTest):
        return contrast
    test = replace(test, choice=math.hypot(test.choice, choice.lack_of_fit))
    asked = analysis.study.inference.model_dump(include={"alpha", "power"})
    wider = decided(test, says.test, margin=says.margin, family=says.family, **asked)
    kind = "by_run" if contrast.items is None else "items"
    inference = replace(getattr(contrast, kind), test=test, decided=wider)
    return replace(contrast, **{kind: inference})


def rows(iterations: str, name: str) -> list[str]:
    """Return the table rows of one half."""
    registered = analyse(load_results(HERE / name))
    wider = with_lack_of_fit(registered)
    lines = []
    for before, after in zip(decide(registered), decide(wider), strict=True):
        title = registered.study.called[before.arm]
        words = before.word if before.word == after.word else f"{before.word}, then {after.word}"
        cells = [
            f"{one.effect:+.4f} [{one.low:+.4f}, {one.high:+.4f}] | {one.adjusted_p:.2g}"
            for one in (before, after)
        ]
        lines.append(f"| {iterations} | {title} | {' | '.join(cells)} | {words} |")
    return lines


def main() -> None:
    """Print the table."""
    print("\n".join(HEAD))
    for iterations, name in HALVES.items():
        print("\n".join(rows(iterations, name)), flush=True)


if __name__ == "__main__":
    main()
