"""The figure of effects by output matrix, warmup and budget, from the two halves of the factorial.

    python docs/paper/effects.py studies/embedding-factorial studies/embedding-factorial-long

writes effects.svg beside this file: each treatment against nothing in its own cell, with the
interval of the verdict, and the registered margin as a band. Pale is the cell that is set aside,
as its fitted rates seem worse than some that were tried.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from paribus.files import write_bytes
from paribus.report.figures.style import ARM_COLOURS
from paribus.results.formats import read_json
from paribus.results.keeping import read_analysis

ARMS = {
    "layernorm": "LayerNorm",
    "rmsnorm": "RMSNorm",
    "center": "centring",
    "factor": "a constant factor",
    "steps": "larger steps",
}
OUTPUTS = {"": "tied", "-untied": "untied"}
WARMUPS = {"": "no warmup", "-warm": "warmup"}
CELLS = {o + w: f"{OUTPUTS[o]}, {WARMUPS[w]}" for o in OUTPUTS for w in WARMUPS}
COLOURS = dict(zip(ARMS, ARM_COLOURS, strict=False))
METRIC = "validation_loss"
SET_ASIDE = ("tied", "1,500 iterations, no warmup")
COLUMNS = 4  # panels beside each other


def analysis_of(study: Path) -> dict[str, Any]:
    """Return analysis.json of a kept study, or of a results folder."""
    there = study / "analysis.json"
    return read_json(there) if there.is_file() else read_analysis(study)


def rows(study: Path) -> list[dict[str, Any]]:
    """Return a row for each treatment and cell."""
    found = analysis_of(study)
    decided = {one["arm"]: one["decided"] for one in found["contrasts"] if one["metric"] == METRIC}
    budget = read_json(study / "study.json")["training"]["iterations"]
    told = []
    for output, warmup in ((o, w) for o in OUTPUTS for w in WARMUPS):
        for arm, called in ARMS.items():
            one = decided[f"{arm}{output}{warmup}"]
            panel = f"{budget:,} iterations, {WARMUPS[warmup]}"
            told.append(
                {
                    "arm": called,
                    "output": OUTPUTS[output],
                    "panel": panel,
                    "pale": (OUTPUTS[output], panel) == SET_ASIDE,
                    "mean": one["mean"],
                    "low": one["interval"]["low"],
                    "high": one["interval"]["high"],
                    "margin": one["margin"],
                }
            )
    return told


def panels_of(data: list[dict[str, Any]]) -> list[alt.LayerChart]:
    """Return a panel for each budget and warmup, with one axis."""
    ends = [one[key] for one in data for key in ("low", "high")]
    scale = alt.Scale(domain=[min(*ends, -0.03), max(*ends, 0.03)], nice=True)
    names, outputs = list(ARMS.values()), list(OUTPUTS.values())
    colours = alt.Scale(domain=outputs, range=list(ARM_COLOURS[:2]))
    panels = []
    for number, panel in enumerate(dict.fromkeys(one["panel"] for one in data)):
        here = [one for one in data if one["panel"] == panel]
        margin = [{"low": -here[0]["margin"], "high": here[0]["margin"]}]
        x = alt.X("low:Q", scale=scale, title="change of test loss", axis=alt.Axis(tickCount=4))
        band = (
            alt.Chart(alt.Data(values=margin))
            .mark_rect(opacity=0.12, color="#666")
            .encode(x, alt.X2("high:Q"))
        )
        axis = alt.Axis(labels=number == 0, ticks=number == 0, labelLimit=200)
        base = alt.Chart(alt.Data(values=here)).encode(
            alt.Y("arm:N", sort=names, title=None, axis=axis),
            alt.YOffset("output:N", sort=outputs),
            alt.Color("output:N", scale=colours, title=None),
            opacity=alt.condition("datum.pale", alt.value(0.3), alt.value(1)),
        )
        bars = base.mark_rule(strokeWidth=1.6).encode(x, alt.X2("high:Q"))
        points = base.mark_point(filled=True, size=50).encode(
            alt.X("mean:Q", scale=scale),
            alt.Shape("output:N", scale=alt.Scale(domain=outputs), title=None),
        )
        zero = (
            alt.Chart(alt.Data(values=[{"x": 0}]))
            .mark_rule(strokeDash=[3, 3])
            .encode(alt.X("x:Q", scale=scale))
        )
        shown = band + zero + bars + points
        panels.append(shown.properties(width=170, height=200, title=titled(panel)))
    return panels


def titled(panel: str) -> alt.TitleParams:
    """Return the title of a panel, at one height in all of them."""
    return alt.TitleParams(panel, frame="group", offset=8)


def write(panels: Sequence[alt.Chart | alt.LayerChart], name: str) -> None:
    """Write panels beside each other as a picture beside this file."""
    starts = range(0, len(panels), COLUMNS)
    rows = (alt.hconcat(*panels[i : i + COLUMNS], spacing=12, bounds="flush") for i in starts)
    made = alt.vconcat(*rows, background="white")
    made = made.configure_legend(orient="top", symbolOpacity=1, labelFontSize=13)
    made = made.configure_title(fontSize=13).configure_axis(labelFontSize=12, titleFontSize=13)
    write_bytes(Path(__file__).with_name(name), vl_convert.vegalite_to_svg(made.to_dict()).encode())


def main() -> None:
    """Write the picture."""
    data = [row for study in map(Path, sys.argv[1:]) for row in rows(study)]
    write(panels_of(data), "effects.svg")


if __name__ == "__main__":
    main()
