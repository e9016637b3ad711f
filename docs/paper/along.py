"""The figure along training: how far each arm is from plain embeddings, by cell.

    python docs/paper/along.py studies/embedding-factorial studies/embedding-factorial-long

writes along.svg beside this file: the mean over seeds of the difference of validation loss, and its
95% interval at every point by itself (paired t; the choice of the rates is taken as given).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from effects import ARMS, CELLS, COLOURS, COLUMNS, titled, write
from scipy import stats

from paribus import load_results
from paribus.results import Results, readable

SHOWN = {arm: name for arm, name in ARMS.items() if arm in ("layernorm", "factor", "steps")}


def rows(results: Results) -> list[dict[str, Any]]:
    """Return a row for each arm and evaluated step."""
    curves, study, told = results.trial_curves, results.study, []
    seeds, budget = study.seeds, study.setting(study.baseline).iterations
    for cell, title in CELLS.items():
        panel = f"{title}: {budget:,}"
        for arm, called in SHOWN.items():
            pairs = [(curves[arm + cell, seed], curves["none" + cell, seed]) for seed in seeds]
            deltas = np.array([ours.loss - theirs.loss for ours, theirs in pairs])
            half = stats.t.ppf(0.975, len(seeds) - 1) * stats.sem(deltas)
            told += [
                {
                    "arm": called,
                    "panel": panel,
                    "budget": budget,
                    "step": int(step),
                    "mean": float(mean),
                    "low": float(mean - of),
                    "high": float(mean + of),
                }
                for step, mean, of in zip(pairs[0][0].step, deltas.mean(0), half, strict=True)
                if step > 0
            ]
    return told


def panels_of(data: list[dict[str, Any]]) -> list[alt.LayerChart]:
    """Return a panel for each cell, with one axis."""
    names = list(SHOWN.values())
    colours = alt.Scale(domain=names, range=[COLOURS[arm] for arm in SHOWN])
    y = alt.Scale(domain=[-0.45, 0.4])
    panels = []
    for number, panel in enumerate(dict.fromkeys(row["panel"] for row in data)):
        here, is_first = [row for row in data if row["panel"] == panel], number % COLUMNS == 0
        axis = alt.Axis(labelOpacity=float(is_first), ticks=is_first, tickCount=6)
        title = "change of validation loss" if is_first else None
        thirds = [here[0]["budget"] * n // 3 for n in (1, 2, 3)]
        base = alt.Chart(alt.Data(values=here)).encode(
            alt.X("step:Q", title="iteration", axis=alt.Axis(values=thirds, grid=False)),
            alt.Color("arm:N", scale=colours, title=None, sort=names),
        )
        band = base.mark_area(opacity=0.2).encode(
            alt.Y("low:Q", scale=y, axis=axis, title=title), alt.Y2("high:Q")
        )
        line = base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=26)).encode(
            alt.Y("mean:Q", scale=y, axis=axis, title=title),
            alt.Shape("arm:N", scale=alt.Scale(domain=names), title=None, sort=names),
        )
        zero = (
            alt.Chart(alt.Data(values=[{"y": 0}]))
            .mark_rule(strokeDash=[3, 3])
            .encode(alt.Y("y:Q", scale=y))
        )
        panels.append((zero + band + line).properties(width=150, height=150, title=titled(panel)))
    return panels


def main() -> None:
    """Write the picture."""
    data = []
    for study in sys.argv[1:]:
        with readable(Path(study)) as folder:
            data += rows(load_results(folder))
    write(panels_of(data), "along.svg")


if __name__ == "__main__":
    main()
