"""What arms cost in speed."""

from __future__ import annotations

from typing import Any

import altair as alt

from paribus.report.figures.figure_rows import is_large, over_seeds, seed_marks
from paribus.report.figures.style import (
    PANEL,
    PANEL_HEIGHT,
    Figure,
    arm_colour,
    hover,
    names,
    rounded,
)
from paribus.results import Results

KINDS = {"training": "training", "prefill": "reading (prefill)", "decoding": "writing (decoding)"}


def throughput(results: Results) -> Figure | None:
    """Tokens per second, measured in turn; as timed while training where that has not been done."""
    called = names(results.study)
    rows = [
        {
            "arm": called[row["arm"]],
            "seed": row["seed"],
            "kind": KINDS.get(row["kind"], row["kind"]),
            "value": rounded(row["tokens"] / row["seconds"]),
        }
        for row in results.throughput.to_pylist()
        if row["seconds"]
    ]
    how = "Arms took turns within seconds of each other."
    if not rows:
        how = "As timed while training: other load on the machine is in it."
        rows = [
            {
                "arm": called[arm],
                "seed": seed,
                "kind": "training",
                "value": rounded(results.trials[arm, seed]["tokens"] / timing["training_seconds"]),
            }
            for (arm, seed), timing in results.timing.items()
            if timing["training_seconds"]
        ]
    if not rows:
        return None
    name = "throughput"
    y: dict[str, Any] = {"title": "tokens per second", "scale": alt.Scale(zero=False)}
    base = alt.Chart().encode(  # the facet has the data
        x=alt.X("arm:N", title=None, sort=[*called.values()], axis=None),
        color=arm_colour(results.study, line=False),
    )
    if is_large(results):
        rows = over_seeds(rows, "value")
    y |= {"axis": alt.Axis(format="~s", tickCount=5)}
    told = hover("arm:N", "seed:N", alt.Tooltip("value:Q", format=",.0f"))
    seeds, said = seed_marks(results, base.encode(tooltip=told), y, size=34)
    means = base.mark_tick(thickness=2.5, width=20).encode(y=alt.Y("mean(value):Q", **y))
    chart = (
        alt.layer(seeds, means)
        .properties(width=PANEL, height=PANEL_HEIGHT)
        .facet(
            facet=alt.Facet("kind:N", title=None, sort=[*KINDS.values()]),
            columns=3,
            data=alt.NamedData(name),
        )
        .resolve_scale(y="independent")
    )
    caption = f"Tokens per second. {said} {how}"
    return Figure(name, "evaluation", "Throughput", caption, chart, rows, panel=PANEL, wide=True)
