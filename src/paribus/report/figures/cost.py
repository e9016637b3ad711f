"""What arms cost in speed, and how delicate their learning rate is."""

from __future__ import annotations

import math

import altair as alt

from paribus.analysis import Analysis
from paribus.report.figures.style import (
    HEIGHT,
    PANEL,
    PANEL_HEIGHT,
    WIDTH,
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
    y = {"title": "tokens per second", "scale": alt.Scale(zero=False)}
    base = alt.Chart().encode(  # the facet has the data
        x=alt.X("arm:N", title=None, sort=[*called.values()], axis=None),
        color=arm_colour(results.study, line=False),
    )
    seeds = base.mark_circle(size=34, opacity=0.55).encode(
        y=alt.Y("value:Q", **y, axis=alt.Axis(format="~s", tickCount=5)),
        tooltip=hover("arm:N", "seed:N", alt.Tooltip("value:Q", format=",.0f")),
    )
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
    caption = f"Tokens per second, a dot for each seed and a bar for their mean. {how}"
    return Figure(name, "evaluation", "Throughput", caption, chart, rows, panel=PANEL, wide=True)


def learning_rates(analysis: Analysis) -> Figure | None:
    """Final loss against the learning rate, where the study sweeps it."""
    study, called = analysis.study, names(analysis.study)
    # A sweep has the colour of the arm whose learning rate is the study's own, or of its first.
    own = study.training.optimizer.learning_rate
    rows = []
    for sweep, arms in ((name, spec.arms) for name, spec in study.sweeps.items()):
        rates = {arm: study.setting(arm).training.optimizer.learning_rate for arm in arms}
        face = next((arm for arm in arms if rates[arm] == own), arms[0])
        try:
            values = {arm: analysis.summary(arm, "validation_loss").values for arm in arms}
        except StopIteration:  # the study has no such endpoint
            return None
        rows += [
            {
                "sweep": sweep,
                "arm": called[face],
                "seed": seed,
                "rate": rates[arm],
                "value": rounded(value),
            }
            for arm in arms
            for seed, value in values[arm].items()
            if math.isfinite(value)
        ]
    if not rows:
        return None
    name = "learning-rates"
    x = alt.X(
        "rate:Q",
        title="learning rate",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(format="~g", values=sorted({row["rate"] for row in rows})),
    )
    y = {"title": "validation loss (nats/token)", "scale": alt.Scale(zero=False)}
    faces = list(dict.fromkeys(row["arm"] for row in rows))
    base = alt.Chart(alt.NamedData(name)).encode(x=x, color=arm_colour(study, shown=faces))
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45).encode(
        y=alt.Y("value:Q", **y), detail=[alt.Detail("seed:N"), alt.Detail("sweep:N")]
    )
    thick = base.mark_line(strokeWidth=2.2, point=alt.OverlayMarkDef(size=36)).encode(
        y=alt.Y("mean(value):Q", **y),
        detail=alt.Detail("sweep:N"),
        tooltip=hover("sweep:N", "rate:Q", alt.Tooltip("mean(value):Q", format=".4f")),
    )
    chart = alt.layer(thin, thick).properties(width=WIDTH, height=HEIGHT)
    caption = (
        "Validation loss against the learning rate: thin lines are seeds, thick ones their mean. "
        "A line that bends little is easy to tune. Diverged trials are absent here; the "
        "sensitivities in the tables count them."
    )
    title = "Learning-rate sensitivity"
    return Figure(name, "stability", title, caption, chart, rows)
