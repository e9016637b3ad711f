"""Verdicts by the registered rule, its rows and their words, and the hypotheses they judge."""

from paribus.decision.evidence import Evidence, State, benefit_of, worse_elsewhere
from paribus.decision.hypotheses import Judgement, judge
from paribus.decision.interactions import Depends, DependsWord, depends
from paribus.decision.null import Calibration, calibrate, calibrate_tuned
from paribus.decision.reach import (
    out_of_reach,
    require_comparison,
    require_reachable,
    unreachable,
)
from paribus.decision.rule import OUTCOMES, UNJUDGED, Row, Rule
from paribus.decision.rules import find_rule, own_rule, rule_of, shipped_rules
from paribus.decision.verdict import (
    TESTS,
    Beside,
    Caution,
    Verdict,
    Verdicts,
    beside,
    change_in_words,
    decide,
    effect_in_words,
    excluded_in_words,
    losses_in_words,
    no_partner_in_words,
    shared_caveats,
    size_in_words,
    titled,
    uncommitted,
    verdict_record,
)
from paribus.decision.word import STYLE_OF, TRUTH, WORDS, Word, exit_code, word_of

__all__ = [
    "OUTCOMES",
    "STYLE_OF",
    "TESTS",
    "TRUTH",
    "UNJUDGED",
    "WORDS",
    "Beside",
    "Calibration",
    "Caution",
    "Depends",
    "DependsWord",
    "Evidence",
    "Judgement",
    "Row",
    "Rule",
    "State",
    "Verdict",
    "Verdicts",
    "Word",
    "benefit_of",
    "beside",
    "calibrate",
    "calibrate_tuned",
    "change_in_words",
    "decide",
    "depends",
    "effect_in_words",
    "excluded_in_words",
    "exit_code",
    "find_rule",
    "judge",
    "losses_in_words",
    "no_partner_in_words",
    "out_of_reach",
    "own_rule",
    "require_comparison",
    "require_reachable",
    "rule_of",
    "shared_caveats",
    "shipped_rules",
    "size_in_words",
    "titled",
    "uncommitted",
    "unreachable",
    "verdict_record",
    "word_of",
    "worse_elsewhere",
]
