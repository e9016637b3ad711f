"""What a paper of several studies says once, and along what it says that a finding changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paribus.report.paper import compose
from paribus.report.paper.alike import merged, once
from paribus.report.paper.appendix_parts import FOUND
from paribus.report.paper.by_output_matrix import by_output_matrix
from paribus.report.paper.caveats import often_said, rates_untold, shared_caveats
from paribus.report.paper.document import BREAK, Grid, say, typeset
from paribus.report.paper.finding_by_setting import (
    BY_BUDGET,
    BY_OUTPUT_MATRIX,
    along,
    differing,
    finding_by_setting,
    setting_table,
    trends,
)
from paribus.report.paper.mechanism import mechanism, mechanism_in_short
from paribus.report.paper.said_once import grouped
from paribus.report.paper.several import short_names
from paribus.report.paper.study_section import details

from .test_paper_of_several import NORMS, made, material_of


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
    assert says[1:] in parts["Results"]  # it begins a cell
    short = says.replace("+0.3010 and +0.2010", "+0.2010 to +0.3010")
    assert f"layernorm and rmsnorm are {short}" in document.abstract[0].text
    assert "The finding changes with it." in parts["Results"]
    assert "'apart'" in parts["Results"]
    (table,) = (
        block.table
        for part in document.parts
        for block in part.blocks
        if isinstance(block, Grid) and block.table.name == "advice"
    )
    rows = [(row[0], row[1], row[2], row[-1]) for row in table.rows]
    assert rows[0] == ("When to leave it out", "", "", "")
    worse, same = rows[1], rows[-1]  # a row for all that fared alike
    assert worse[0].startswith("brief: ") and "8 iterations, learning rate " in worse[0]
    assert "; middle: " in worse[0] and "12 iterations, learning rate " in worse[0]
    assert worse[1] == "layernorm (2 arms); rmsnorm (2 arms)" and worse[3] == "Leave it out."
    assert worse[2].startswith("worse: +0.2010 to +0.3010, intervals within [")
    assert same[0].startswith("long: ") and same[2].startswith("within the margin: +0.0010 [")
    assert same[3] == "Choose on other grounds."
    wider = {"training.iterations": 16, "model.n_layer": 1}
    other_too = material_of(made(tmp_path, "other", 0.0, overrides=wider))
    assert trends([brief, other_too]) == []


def test_a_finding_that_turns_with_the_output_matrix_is_told(tmp_path: Path) -> None:
    """The sign turns where the output matrix is one of its own: in results and abstract, and in
    the section on the mechanism, where the parts of a norm are those of the study that has most."""
    arms: dict[str, Any] = {"baseline": {}}
    arms |= {name: {"set": {"model.embedding.norm": name}} for name in NORMS}
    arms["unit"] = {"set": {"model.init.token_std": 1.0}}
    few = {name: arms[name] for name in ("baseline", "fixed_scale", "unit", "layernorm")}
    own = {"model.head.tied": False}
    tied = material_of(made(tmp_path, "tied", 0.3, arms=arms))
    untied = material_of(made(tmp_path, "untied", -0.2, arms=few, overrides=own))
    found = [trend for trend in trends([tied, untied]) if trend.axis is BY_OUTPUT_MATRIX]
    assert {trend.called for trend in found} == {"fixed_scale", "unit", "layernorm"}
    assert all(trend.changes and trend.apart for trend in found)
    says = (
        "worse where the token matrix is the output matrix (+0.3010) and better where it is not "
        "(-0.1990)"
    )
    (told,) = (line for line in finding_by_setting([tied, untied]) if "output matrix. " in line)
    assert "Settings of tied and untied share all but the output matrix. " in told
    table = setting_table([tied, untied])
    assert table is not None and table.rows[0] == ("By output matrix: validation loss", "", "")
    assert ("layernorm", f"{says.capitalize()}.", "apart") in table.rows
    assert f" are {says}" in compose(tied, untied).abstract[0].text
    part = mechanism([tied, untied], 0)
    said = "" if part is None else str(part)
    at_start = "scale at the start alone (initialization of the token matrix, the output matrix"
    assert at_start in said and at_start in mechanism_in_short([tied, untied])
    other = "In untied (an output matrix of its own) a constant scale alone (fixed_scale) is "
    assert f"{other}better, -0.1990 [" in said
    # The whole norm is no part, and a token matrix that is no output matrix is that alone.
    assert "(initialization of token embeddings) (unit) is better" in said
    assert "In untied (an output matrix of its own) scale, centring" not in said


def test_settings_of_one_length_and_of_one_matrix_are_told_apart(tmp_path: Path) -> None:
    """Where studies of one length differ, they are named; and whose output matrix it is."""
    own = {"model.head.tied": False}
    long = {"training.iterations": 16}
    effects = {"brief": (0.3, {}), "long": (0.0, long), "again": (0.2, long)}
    effects |= {"own-brief": (-0.2, own), "own-long": (-0.1, own | long)}
    studies = [
        material_of(made(tmp_path, name, effect, overrides=keys))
        for name, (effect, keys) in effects.items()
    ]
    found = trends(studies)
    by_budget = {trend.called: trend for trend in found if trend.axis is BY_BUDGET}
    of_its_own = "layernorm with an output matrix of its own"
    assert {"layernorm", of_its_own} <= by_budget.keys()
    assert along(by_budget["layernorm"]) == (
        "worse after 8 iterations (+0.3010), worse after 16 iterations in again (+0.2010) and "
        "within the margin after 16 iterations in long (+0.0010)"
    )
    named = {trend.called for trend in found if trend.axis is BY_OUTPUT_MATRIX}
    assert {"layernorm after 8 iterations", "layernorm after 16 iterations"} <= named

    figure = by_output_matrix(studies)
    assert figure is not None
    drawn = {(row["treatment"], row["study"]): row for row in figure.rows}
    assert drawn.keys() == {(norm, name) for norm in ("layernorm", "rmsnorm") for name in effects}
    assert drawn["layernorm", "own-long"]["matrix"] == "is its own"
    assert drawn["layernorm", "again"]["mean"] == pytest.approx(0.201, abs=1e-6)
    assert by_output_matrix(studies[:3]) is None  # one matrix
    assert by_output_matrix([studies[0], studies[3]]) is None  # one length
    whole, short = compose(*studies), compose(*studies, detail=details(len(studies))[-1])
    assert len(whole.parts) - len(short.parts) == len(studies)  # a section each, which then opens
    opening = [part for part in short.appendix if part.title == FOUND]
    assert len(opening) == len(studies) and "loss is worse" in str(opening[0])
    assert FOUND not in {part.title for part in whole.appendix}


def test_what_differs_too_is_told(tmp_path: Path) -> None:
    budgets = {"brief": {}, "long": {"training.iterations": 16, "training.schedule.warmup": 2}}
    brief, long = (
        material_of(made(tmp_path, name, 0.3, overrides=budgets[name])) for name in budgets
    )
    (trend, *_) = trends([brief, long])
    assert differing(BY_BUDGET, trend.points) == ["the training budget", "the warmup"]
    assert (
        "Between studies in whose settings only the training budget and the warmup differ"
        in str(compose(brief, long))
    )
    assert "differ too" not in finding_by_setting([brief, long])[0]
    object.__setattr__(long.study, "seeds", [7, 8, 9, 10, 11])
    assert " Seeds differ too. " in finding_by_setting([brief, long])[0]


def test_values_that_tuning_did_not_tell_apart_are_said_once(tmp_path: Path) -> None:
    """By arm and study, and not with the numbers of several studies in one sentence."""
    one, other, plain = (material_of(made(tmp_path, name, 0.3)) for name in ("a", "b", "c"))
    rates = [{"training.optimizer.learning_rate": rate} for rate in (1e-2, 1e-3)]
    for material, best in ((one, {"baseline": 1}), (other, {"layernorm": 1})):
        tuned = SimpleNamespace(
            values_differ_untold=lambda arm, *_: arm == "layernorm",
            why_values_differ=lambda arm, *_: f"{arm} and its values",
            best=lambda arm, best=best: best.get(arm, 2),
            values_of=lambda number: rates[number - 1],
        )
        material.analysis.__dict__["tuned"] = tuned
        for verdict in material.verdicts[:2]:
            verdict.__dict__["caveats"] = [f"{verdict.arm} and its values.", "Another."]
    plain.verdicts[0].__dict__["caveats"] = ["Another."]
    (said,) = rates_untold([one, other, plain])
    assert (
        "in a (layernorm learning rate 0.001, baseline learning rate 0.01) and b (layernorm "
        "learning rate 0.01, baseline learning rate 0.001): part of these changes"
    ) in said
    assert rates_untold([plain]) == []
    assert "layernorm and its values." in often_said([one, other, plain])
    assert shared_caveats([one, other, plain]) == ["In a, b and c: Another."]
