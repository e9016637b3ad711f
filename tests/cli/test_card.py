"""The card: what a study found, on a screen; for programs verdict.json and an exit code."""

import json
from collections.abc import Callable

import pytest

from paribus.decision import WORDS

from ..build import write_results
from ..conftest import studies_in
from ..tools import verb

Loss = Callable[[str, int], float]
# By arm, what it adds to the loss; worse in name and in place of the better ones.
EFFECTS = {"a-worse": 0.3, "b-good": -0.1, "c-same": 0.001, "d-better": -0.3}
KINDS = ("layernorm", "rmsnorm", "center", "scale")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results in which each arm adds its effect to the loss."""
    folder = tmp_path_factory.mktemp("card")
    arms = {
        arm: {"set": {"model.embedding.norm": kind}}
        for arm, kind in zip(EFFECTS, KINDS, strict=True)
    }
    arms["a-worse"]["set"]["training.optimizer.name"] = "lion"
    study = studies_in(folder)(
        arms={"baseline": {}} | arms,
        seeds=[1, 2, 3, 4, 5],
        question="Does any norm of the embeddings help here, at the size of the smallest study?",
    )

    def loss(arm: str, seed: int) -> float:
        noise = 0.002 * (seed * len(arm) % 5)
        return 2.5 + 0.01 * seed + (EFFECTS[arm] + noise if arm in EFFECTS else 0.0)

    return write_results(folder / "r", study, loss).path


def test_a_card_fits_a_terminal_and_has_the_best_change_first(results):
    code, out, err = verb("report", "--no-page", results)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 17 and max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []
    told = [line.split() for line in lines if line.strip().startswith(tuple(WORDS))]
    assert [(row[0], row[1]) for row in told] == [
        ("BETTER", "d-better"),
        ("BETTER", "b-good"),
        ("SAME", "c-same"),
        ("WORSE", "a-worse"),
    ]
    assert [float(row[2]) for row in told] == pytest.approx(
        [-0.296, -0.096, 0.005, 0.304], abs=0.005
    )
    # Of one that is too small to matter, a p of a difference would say nothing.
    assert all(("TOST" in row) == (row[0] == "SAME") for row in told)
    assert "25 of 25 trials" in out and "changes on secondary" in out
    assert "No learning rate was tuned (baseline 3e-4, a-worse 3e-4)" in " ".join(out.split())
    # Without --exit-verdict a verdict is not a failure.
    assert verb("report", "--no-page", results)[:2] == (0, out)
    assert verb("report", "--no-page", results, "--exit-verdict", "--json")[0] == WORDS["WORSE"]


def test_json_stands_alone_on_standard_output(results):
    code, out, _ = verb("report", "--no-page", results, "--json")
    told = json.loads(out)
    assert code == 0 and told == json.loads((results / "verdict.json").read_text())
    verdicts = {verdict["arm"]: verdict for verdict in told["verdicts"]}
    assert verdicts.keys() == EFFECTS.keys()
    for arm, verdict in verdicts.items():
        assert verdict["low"] < verdict["effect"] < verdict["high"]
        assert verdict["effect"] == pytest.approx(EFFECTS[arm] + 0.004, abs=1e-6)
        assert 0 <= verdict["p"] <= verdict["adjusted_p"] <= 1
        assert (verdict["n"], verdict["margin"]) == (5, 0.02)
        code = "rates_not_tuned" if arm == "a-worse" else "not_tuned"
        assert code in [caution["code"] for caution in verdict["cautions"]]
    assert {"p", "adjusted_p", "unit", "better"} < told["secondary"][0].keys()
    assert verdicts["d-better"]["outcome"] == "ADOPT"
