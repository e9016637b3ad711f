"""What a paper of several studies says once, and along what it says that a finding changes."""

from __future__ import annotations

from pathlib import Path

from paribus.report.paper import compose
from paribus.report.paper.alike import merged, once
from paribus.report.paper.document import BREAK, Grid, say, typeset
from paribus.report.paper.finding_by_setting import BY_BUDGET, trends
from paribus.report.paper.said_once import grouped
from paribus.report.paper.several import short_names

from .test_paper_of_several import made, material_of


def test_lines_that_differ_in_numbers_alone_are_one() -> None:
    lines = ["7 candidates on 3 seeds", "8 candidates on 12 seeds", "7 candidates on 3 seeds"]
    assert merged(lines) == "7 or 8 candidates on 3 or 12 seeds"
    assert once([*lines, "5 candidates on 3 seeds", "2 candidates on 3 seeds", "at 3e-4"]) == [
        "2 to 8 candidates on 3 or 12 seeds",
        "at 3e-4",
    ]
    assert once(["numpy 2.5.2, 5 replicas", "numpy 2.10.1, 16 replicas"]) == [
        "numpy 2.5.2 or 2.10.1, 5 or 16 replicas"
    ]


def test_equal_paragraphs_stand_once_with_their_studies() -> None:
    told = {"a": say("Same."), "b": say("Other."), "c": say("Same."), "d": say()}
    assert [p.text for p in grouped(told)] == ["In a and c: Same.", "In b: Other."]


def test_long_names_break_between_their_parts() -> None:
    name = "embedding-norm-tuned-long"
    assert typeset(name).split(BREAK) == ["embedding-", "norm-", "tuned-", "long"]
    assert all(len(part) <= 8 for part in typeset("n" * 40).split(BREAK))
    assert typeset("embedding-norm") == "embedding-norm"


def test_what_names_of_studies_begin_with_is_left_out() -> None:
    names = ["norm", "norm-tuned", "norm-tuned-long", "norm-null"]
    assert short_names(names) == ["norm", "tuned", "tuned-long", "null"]
    for alike in (["a", "b"], ["a-b"], ["x", "a-x", "a-y", "a-z"], ["a-b", "c-d"]):
        assert short_names(alike) == alike


def test_a_finding_that_changes_with_the_budget_is_told(tmp_path: Path) -> None:
    """In results, abstract and advice; and not where something else differs too."""
    effects = {"brief": (0.3, 8), "middle": (0.2, 12), "long": (0.0, 16)}
    budgets = {name: {"training.iterations": n} for name, (_, n) in effects.items()}
    brief, middle, long = (
        material_of(made(tmp_path, name, effects[name][0], overrides=budgets[name]))
        for name in effects
    )
    (trend, *_) = trends([long, brief, middle])
    assert trend.axis is BY_BUDGET and trend.called == "layernorm" and trend.changes and trend.apart
    tokens = [one.study.setting("baseline").tokens for one in (brief, middle, long)]
    assert [point.place for point in trend.points] == [(n,) for n in tokens]
    document = compose(brief, middle, long)
    parts = {part.title: str(part) for part in document.parts}
    says = (
        "worse after 8 and 12 iterations (+0.3010 and +0.2010) and within the margin after 16 "
        "iterations (+0.0010)"
    )
    for text in (parts["Results"], document.abstract[0].text):
        assert says in text
    assert "The finding changes with it." in parts["Results"]
    assert "the intervals of the least and the largest change do not overlap" in parts["Results"]
    (table,) = (
        block.table
        for part in document.parts
        for block in part.blocks
        if isinstance(block, Grid) and block.table.name == "advice"
    )
    rows = [(row[0], row[1], row[2], row[-1]) for row in table.rows]
    assert rows[0] == ("When to leave it out", "", "", "")
    assert [row[0].partition(": ")[0] for row in rows[1:3]] == ["brief", "middle"]
    for row, steps, change in zip(rows[1:3], (8, 12), ("+0.3010", "+0.2010"), strict=True):
        assert f"{steps} iterations, learning rate " in row[0] and row[1] == "layernorm; rmsnorm"
        assert row[2].startswith(f"worse: {change} [") and row[3] == "Leave it out."
    last = rows[-1]
    assert last[0].startswith("long: ") and last[2].startswith("within the margin: +0.0010 [")
    assert last[3] == "Keep the simpler model."
    wider = {"training.iterations": 16, "model.n_layer": 1}
    other_too = material_of(made(tmp_path, "other", 0.0, overrides=wider))
    assert trends([brief, other_too]) == []
