"""Hypotheses that a study declares: refused where nothing could speak to them, judged, and told."""

from dataclasses import replace
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import (
    decide,
    find_rule,
    judge,
    require_comparison,
    require_reachable,
    unreachable,
)
from paribus.report.cautions import unreachable_text
from paribus.study import Study

from ..build import write_results
from ..conftest import Maker, studies_in
from ..tools import refused

WORSE = {"name": "H1", "statement": "norms cost quality", "supported_by": ["REJECT"]}
SETS = {"ln": "layernorm", "rms": "rmsnorm"}


def study_with(small_study: Maker, *hypotheses: dict[str, Any], **more: Any) -> Study:
    arms = {"baseline": {}} | {
        arm: {"set": {"model.embedding.norm": norm}} for arm, norm in SETS.items()
    }
    given = {"arms": arms, "seeds": [1, 2, 3, 4, 5, 6], "decision": {"rule": "superiority"}}
    return small_study(**(given | {"hypotheses": hypotheses} | more))


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """An arm that is worse, and one that is not."""
    study = study_with(studies_in(tmp_path_factory.mktemp("hypotheses")))
    loss = lambda arm, seed: 2.5 + seed / 100 + (arm == "ln") * seed / 9  # noqa: E731
    return analyse(write_results(study.folder / "r", study, loss))


@pytest.mark.parametrize(
    ("changed", "state", "counts"),
    [
        ({}, "supported", (1, 0, 2)),
        ({"contradicted_by": ["NO EFFECT"]}, "mixed", (1, 1, 2)),
        ({"contradicted_by": ["row 5"], "arms": ["rms"]}, "contradicted", (0, 1, 1)),
        ({"supported_by": ["row 3"], "arms": ["ln"]}, "supported", (1, 0, 1)),
        ({"supported_by": ["ADOPT"], "endpoint": "validation_loss"}, "undecided", (0, 0, 2)),
    ],
)
def test_verdicts_support_or_contradict_it(analysis, small_study, changed, state, counts):
    study = study_with(small_study, WORSE | changed)
    verdicts = decide(replace(analysis, study=study))
    assert [(v.arm, v.outcome) for v in verdicts] == [("ln", "REJECT"), ("rms", "NO EFFECT")]
    (one,) = judge(study, verdicts)
    assert (one.state, (one.supporting, one.contradicting, one.verdicts)) == (state, counts)
    assert sum("H1" in v.supports for v in verdicts) == counts[0]
    assert sum("H1" in v.contradicts for v in verdicts) == counts[1]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"arms": ["lm"]}, "arm 'lm'"),
        ({"endpoint": "brier_score"}, "'brier_score'"),
        ({"contradicted_by": ["row 99"]}, "'superiority'"),
        ({"contradicted_by": ["REJECT"]}, "hypothesis 'H1'"),
    ],
)
def test_unanswerable_hypotheses(small_study, changed, why):
    with refused("value") as error:
        find_rule(study_with(small_study, WORSE | changed))
    assert why in str(error.value)


GATE = {"decision": {"rule": "stability_gate.py:STABILITY_GATE"}}
CURE = {"name": "H1b", "statement": "it cures", "supported_by": ["row 12"]}


@pytest.mark.parametrize(
    ("hypothesis", "more", "why"),
    [
        # Two contrasts: McNemar's least p is 2^(1 - n), and Holm doubles it.
        (CURE, GATE | {"seeds": range(1, 7)}, "0.0625"),
        (CURE, GATE | {"seeds": range(1, 8)}, ""),
        (WORSE | {"supported_by": ["row 2"]}, {}, "H1 cannot"),
        (WORSE | {"supported_by": ["row 2", "row 3"]}, {}, ""),  # one of the two can fire
        (WORSE | {"supported_by": ["row 4"]}, {"decision": {"throughput_budget": 0.05}}, ""),
        (WORSE | {"supported_by": ["row 3b"]}, {}, "other endpoint"),
        (
            WORSE | {"supported_by": ["ADOPT"]},
            {"decision": {"rule": "equivalence"}},
            "rule equivalence",
        ),
        (WORSE, {"seeds": [1, 2, 3]}, "3 seeds"),
    ],
)
def test_what_cannot_occur_is_refused_unless_it_is_accepted(small_study, hypothesis, more, why):
    more = {key: list(of) if key == "seeds" else of for key, of in more.items()}
    study = study_with(small_study, hypothesis, **more)
    if not why:
        require_reachable(study)
        assert unreachable(study) == []
        return
    with refused("value") as error:
        require_reachable(study)
    assert why in str(error.value)
    decision = more.get("decision", {}) | {"unreachable": "accept"}
    accepted = study_with(small_study, hypothesis, **(more | {"decision": decision}))
    require_reachable(accepted)
    assert unreachable(accepted) == unreachable(study) != []  # all the same, by `check` too
    assert accepted.digest == study.digest


def test_one_arm_is_refused_unless_it_is_accepted(small_study):
    with refused("value", match="'baseline'"):
        require_comparison(small_study(arms={"baseline": {}}))
    require_comparison(small_study())
    alone = small_study({"decision.unreachable": "accept"}, arms={"baseline": {}})
    require_comparison(alone)
    assert unreachable_text(alone) == []
