"""The commissioned rule: the commissioned truth table, and the studies that name it."""

import itertools
import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from paribus.decision import SHIPPED, Evidence, find_rule
from paribus.decision.evidence import Fix, Quality
from paribus.decision.rule import rule_from_record
from paribus.results.registration import keep_sources
from paribus.study import load_study
from paribus.study.custom_code import EXAMPLES, digests_of

from ..decision.test_rules import PLAIN, STATES, evidence
from .scripts import HOME, all_studies, script

FILE = "stability_gate.py"
NAME = f"{FILE}:STABILITY_GATE"
UNSTABLE = {"baseline_stable": False}
CURED = UNSTABLE | {"fix": "fix"}
# The table of the commissioned documents: (evidence, row).
TABLE: list[tuple[dict[str, Any], str]] = [
    ({"invalid": "a run is missing"}, "0"),
    ({"n": 4}, "1"),
    ({"fix": "harm"}, "2"),
    ({"collapse": True}, "2b"),
    ({"quality": "Q-"}, "3"),
    ({"quality": "Q0"}, "4"),
    ({"quality": "Q+"}, "5"),
    ({"quality": "Q?"}, "6"),
    (UNSTABLE | {"quality": "Q-"}, "7"),
    (UNSTABLE | {"quality": "Q0"}, "8"),
    (UNSTABLE | {"quality": "Q+"}, "8"),
    (UNSTABLE | {"quality": "Q?"}, "8"),
    (CURED | {"quality": "Q-"}, "9"),
    (CURED | {"quality": "Q+", "elsewhere": "worse"}, "9b"),
    (CURED | {"quality": "Q?"}, "10"),
    (CURED | {"quality": "Q0", "budget": "over"}, "11"),
    (CURED | {"quality": "Q+", "budget": "over"}, "11"),
    (CURED | {"quality": "Q0", "budget": "not shown"}, "11b"),
    (CURED | {"quality": "Q+", "divergence": "more"}, "11c"),
    (CURED | {"quality": "Q0"}, "12"),
    (CURED | {"quality": "Q+"}, "12"),
    # First match wins.
    ({"invalid": "x", "n": 1, "fix": "harm"}, "0"),
    ({"n": 2, "fix": "harm"}, "1"),
    (UNSTABLE | {"fix": "harm", "quality": "Q+"}, "2"),
    ({"fix": "fix", "quality": "Q+"}, "5"),
    ({"collapse": True, "fix": "harm"}, "2"),
]
OUTCOMES = {
    "BASELINE": {"2", "2b", "3", "4", "7", "9", "9b", "11"},
    "IMPROVES": {"5"},
    "INCONCLUSIVE": {"6", "8", "10", "11b", "11c"},
    "ADOPT": {"12"},
}

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


@pytest.fixture(scope="module")
def rule():
    return script("stability_gate").STABILITY_GATE


@pytest.mark.parametrize(("changes", "row"), TABLE)
def test_the_commissioned_table_by_hand(rule, changes, row):
    assert rule.decide(evidence(**(PLAIN | changes))).id == row


def test_outcomes_of_rows(rule):
    rows: dict[str, set[str]] = {}
    for row in rule.rows:
        rows.setdefault(row.outcome, set()).add(row.id)
    assert rows == OUTCOMES
    assert {row for _, row in TABLE} == set(rule.all_rows)
    assert len({row.when for row in rule.rows}) == len(rule.rows)
    assert len({row.reason or row.when for row in rule.rows}) == len(rule.rows)


def test_better_quality_never_gets_a_worse_verdict(rule):
    rank = {"BASELINE": 0, "INCONCLUSIVE": 1, "IMPROVES": 2, "ADOPT": 2}
    stable, fix = (False, True), get_args(Fix)
    for baseline_stable, fixes in itertools.product(stable, fix):
        given = PLAIN | {"baseline_stable": baseline_stable, "fix": fixes}
        outcomes = [
            rank[rule.decide(evidence(**(given | {"quality": quality}))).outcome]
            for quality in ("Q-", "Q?", "Q+")
        ]
        assert outcomes == sorted(outcomes)
    assert set(get_args(Quality)) == {"Q-", "Q0", "Q?", "Q+"}


def test_a_registered_table_of_all_states_decides_as_the_rule(rule):
    """The first kept studies registered a row for each state."""
    path = HOME / "embedding-norm" / "registration.json"
    registered = rule_from_record(json.loads(path.read_text())["own_rule"]["rule"], "here")
    for facts in (Evidence("", 5, state) for state in STATES):
        assert registered.decide(facts) == replace(rule.decide(facts), holds=({},))


def test_commissioned_studies_name_the_rule_and_its_budgets():
    studies = {name: study.decision for name, study in all_studies().items()}
    commissioned = {name for name in studies if name.startswith("embedding-norm")}
    assert {name for name, decision in studies.items() if decision.rule == NAME} == commissioned
    for name in commissioned:
        decision = studies[name]
        assert (decision.calibration_budget, decision.throughput_budget) == (0.01, 0.05)
    others = {decision.rule for decision in studies.values()} - {NAME}
    assert others == {"superiority", "equivalence"} and others < SHIPPED.keys()
    assert studies["quickstart"].rule == "superiority"


def test_the_examples_ship_the_same_file():
    shipped = EXAMPLES / "commissioned" / FILE
    assert shipped.read_bytes() == (HOME / FILE).read_bytes()


def test_an_example_finds_its_rule_wherever_it_is_run(small_study, tmp_path, monkeypatch, rule):
    monkeypatch.chdir(tmp_path)
    example = load_study("embedding-norm")
    assert example.folder == tmp_path
    assert find_rule(example).record == rule.record
    # A copy of the example's study file finds it too, and so does one beside a copy of the rule.
    study = small_study({"decision.rule": NAME})
    assert find_rule(study).record == rule.record
    shipped = digests_of([NAME], "decision.rule", study.folder)
    (study.folder / FILE).write_bytes((HOME / FILE).read_bytes())
    assert digests_of([NAME], "decision.rule", study.folder) == shipped
    assert list(shipped[NAME]) == [FILE]
    assert keep_sources(example, tmp_path / "results").keys() == {FILE}
    # Also where the package is installed below the working directory.
    assert digests_of([NAME], "decision.rule", EXAMPLES.parents[2]) == shipped
    # A file of the user's own takes precedence.
    (study.folder / FILE).write_text("STABILITY_GATE = 3\n")
    assert digests_of([NAME], "decision.rule", study.folder) != shipped
