"""The card: what a study found, on a screen; for programs verdict.json and an exit code."""

import json
from pathlib import Path

import pytest

from paribus.decision import WORDS

from ..build import write_results
from ..conftest import studies_in
from ..tools import verb

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
    assert code == 0
    told = json.loads(out)
    assert told == json.loads((results / "verdict.json").read_text())
    found = {one["arm"]: one for one in told["verdicts"]}
    assert {arm: one["word"] for arm, one in found.items()} == {
        **{"a-worse": "WORSE", "b-good": "BETTER", "c-same": "SAME", "d-better": "BETTER"}
    }
    for arm, one in found.items():
        assert one["low"] < one["effect"] < one["high"]
        assert one["effect"] == pytest.approx(EFFECTS[arm] + 0.004, abs=1e-6)
        assert 0 <= one["p"] <= one["adjusted_p"] <= 1
        assert (one["n"], one["margin"]) == (5, 0.02)
        assert all(caution["code"] and caution["text"] for caution in one["cautions"])
        assert "not_tuned" in [caution["code"] for caution in one["cautions"]]
    assert found["d-better"]["action"] == "adopt d-better"
    assert found["a-worse"]["action"] == found["c-same"]["action"] == "keep baseline"


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
    assert verb("report", "--no-page", results, "--exit-verdict")[0] == code
    assert verb("report", "--no-page", results, "--exit-verdict", "--json")[0] == code


def told_of(folder: Path, **options: object) -> tuple[str, dict[str, dict]]:
    """The card, and the verdicts of verdict.json by arm."""
    make: dict = dict(options)
    loss = make.pop("loss", lambda arm, seed: 2.5 + 0.01 * seed)
    arms = {"baseline": {}, "other": {"set": {"model.embedding.norm": "center"}}}
    study = studies_in(folder)(arms=arms, seeds=[1, 2, 3, 4, 5], **make.pop("study", {}))
    path = write_results(folder / "r", study, loss, **make).path
    out = verb("report", "--no-page", path)[1]
    found = json.loads((path / "verdict.json").read_text())["verdicts"]
    return out, {one["arm"]: one for one in found}


def test_where_every_trial_diverged_that_comes_first(tmp_path):
    every = [(arm, seed) for arm in ("baseline", "other") for seed in range(1, 6)]
    out, verdicts = told_of(tmp_path, diverged=every)
    question, first, *rest = out.splitlines()
    assert "every" in first.lower() and "diverged" in first
    assert not any(word in question + first for word in WORDS)
    assert any(line.split()[:2] == ["UNRESOLVED", "other"] for line in rest)
    assert verdicts["other"]["needed"]["why_not"] and verdicts["other"]["pairs_needed"] is None


def test_what_is_not_resolved_says_what_would_resolve_it(tmp_path):
    noise = {1: 0.05, 2: -0.04, 3: 0.03, 4: -0.05, 5: 0.02}
    out, verdicts = told_of(tmp_path, loss=lambda arm, seed: 2.5 + (arm == "other") * noise[seed])
    one = verdicts["other"]
    assert one["word"] == "UNRESOLVED" and one["pairs_needed"] > 5 and not one["needed"]["why_not"]
    assert f"needs ~{one['pairs_needed']} seeds" in out
