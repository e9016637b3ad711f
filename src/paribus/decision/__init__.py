"""Verdicts on arms: verdict labels, decision rules, and evaluation of hypotheses."""

from paribus.decision.evidence import Evidence, State
from paribus.decision.hypotheses import Judgement, judge
from paribus.decision.reach import require_comparison, require_reachable, unreachable
from paribus.decision.rule import OUTCOMES, UNJUDGED, Row, Rule
from paribus.decision.rules import SHIPPED, find_rule, own_rule, rule_of, shipped_rule
from paribus.decision.schema import Depends, Verdict
from paribus.decision.verdict import Verdicts, decide
from paribus.decision.word import STYLE_OF, TRUTH, WORDS, Word, exit_code, word_of
