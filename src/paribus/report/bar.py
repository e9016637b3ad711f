"""Card of one arm against a fixed value, as printed by `paribus judge --bar`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paribus import numbers
from paribus.metric import Metric, readable
from paribus.readers.judge import digits_of
from paribus.report.cautions import READING, cautions_of_runs
from paribus.report.cells import p_text
from paribus.report.chips import chips_of_runs
from paribus.report.model import Block, Card, Row, title_of
from paribus.report.sentences import sentence
from paribus.results.records import RunsRecord
from paribus.statistics import DESCRIPTIVE_BELOW


def bar_card(against: Mapping[str, Any], runs: RunsRecord) -> Card:
    """Build the card of a comparison by `judge_against_bar`."""
    score, n, arm = against["score"], against["n"], against["arm"] or "these runs"
    side, digits = against["better"], digits_of([against["sd"] or 0.0])
    metric = Metric(score, readable(score), "", side, "evaluation", digits=digits)
    low, high = (metric.value_text(against[end]) for end in ("low", "high"))
    span = "" if against["low"] is None else f" [{low}, {high}]"
    change = f"{metric.value_text(against['mean'])}{span}  n = {n}"
    sd = "" if against["sd"] is None else f"SD {metric.value_text(against['sd'])}"
    row = Row(arm, against["word"], change, p_text(against["p"], against["p"]), sd)
    notes = dict(runs.notes)
    reading = sentence(
        "bar",
        against=against,
        level=numbers.level(against["alpha"]) if span else "",
        described=DESCRIPTIVE_BELOW if n < DESCRIPTIVE_BELOW else 0,
        notes=[notes[code] for code in READING if code in notes],
    )
    return Card(
        question=f"Exploratory: {readable(score)} of {arm} against {against['bar']:g}",
        lead="",
        blocks=(Block(title_of(metric), (row,)),),
        reading=reading,
        action="",
        secondary="",
        overruled="",
        cautions=tuple(cautions_of_runs(runs)),
        missing="",
        chips=tuple(chips_of_runs(runs)),
    )
