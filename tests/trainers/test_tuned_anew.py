"""Tuned anew for every verdict seed: choices, tests and records against what is known of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

import paribus
from paribus.analysis import analyse
from paribus.cli import main
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.section_tables import tuning_tables
from paribus.results import Results, ResultsFolder, extend, load_results
from paribus.study import Study, null_study, tuned_null_studies
from paribus.verification import verify

from .drawn import loss

RATE = "training.optimizer.learning_rate"
RATES = [1.0, 2.0, 4.0, 8.0, 16.0]
EFFECTS = {"baseline": 0.0, "near": 0.005, "far": 0.5}
STUDY: dict[str, Any] = {
    "name": "drawn",
    "trainer": "drawn.py:Drawn",
    "seeds": [3, 5, 8, 13, 21, 34],
    "endpoints": [{"metric": "loss", "primary": True, "margin": 0.01}],
    "drawn": {"rate": 1.0, "by": 0.0},
    "arms": {
        "baseline": {},
        "near": {"set": {"drawn.by": EFFECTS["near"]}},
        "far": {"set": {"drawn.by": EFFECTS["far"]}},
    },
    "inference": {"choice": "replicated"},
    "tuning": {"seeds": [101, 102], "grid": {"drawn.rate": RATES}},
}


def study(**changed: Any) -> Study:
    return paribus.load_study(STUDY | changed)


def expected(one: Study) -> dict[str, dict[str, float]]:
    """The rate of every arm by verdict seed, from the losses themselves."""
    found: dict[str, dict[str, float]] = {}
    for at, seed in enumerate(one.seeds):
        seeds = (101 + 2 * at, 102 + 2 * at)
        found[str(seed)] = {
            arm: min(RATES, key=lambda r: sum(loss(arm, r, s, by) for s in seeds))
            for arm, by in EFFECTS.items()
        }
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("anew")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PARIBUS_LEDGER", "")
        shutil.copy(Path(__file__).with_name("drawn.py"), folder)
        return paribus.run(study(), folder / "r")


@pytest.fixture
def here(made: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARIBUS_LEDGER", "")
    shutil.copy(Path(__file__).with_name("drawn.py"), tmp_path)
    return tmp_path


@pytest.fixture
def copy(made: Results, here: Path) -> Path:
    return shutil.copytree(made.path, here / "copy")


def test_every_seed_has_its_own_choice_and_the_plain_test(made: Results) -> None:
    known = expected(made.study)
    assert made.study.tuning is not None
    chosen = {
        seed: {arm: of["drawn.rate"] for arm, of in by_arm.items()}
        for seed, by_arm in made.study.tuning.chosen_by_seed.items()
    }
    assert chosen == known
    assert len({by_arm["near"] for by_arm in known.values()}) > 1, "else it would not show"
    scores = {
        arm: [loss(arm, known[str(seed)][arm], seed, by) for seed in made.study.seeds]
        for arm, by in EFFECTS.items()
    }
    analysis = analyse(made)
    assert analysis.unregistered == "" and analysis.tuned is None
    for arm in ("near", "far"):
        contrast = analysis.contrast(arm, "loss")
        assert contrast.choice is None and contrast.decided is not None
        assert contrast.decided.p_value == pytest.approx(
            scipy.stats.ttest_rel(scores[arm], scores["baseline"]).pvalue
        )
    held = {(one.name, one.arm): one.state for one in analysis.controls}
    assert held["setting", "near"] == held["setting", "far"] == "held"
    json.dumps(analysis.to_dict(), allow_nan=False)
    assert "tuned anew for every seed" in decide(analysis)[0].sentence


def test_tuning_seeds_are_registered_and_no_two_seeds_share_one(made: Results) -> None:
    registered = json.loads((made.path / "registration.json").read_text())["tuning_seeds"]
    every = [seed for seeds in registered.values() for seed in seeds]
    assert registered.keys() == {str(seed) for seed in made.study.seeds}
    assert len(every) == len(set(every)) == 2 * 6 and not set(every) & set(made.study.seeds)
    for seed in made.study.seeds:
        (there,) = ResultsFolder(made.path).rounds_of(seed)
        assert list(there.read_study().seeds) == registered[str(seed)]


def test_tables_have_the_median_and_range_and_every_seed(made: Results) -> None:
    summary, by_seed, *_ = tuning_tables(analyse(made))
    known = expected(made.study)
    rates = sorted(of["near"] for of in known.values())
    cell = next(row for row in summary.rows if row[0] == "near")[1]
    median = (rates[2] + rates[3]) / 2
    assert cell == f"rate {median:g} ({rates[0]:g} to {rates[-1]:g})"
    assert [row[0] for row in by_seed.rows] == [str(seed) for seed in made.study.seeds]
    assert by_seed.rows[0][1:] == tuple(f"rate {known['3'][arm]:g}" for arm in EFFECTS)


def test_it_agrees_with_itself(made: Results) -> None:
    assert verify(made.path).findings == ()


@pytest.mark.slow
def test_it_is_reported_and_kept(copy: Path) -> None:
    for words in (
        ["report", "copy", "--no-paper"],
        ["status", "copy"],
        ["archive", "copy", "kept"],
    ):
        assert main(words) == 0, words
    assert verify("kept").findings == ()


def test_a_run_that_was_killed_in_a_round_comes_to_the_same(made: Results, here: Path) -> None:
    Path("stop").touch()
    with pytest.raises(KeyboardInterrupt):
        paribus.run(study(), "again")
    Path("stop").unlink()
    again = paribus.run(study(), "again")
    assert again.study.tuning == made.study.tuning
    assert analyse(again).to_dict() == analyse(made).to_dict()
    lines = Path("trained.txt").read_text().splitlines()
    assert len(lines) == 6 * 3 * (2 * 5 + 1) + 1, "one trial was begun twice"
    paribus.run(study(), "again")
    assert Path("trained.txt").read_text().splitlines() == lines


def edited(folder: Path) -> tuple[str, dict[str, Any]]:
    """Another choice for an arm at a seed, in study.json; its seed, and tuning.json with it too."""
    path = folder / "study.json"
    table = json.loads(path.read_text())
    seed, other = "5", ResultsFolder(folder).read_tuning()
    before = table["tuning"]["chosen_by_seed"][seed]["near"]["drawn.rate"]
    rate = next(one for one in RATES if one != before)
    table["tuning"]["chosen_by_seed"][seed]["near"]["drawn.rate"] = rate
    path.write_text(json.dumps(table))
    other["by_seed"][seed]["chosen"]["near"]["values"]["drawn.rate"] = rate
    return seed, other


def test_a_choice_that_was_edited_is_invalid(copy: Path) -> None:
    seed, record = edited(copy)
    with pytest.raises(ParibusError, match=r"tuning\.json chose"):
        load_results(copy)
    folder = ResultsFolder(copy)
    folder.seal("tuning.json", record)
    with pytest.raises(ParibusError, match="another setting"):
        load_results(copy)
    trial = folder.trial("near", int(seed))
    about = json.loads((trial.path / "trial.json").read_text())
    about["setting"]["drawn"]["rate"] = record["by_seed"][seed]["chosen"]["near"]["values"][
        "drawn.rate"
    ]
    trial.write_json("trial.json", about)
    trial.finish(["trial.json", "evaluation.json"])
    results = load_results(copy)  # all seals are right
    words = {one.arm: one.word for one in decide(analyse(results))}
    assert words == {"near": "INVALID", "far": "INVALID"}
    assert any("seed 5" in finding for finding in verify(copy).findings)
    with pytest.raises(ParibusError, match="is not what the tuning trials give"):
        paribus.run(study(), copy)


def test_a_seed_without_its_rounds_is_not_chosen(copy: Path) -> None:
    shutil.rmtree(copy / "tuning" / "seed-8")
    assert "at seed 8 are not there" in analyse(load_results(copy)).unregistered
    with pytest.raises(ParibusError, match="no longer in"):
        paribus.run(study(), copy)


def test_a_look_tunes_the_arms_that_go_on(here: Path) -> None:
    seeds = {"looks": [5, 7], "futility": 0.0}
    results = paribus.run(study(seeds=seeds), "looks")
    arms = {seed: len(one.read_study().arms) // 5 for seed, one in rounds("looks").items()}
    assert arms == {1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 6: 2, 7: 2}
    assert not results.unfinished and verify("looks").findings == ()
    analysis = analyse(results)
    assert analysis.unregistered == ""
    assert (len(analysis.contrast("far").seeds), len(analysis.contrast("near").seeds)) == (5, 7)
    assert all(table.rows for table in tuning_tables(analysis)[:2])


def rounds(folder: str) -> dict[int, ResultsFolder]:
    found = {}
    for one in ResultsFolder(Path(folder)).tuning_rounds:
        found[int(one.path.parent.name.removeprefix("seed-"))] = one
    return found


@pytest.mark.slow
def test_a_second_stage_is_tuned_too(copy: Path) -> None:
    extend(copy, 2)
    results = paribus.run(study(), copy)
    assert rounds(str(copy)).keys() == {3, 5, 8, 13, 21, 34, 35, 36}
    assert analyse(results).unregistered == "" and verify(copy).findings == ()


def test_a_grid_grows_for_the_seed_whose_best_is_at_its_edge(here: Path) -> None:
    grows = STUDY["tuning"] | {
        "edge": "extend",
        "extensions": 1,
        "grid": {"drawn.rate": [2.0, 4.0]},
    }
    results = paribus.run(study(seeds=[3, 5], tuning=grows), "r")
    counts = [len(ResultsFolder(results.path).rounds_of(seed)) for seed in (3, 5)]
    assert counts == [2, 2] and verify("r").findings == ()


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"seeds": [1, 103]}, "103 is a verdict seed"),
        ({"tuning": STUDY["tuning"] | {"seeds": [2**63 - 2]}}, "is the largest"),
    ],
)
def test_what_cannot_be_tuned_anew_is_refused(changed: dict[str, Any], line: str) -> None:
    with pytest.raises(ParibusError, match=line):
        study(**changed)


def test_one_model_for_all_trials_of_an_arm(small_study: Callable[..., Study]) -> None:
    plan = {"seeds": [101], "grid": {"model.n_layer": [1, 2]}}
    with pytest.raises(ParibusError, match="one model"):
        small_study(tuning=plan, inference={"choice": "replicated"})


def test_replicates_of_a_null_share_no_seed(small_study: Callable[..., Study]) -> None:
    plan = {"seeds": [101, 102], "grid": {RATE: [1e-4, 1e-3]}}
    ours = small_study(seeds=[1, 2, 3], tuning=plan, inference={"choice": "replicated"})
    found: list[int] = []
    for one in tuned_null_studies(ours, 3):
        assert one.tuning is not None and one.tunes_anew
        found += [*one.seeds, *(s for at in range(3) for s in one.tuning.seeds_for(at))]
    assert len(found) == len(set(found)) == 3 * (3 + 6)
    assert not null_study(ours, 2).tunes_anew
