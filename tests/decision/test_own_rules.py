"""The user's own rules: whole or refused before anything runs, and decided as registered."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import Row, decide, find_rule, rule_of, shipped_rules
from paribus.decision.rule import rule_from_record
from paribus.errors import ParibusError
from paribus.study import Study

from ..conftest import Fabricate, Maker

OWN = """
import random
import sys
from paribus.decision import Row, Rule

def row(id, outcome, holds, **more):
    words = {"when": "w", "reason": "as we judge it"}
    return Row(id, outcome, holds=holds, **(words | more))

BOLD = Rule("bold", "our bold rule", "An arm is adopted where it is better.", (
    row("10", "ADOPT", lambda s: s.quality == "Q+"),
    row("20", "REJECT", lambda s: s.quality == "Q-"),
    row("30", "INCONCLUSIVE", lambda s: True, open="quality", claims=False),
))
OPEN = Rule("open", "open", "a", (
    row("1a", "ADOPT", lambda s: s.quality == "Q+"),
    row("2a", "REJECT", lambda s: s.quality in ("Q-", "Q?")),
))
DEAD = Rule("dead", "dead", "a", (
    row("1a", "ADOPT", lambda s: True),
    row("2a", "REJECT", lambda s: s.quality == "Q-"),
))
FAILS = Rule("fails", "fails", "a", (row("1a", "ADOPT", lambda s: s.effect > 0),))
TWICE = Rule("twice", "twice", "a", (
    row("1a", "ADOPT", lambda s: s.collapse),
    row("1a", "REJECT", lambda s: True),
))
BRACES = Rule("braces", "braces", "{secret}", (row("1a", "ADOPT", lambda s: True),))
SOMETHING = 3
ALWAYS = (row("10", "ADOPT", lambda s: True),)
LINES = Rule("lines", "two\\nlines", "a", ALWAYS)
NONSENSE = Rule("nonsense", "t", "a", ALWAYS, keys=("calibration_budgt",))
TABLED = Rule("tabled", "t", "a", ALWAYS, registered="0" * 864)
class Other(Rule):
    def decide(self, evidence): return self.rows[0]
SUBCLASS = Other("subclass", "t", "a", ALWAYS)
EXITS = Rule("exits", "t", "a", (row("10", "ADOPT", lambda s: sys.exit(0)),))
DRAWN = Rule("drawn", "t", "a", (
    row("10", "ADOPT", lambda s: random.random() < 0.5),
    row("11", "REJECT", lambda s: True),
))
NAN = Rule("nan", "t", "a", (row("10", "ADOPT", lambda s: float("nan")),))
"""


@pytest.fixture
def with_own(small_study: Maker, tmp_path: Path) -> Callable[[str], Study]:
    (tmp_path / "mine.py").write_text(OWN)
    seeds = list(range(1, 7))
    return lambda name: small_study({"decision.rule": f"mine.py:{name}"}, seeds=seeds)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("OPEN", "no row holds where quality = Q0, not_worse = True"),
        ("DEAD", "row '2a' never fires"),
        ("FAILS", "AttributeError: 'State' object has no attribute 'effect'"),
        ("TWICE", "row '1a' is there twice"),
        ("BRACES", "adopts names {secret}"),
        ("LINES", "title is a line"),
        ("NONSENSE", "key 'calibration_budgt' is none of [decision]: did you mean"),
        ("TABLED", "`registered` is left out"),
        ("SUBCLASS", "no subclass"),
        ("EXITS", "SystemExit: 0"),
        ("DRAWN", "when asked again; a condition may use the state only"),
        ("NAN", "row 10: its condition gives nan where quality = Q0"),
        ("SOMETHING", "no rule of that name"),
    ],
)
def test_incomplete_rules(with_own: Callable[[str], Study], name: str, why: str) -> None:
    with pytest.raises(ParibusError) as error:
        find_rule(with_own(name))
    assert why in str(error.value)
    assert f"decision.rule = 'mine.py:{name}'" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_own_rule_runs_only_once(with_own: Callable[[str], Study], fabricate: Fabricate) -> None:
    study = with_own("BOLD")
    results = fabricate(
        study,
        lambda arm, seed: 2.5 + 0.01 * seed - (0.1 + 0.001 * seed) * (arm == "layernorm"),
    )
    (study.folder / "mine.py").write_text("raise SystemExit")
    (results.path / "sources" / "mine.py").write_text("raise SystemExit")
    analysis = analyse(results)
    assert rule_of(analysis).title == "our bold rule"
    layernorm, rmsnorm = decide(analysis)
    assert (layernorm.row, layernorm.outcome, layernorm.rule) == ("10", "ADOPT", "mine.py:BOLD")
    assert (rmsnorm.row, rmsnorm.outcome) == ("30", "INCONCLUSIVE")
    # The word is that of the evidence, whatever the rule does.
    assert (layernorm.word, rmsnorm.word) == ("BETTER", "SAME")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda r: r.update(table=r["table"][:-1]), "does not name a row for every state"),
        (lambda r: r["rows"][0].update(outcome="WIN"), "outcome 'WIN'"),
        (lambda r: r.update(adopts="{least.__class__}"), "adopts names {least.__class__}"),
        (lambda r: r.update(adopts="{least:>999999999}"), "adopts names {least}"),
        (lambda r: r.update(keys="benefit"), "its keys are a list"),
        (lambda r: r.update(keys=["benefits"]), "key 'benefits' is none of [decision]"),
    ],
)
def test_an_edited_rule_is_refused(damage: Callable[[dict[str, Any]], object], why: str) -> None:
    record = {**shipped_rules()["superiority"].record}
    record["rows"] = [dict(row) for row in record["rows"]]
    damage(record)
    with pytest.raises(ParibusError, match="this is no decision rule") as error:
        rule_from_record(record, "registration.json")
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"outcome": "ADOPT", "claims": False}, "ADOPT claims an effect of the arm"),
        ({"outcome": "IMPROVES", "claims": False}, "IMPROVES claims an effect of the arm"),
        ({"outcome": "DIFFERENT", "claims": False}, "DIFFERENT claims an effect of the arm"),
        ({"outcome": "REJECT", "open": "cure"}, "REJECT has nothing open"),
    ],
)
def test_a_row_cannot_contradict_its_outcome(words: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Row("9", when="w", reason="r", **words)


def test_the_rule_of_the_documentation_is_whole(small_study: Maker, tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs" / "how-to" / "rule.md"
    (code,) = re.findall(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.S)
    (tmp_path / "ideas.py").write_text(code)
    rule = find_rule(small_study({"decision.rule": "ideas.py:CAUTIOUS"}))
    assert [row.outcome for row in rule.rows] == ["REJECT", "ADOPT", "INCONCLUSIVE"]
