"""The user's own rules: whole or refused before anything runs, and decided as registered."""

import copy

import pytest

from paribus.analysis import analyse
from paribus.decision import decide, find_rule, rule_of, shipped_rule
from paribus.decision.rule import rule_from_record
from paribus.errors import ParibusError
from paribus.study import Study

from ..tools import refused

OWN = """
from paribus.decision import Row, Rule

def row(id, outcome, holds=({},), **more):
    return Row(id, outcome, **({"when": "w", "reason": "as we judge it", "holds": holds} | more))

def rule(*rows, **more):
    return Rule(**({"name": "bold", "title": "our bold rule", "rows": rows} | more))

LAST = row("30", "INCONCLUSIVE", open="quality")
BETTER = row("10", "ADOPT", {"quality": "Q+"})
MINE = %s
"""
BOLD = 'rule(BETTER, row("20", "REJECT", {"quality": "Q-"}), LAST)'


@pytest.fixture
def with_own(small_study, tmp_path):
    def make(code: str) -> Study:
        (tmp_path / "mine.py").write_text(OWN % code)
        return small_study({"decision.rule": "mine.py:MINE"}, seeds=list(range(1, 7)))

    return make


@pytest.mark.parametrize(
    "code",
    [
        "rule(BETTER)",  # a state without a row
        'rule(row("1a", "ADOPT"), row("2a", "REJECT", {"quality": "Q-"}))',  # never decides
        "rule(BETTER, BETTER, LAST)",
        'rule(row("0", "ADOPT"))',
        'rule(row("1a", "INVALID"))',
        'rule(row("1a", "REJECT", open="cure"))',
        'rule(row("1a", "ADOPT", {"quality": "good"}), LAST)',
        r'rule(LAST, title="t\x1b[31m")',
        'rule(LAST, keys=("calibration_budgt",))',
        "3",
    ],
)
def test_incomplete_rules(with_own, code):
    with pytest.raises(ParibusError) as error:
        find_rule(with_own(code))
    assert "decision.rule = 'mine.py:MINE'" in str(error.value)


def test_an_own_rule_runs_only_once(with_own, fabricate):
    study = with_own(BOLD)
    results = fabricate(
        study, lambda arm, seed: 2.5 + 0.01 * seed - (0.1 + 0.001 * seed) * (arm == "layernorm")
    )
    (study.folder / "mine.py").write_text("raise SystemExit")
    (results.path / "sources" / "mine.py").write_text("raise SystemExit")
    analysis = analyse(results)
    assert rule_of(analysis).title.startswith("our bold")
    layernorm, rmsnorm = decide(analysis)
    assert (layernorm.row, layernorm.outcome, layernorm.rule) == ("10", "ADOPT", "mine.py:MINE")
    assert (rmsnorm.row, rmsnorm.outcome) == ("30", "INCONCLUSIVE")
    # The word is that of the evidence, whatever the rule does.
    assert (layernorm.word, rmsnorm.word) == ("BETTER", "SAME")


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r.update(table="0" * 7775),
        lambda r: r.update(table="z" * 7776),
        lambda r: r["rows"][0].update(outcome="WIN"),
        lambda r: r["rows"][0].update(why="w"),
        lambda r: r.pop("rows"),
        lambda r: r.update(keys=["benefits"]),
    ],
)
def test_an_edited_rule_is_refused(damage):
    record = copy.deepcopy(shipped_rule("superiority").record)
    damage(record)
    with refused("value"):
        rule_from_record(record, "registration.json")
