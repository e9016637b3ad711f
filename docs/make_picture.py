"""The picture at the top of the README, from two kept studies.

python docs/make_picture.py docs/embedding-norm.svg

Left: mean held-out loss of every learning rate that was tried, after 300 and after 1,500 iterations
(3 tuning seeds). Right: the change of held-out loss along the 1,500, each arm at its best rate
minus the baseline at the same seed, with 95% t intervals of every point by itself (20 seeds).
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
from paribus.report.figures.style import colours
from paribus.results import ResultsFolder, readable
from paribus.results.formats import read_json

STUDIES = Path(__file__).parents[1] / "studies"
SHORT, LONG = STUDIES / "embedding-norm-tuned", STUDIES / "embedding-norm-tuned-long"
RATE = "training.optimizer.learning_rate"


def by_rate(kept: Path) -> list[dict[str, Any]]:
    """A row for each arm and learning rate: the mean over tuning seeds."""
    study, tuning = read_json(kept / "study.json"), read_json(kept / "tuning.json")
    found: dict[tuple[str, int], list[float]] = {}
    for trial in tuning["trials"]:
        found.setdefault((trial["arm"], trial["candidate"]), []).append(trial["value"])
    return [
        {
            "arm": study["arms"][arm]["title"],
            "rate": tuning["candidates"][candidate - 1][RATE],
            "loss": float(np.mean(values)),
            "iterations": f"{study['training']['iterations']:,} iterations",
        }
        for (arm, candidate), values in found.items()
    ]


def along(kept: Path) -> list[dict[str, Any]]:
    """A row for each arm and point of the held-out curve: the mean change and its interval."""
    rows = []
    with readable(kept) as folder:
        results = paribus.load_results(folder)
        study, curves = results.study, {}
        for trial in results.finished:
            table = trial.read_columns("curve.parquet")
            nats, n = (table[name].to_numpy() for name in ("loss_sum_nats", "predicted"))
            curves[trial.arm, trial.seed] = table["step"].to_numpy(), nats / n
    for arm in study.arms:
        if arm == study.baseline:
            continue
        change = [c - curves[study.baseline, s][1] for (a, s), (_, c) in curves.items() if a == arm]
        n = len(change)
        half = stats.t.ppf(0.975, n - 1) * np.std(change, axis=0, ddof=1) / np.sqrt(n)
        steps, mean = curves[arm, study.seeds[0]][0], np.mean(change, axis=0)
        rows += [
            {"arm": study.arms[arm].title, "step": int(t), "change": m, "low": m - h, "high": m + h}
            for t, m, h in zip(steps, mean.tolist(), half.tolist(), strict=True)
        ]
    return rows


def _colours(kept: Path) -> dict[str, str]:
    """The colour of each arm, by its title."""
    study = ResultsFolder(kept).read_study()
    return {study.arms[arm].title: colour for arm, colour in colours(study).items()}


def picture() -> alt.HConcatChart:
    tried, changed = by_rate(SHORT) + by_rate(LONG), along(LONG)
    palette = _colours(LONG)
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    colour = alt.Color("arm:N", scale=scale, title=None)
    rates = alt.Scale(type="log", domain=[8e-5, 0.027], nice=False)
    ticks = alt.Axis(values=[1e-4, 3e-4, 1e-3, 3e-3, 1e-2], format="~g")
    called = [row for row in tried if row["arm"] == "baseline" and row["rate"] == 1e-3]
    lines = (
        alt.Chart(alt.Data(values=tried))
        .mark_line(point=True)
        .encode(
            alt.X("rate:Q", scale=rates, axis=ticks, title="learning rate"),
            alt.Y("loss:Q", scale=alt.Scale(zero=False), title="held-out loss, nats/token"),
            colour,
            alt.StrokeDash("iterations:N", legend=None),
        )
    )
    words = (
        alt.Chart(alt.Data(values=called))
        .mark_text(dy=22, dx=-20, fontSize=12)
        .encode(alt.X("rate:Q"), alt.Y("loss:Q"), alt.Text("iterations:N"))
    )
    left = (lines + words).properties(width=400, height=270)
    base = alt.Chart(alt.Data(values=changed)).encode(alt.X("step:Q", title="training iterations"))
    title = "change of held-out loss, nats/token"
    band = base.mark_area(opacity=0.2).encode(alt.Y("low:Q", title=title), alt.Y2("high:Q"), colour)
    line = base.mark_line(point=True).encode(alt.Y("change:Q"), colour)
    zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(strokeDash=[3, 3]).encode(y="y:Q")
    right = (zero + band + line).properties(width=400, height=270)
    return alt.hconcat(left, right, spacing=40, background="white").configure_legend(orient="top")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    svg = vl_convert.vegalite_to_svg(picture().to_dict())
    parser.parse_args().picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
