"""The card: what a study found, on a screen; for programs verdict.json and an exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.analysis import analyse
from paribus.decision import WORDS, decide
from paribus.report.model import build_report
from paribus.report.record import verdict_record
from paribus.results import load_results

from ..build import write_results
from ..conftest import studies_in
from ..tools import verb

Loss = Callable[[str, int], float]
# By arm, what it adds to the loss; worse in name and in place of the better ones.
EFFECTS = {"a-worse": 0.3, "b-good": -0.1, "c-same": 0.001, "d-better": -0.3}
KINDS = ("layernorm", "rmsnorm", "center", "scale")


def fabricated(folder: Path, effects: dict[str, float], seeds: int = 5) -> Path:
    """Results in which each arm adds its effect to the loss."""
    arms = {
        arm: {"set": {"model.embedding.norm": kind}}
        for arm, kind in zip(effects, KINDS, strict=False)
    }
    study = studies_in(folder)(
        arms={"baseline": {}} | arms,
        seeds=list(range(1, seeds + 1)),
        question="Does any norm of the embeddings help here, at the size of the smallest study?",
    )

    def loss(arm: str, seed: int) -> float:
        noise = 0.002 * (seed * len(arm) % 5)
        return 2.5 + 0.01 * seed + (effects[arm] + noise if arm in effects else 0.0)

    return write_results(folder / "r", study, loss).path


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return fabricated(tmp_path_factory.mktemp("card"), EFFECTS)


def test_a_card_fits_a_terminal_and_has_the_best_change_first(results):
    code, out, err = verb("report", "--no-page", results)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 16 and max(map(len, lines)) <= 80
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
    assert all(("p" in row) == (row[0] != "SAME") for row in told)
    assert "25 of 25 trials" in out
    assert verb("report", "--no-page", results)[1] == out


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
        assert "not_tuned" in [caution["code"] for caution in verdict["cautions"]]
    assert verdicts["d-better"]["outcome"] == "ADOPT"


@pytest.mark.parametrize(
    ("effects", "seeds", "code"),
    [
        (EFFECTS, 5, 11),
        ({"b-good": -0.1}, 5, 0),
        ({"b-good": -0.1, "c-same": 0.001}, 5, 12),
        ({"b-good": -0.1}, 2, 14),
    ],
    ids=["WORSE", "BETTER", "SAME", "DESCRIPTIVE"],
)
def test_the_exit_code(effects, seeds, code, tmp_path):
    results = fabricated(tmp_path, effects, seeds)
    assert verb("report", "--no-page", results)[0] == 0, (
        "where it is not asked for, a verdict is not a failure"
    )
    assert verb("report", "--no-page", results, "--exit-verdict", "--json")[0] == code


def told_of(folder: Path, loss: Loss = lambda arm, seed: 2.5, **options) -> tuple[str, dict]:
    """The card, and the verdict on the arm `other`."""
    arms = {"baseline": {}, "other": {"set": {"model.embedding.norm": "center"}}}
    study = studies_in(folder)(arms=arms, seeds=[1, 2, 3, 4, 5])
    path = write_results(folder / "r", study, loss, **options).path
    out = verb("report", "--no-page", path)[1]
    return out, json.loads((path / "verdict.json").read_text())["verdicts"][0]


def test_where_every_trial_diverged_that_comes_first(tmp_path):
    every = [(arm, seed) for arm in ("baseline", "other") for seed in range(1, 6)]
    out, verdict = told_of(tmp_path, diverged=every)
    question, first, *rest = out.splitlines()
    assert "every" in first.lower() and "diverged" in first
    assert not any(word in question + first for word in WORDS)
    assert any(line.split()[:2] == ["UNRESOLVED", "other"] for line in rest)
    assert any(line.split()[:1] == ["needs"] for line in rest)
    assert verdict["needed"]["why_not"] and verdict["needed"]["pairs"] is None


def test_what_would_resolve_a_verdict_is_a_code_with_words_in_the_report():
    kept = Path(__file__).parents[2] / "studies" / "embedding-norm"
    verdicts = decide(analyse(load_results(kept)))
    assert {verdict.needed.instead for verdict in verdicts} == {"", "items"}
    records = verdict_record(build_report(verdicts))["verdicts"]
    for verdict, record in zip(verdicts, records, strict=True):
        assert bool(verdict.needed.instead) == bool(record["needed"]["instead"])
        assert record["needed"]["instead"] in record["needs"]


def test_what_is_not_resolved_says_what_would_resolve_it(tmp_path):
    noise = {1: 0.05, 2: -0.04, 3: 0.03, 4: -0.05, 5: 0.02}
    out, verdict = told_of(tmp_path, lambda arm, seed: 2.5 + (arm == "other") * noise[seed])
    assert verdict["word"] == "UNRESOLVED" and not verdict["needed"]["why_not"]
    pairs = verdict["needed"]["pairs"]
    assert pairs > 5 and f"needs ~{pairs} seeds" in out
