"""The picture of the page on embedding norms, from two kept studies.

python docs/make_picture.py docs/explanation/embedding-norm.svg

The change of held-out loss along 1,500 iterations, each arm at its best rate minus the baseline at
the same seed, with 95% t intervals of every point by itself (16 seeds): on the left where the token
matrix is the output matrix, on the right where the output matrix is its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import vl_convert
from scipy import stats

import paribus
from paribus.report.figures.style import ARM_COLOURS
from paribus.results import readable

STUDIES = Path(__file__).parents[1] / "studies"
PANELS = {
    "the token matrix is the output matrix": STUDIES / "embedding-norm-scale-long",
    "an output matrix of its own": STUDIES / "embedding-norm-untied-long",
}
ARMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "fixed-scale": "a constant factor"}


def along(kept: Path) -> list[dict[str, Any]]:
    """Return a row for each arm and point of the held-out curve: mean change and interval."""
    rows = []
    with readable(kept) as folder:
        results = paribus.load_results(folder)
        study, curves = results.study, {}
        for trial in results.finished:
            table = trial.read_columns("curve.parquet")
            nats, n = (table[name].to_numpy() for name in ("loss_sum_nats", "predicted"))
            curves[trial.arm, trial.seed] = table["step"].to_numpy(), nats / n
    for arm, called in ARMS.items():
        change = [c - curves[study.baseline, s][1] for (a, s), (_, c) in curves.items() if a == arm]
        n = len(change)
        half = stats.t.ppf(0.975, n - 1) * np.std(change, axis=0, ddof=1) / np.sqrt(n)
        steps, mean = curves[arm, study.seeds[0]][0], np.mean(change, axis=0)
        rows += [
            {"arm": called, "step": int(t), "change": m, "low": m - h, "high": m + h}
            for t, m, h in zip(steps, mean.tolist(), half.tolist(), strict=True)
        ]
    return rows


def picture() -> alt.HConcatChart:
    scale = alt.Scale(domain=list(ARMS.values()), range=list(ARM_COLOURS[: len(ARMS)]))
    colour = alt.Color("arm:N", scale=scale, title=None)
    shape = alt.Shape("arm:N", scale=alt.Scale(domain=list(ARMS.values())), title=None)
    title = "change of held-out loss, nats/token"
    found = {name: along(kept) for name, kept in PANELS.items()}
    ends = [row[key] for rows in found.values() for row in rows for key in ("low", "high")]
    heights = alt.Scale(domain=[min(ends), max(ends)], nice=True)
    panels = []
    for name, rows in found.items():
        base = alt.Chart(alt.Data(values=rows)).encode(
            alt.X("step:Q", title="training iterations", scale=alt.Scale(domain=[0, 1500]))
        )
        band = base.mark_area(opacity=0.2).encode(
            alt.Y("low:Q", title=title, scale=heights), alt.Y2("high:Q"), colour
        )
        line = base.mark_line().encode(alt.Y("change:Q", scale=heights), colour)
        points = base.mark_point(filled=True, opacity=1, size=45).encode(
            alt.Y("change:Q", scale=heights), colour, shape
        )
        zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(strokeDash=[3, 3]).encode(y="y:Q")
        panels.append((zero + band + line + points).properties(width=400, height=270, title=name))
    return alt.hconcat(*panels, spacing=40, background="white").configure_legend(orient="top")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    svg = vl_convert.vegalite_to_svg(picture().to_dict())
    parser.parse_args().picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
