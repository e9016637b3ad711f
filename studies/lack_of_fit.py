"""Effects of the embedding factorial, with and without lack of fit in their intervals.

    python studies/lack_of_fit.py

Both halves of the study were registered with `inference.choice = "propagated"`: intervals include
the error of the selected learning rate, but not the error of approximating the loss curve by a
parabola (lack of fit). docs/explanation/tuning.md summarises the results.
"""

from __future__ import annotations

from pathlib import Path

from paribus import load_results
from paribus.analysis import analyse
from paribus.analysis.contrasts import with_lack_of_fit
from paribus.decision import decide

HERE = Path(__file__).parent
HALVES = {"300": "embedding-factorial", "1,500": "embedding-factorial-long"}
HEAD = (
    "| iterations | arm | registered | Holm p | with lack of fit | Holm p | word |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def rows(iterations: str, name: str) -> list[str]:
    """Format the effects of one half of the study as Markdown table rows."""
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
    """Print the Markdown table."""
    print("\n".join(HEAD))
    for iterations, name in HALVES.items():
        print("\n".join(rows(iterations, name)), flush=True)


if __name__ == "__main__":
    main()
