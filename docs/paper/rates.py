"""The figure of learning rates: validation loss against the rate, by cell, as the tuning found it.

    python docs/paper/rates.py studies/embedding-factorial studies/embedding-factorial-long

writes rates.svg beside this file: the mean over the tuning seeds at every rate, and their range.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import altair as alt
from effects import ARMS, CELLS, COLOURS, COLUMNS, analysis_of, titled, write

from paribus.results.formats import read_json

RATE = "training.optimizer.learning_rate"
FRAMES = {300: [2.2, 2.6], 1500: [1.25, 2.05]}  # losses that are shown, by iterations
SHOWN = {"none": "plain"} | {arm: name for arm, name in ARMS.items() if arm != "center"}


def rows(study: Path) -> list[dict[str, Any]]:
    """Return a row for each arm and rate."""
    tuned, told = analysis_of(study)["tuned"], []
    budget = read_json(study / "study.json")["training"]["iterations"]
    for point in tuned["points"]:
        arm = point["arm"].split("-")[0]
        if arm not in SHOWN:
            continue
        values = list(point["values"].values())
        told.append(
            {
                "arm": SHOWN[arm],
                "panel": f"{CELLS[point['arm'].removeprefix(arm)]}: {budget:,}",
                "budget": budget,
                "rate": tuned["candidates"][point["candidate"] - 1][RATE],
                "loss": point["mean"],
                "low": min(values),
                "high": max(values),
            }
        )
    return told


def panels_of(data: list[dict[str, Any]]) -> list[alt.LayerChart]:
    """Return a panel for each budget and cell; those of a budget have one axis."""
    names = list(SHOWN.values())
    colours = alt.Scale(domain=names, range=[COLOURS.get(arm, "#222222") for arm in SHOWN])
    panels = []
    for number, panel in enumerate(dict.fromkeys(row["panel"] for row in data)):
        here, is_first = [row for row in data if row["panel"] == panel], number % COLUMNS == 0
        rates = [float(f"{rate:.2g}") for rate in sorted({row["rate"] for row in here})]
        y = alt.Scale(domain=FRAMES[here[0]["budget"]], clamp=True)
        base = alt.Chart(alt.Data(values=here)).encode(
            alt.X(
                "rate:Q",
                scale=alt.Scale(type="log", domain=[rates[0] / 1.15, rates[-1] * 1.15]),
                axis=alt.Axis(values=rates[1::2], format="~e", labelOverlap=False, grid=False),
                title="learning rate",
            ),
            alt.Color("arm:N", scale=colours, title=None, sort=names),
        )
        axis = alt.Axis(labelOpacity=float(is_first), ticks=is_first, tickCount=5)
        title = "validation loss" if is_first else None
        lines = base.mark_line(
            clip=True, strokeWidth=1.5, point=alt.OverlayMarkDef(size=28)
        ).encode(
            alt.Y("loss:Q", scale=y, axis=axis, title=title),
            alt.Shape("arm:N", scale=alt.Scale(domain=names), title=None, sort=names),
        )
        ranges = base.mark_rule(clip=True, opacity=0.45).encode(
            alt.Y("low:Q", scale=y, axis=axis, title=title), alt.Y2("high:Q")
        )
        panels.append((ranges + lines).properties(width=150, height=150, title=titled(panel)))
    return panels


def main() -> None:
    """Write the picture."""
    data = [row for study in map(Path, sys.argv[1:]) for row in rows(study)]
    write(panels_of(data), "rates.svg")


if __name__ == "__main__":
    main()
