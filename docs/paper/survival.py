"""The figure of stability: the share of trials that have not diverged, step by step.

    python docs/paper/survival.py studies/embedding-norm-edge

writes survival.svg beside this file, a panel for each cell. A trial has diverged from the step on
at which its loss was above the first one and stayed there, in means of ten steps: what is true at
the end is what the study registered as divergence. No trial is censored before the last step, so
that the curve is that of Kaplan and Meier.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
from effects import ARMS, COLOURS, titled, write

from paribus import load_results
from paribus.results import Results, readable

SHOWN = {"none": "plain"} | {arm: ARMS[arm] for arm in ("layernorm", "rmsnorm", "factor")}


def diverged_at(losses: np.ndarray, smoothing_steps: int) -> float:
    """Return the step at which a curve of shape (T,) diverged; infinite where it did not."""
    finite = np.where(np.isfinite(losses), losses, np.inf)
    sums = np.convolve(np.nan_to_num(finite, posinf=1e30), np.ones(smoothing_steps), "valid")
    above = sums / smoothing_steps > losses[0]
    if not above[-1]:
        return np.inf
    last_below = np.flatnonzero(~above)
    return float((last_below[-1] + 1 if last_below.size else 0) + smoothing_steps)


def rows(results: Results) -> list[dict[str, Any]]:
    """Return points of a curve for each arm, in its cell."""
    study, times = results.study, dict[str, list[float]]()
    steps = study.training.iterations
    for trial in results.finished:
        losses = trial.read_columns("steps.parquet")["train_loss"].to_numpy()
        ended = diverged_at(losses, study.stability.smoothing_steps)
        times.setdefault(trial.arm, []).append(ended)
    told = []
    for name, ends in times.items():
        arm, output, warmup = name.split("-")
        rate = study.setting(name).training.optimizer.learning_rate
        words = "warmup" if warmup == "warm" else "no warmup"
        panel = f"{output}, {words}, rate {rate:g}"
        for step in sorted({0.0, float(steps), *(end for end in ends if end < np.inf)}):
            alive = 100 * float(np.mean(np.asarray(ends) > step))
            told.append({"arm": SHOWN[arm], "panel": panel, "step": step, "alive": alive})
    return told


def panels_of(data: list[dict[str, Any]]) -> list[alt.Chart]:
    """Return a panel for each cell."""
    names = list(SHOWN.values())
    colours = [COLOURS.get(arm, "#222222") for arm in SHOWN]
    colour = alt.Color("arm:N", scale=alt.Scale(domain=names, range=colours), title=None)
    dash = alt.StrokeDash("arm:N", scale=alt.Scale(domain=names), title=None)
    panels = []
    for number, panel in enumerate(dict.fromkeys(one["panel"] for one in data)):
        here = [one for one in data if one["panel"] == panel]
        title = "trials that have not diverged, %" if number == 0 else None
        axis = alt.Axis(labelOpacity=float(number == 0), ticks=number == 0)
        chart = alt.Chart(alt.Data(values=here)).mark_line(interpolate="step-after")
        shown = chart.encode(
            alt.X(
                "step:Q",
                title="training step",
                scale=alt.Scale(domain=[0, here[-1]["step"]], nice=False),
                axis=alt.Axis(tickCount=5),
            ),
            alt.Y("alive:Q", title=title, axis=axis, scale=alt.Scale(domain=[0, 100])),
            colour,
            dash,
        )
        panels.append(shown.properties(width=210, height=190, title=titled(panel)))
    return panels


def main() -> None:
    """Write the picture."""
    study = Path(sys.argv[1])
    with readable(study) as folder:
        data = rows(load_results(folder))
    write(panels_of(data), "survival.svg")


if __name__ == "__main__":
    main()
