"""The gallery's study files are those of its script, and examples are sound."""

from __future__ import annotations

from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.runs.progress import Progress
from paribus.study import load_study

from ..conftest import studies_in
from .scripts import script

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "studies/gallery"
STUDIES = sorted(GALLERY.glob("*.toml"))
EXAMPLES = sorted((ROOT / "examples").glob("*/study.toml"))


def test_the_gallery_is_what_its_script_writes() -> None:
    make = script("gallery/make")
    assert {path.stem for path in STUDIES} == set(make.QUESTIONS)
    for path in STUDIES:
        assert path.read_text("utf-8") == make.study(path.stem)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_of_the_gallery_is_one_question(path: Path) -> None:
    study = load_study(str(path))
    assert study.question.endswith("?") and len(study.seeds) == 8
    assert study.tuning is not None and len(study.tuning.keys) == 2
    if study.training.budget == "tokens":
        assert len({study.setting(arm).tokens for arm in study.arms}) == 1


def test_what_readers_call_arms_is_of_arms() -> None:
    for name, words in script("gallery/tell").CALLED.items():
        assert words.keys() <= load_study(str(GALLERY / f"{name}.toml")).arms.keys()


def stop(progress: Progress) -> None:
    if progress.n_finished:
        raise KeyboardInterrupt


@pytest.mark.slow
def test_a_borrowed_arm_is_the_one_that_would_be_trained(tmp_path: Path) -> None:
    borrow = script("gallery/borrow").borrow
    tuning = {
        "seeds": [101, 102],
        "grid": {"training.optimizer.learning_rate": [1e-4, 1e-3, 1e-2]},
    }
    norm = "model.embedding.norm"
    arms = {"plain": {}, "layernorm": {"set": {norm: "layernorm"}}}
    others = {"none": {}, "rmsnorm": {"set": {norm: "rmsnorm"}}}
    studies = studies_in(tmp_path)
    first = studies(arms=arms, baseline="plain", tuning=tuning, seeds=[1, 2])
    second = studies(arms=others, baseline="none", tuning=tuning, seeds=[1, 2])
    paribus.run(first, tmp_path / "first", workers=2)
    paribus.run(second, tmp_path / "trained", workers=2)
    with pytest.raises(KeyboardInterrupt):  # its tuning is registered when it trains
        paribus.run(second, tmp_path / "borrowed", workers=1, watch=stop)
    source, target = (ResultsFolder(tmp_path / name) for name in ("first", "borrowed"))
    n = borrow(source, "plain", target, "none")
    assert 2 + 3 * 2 > n >= 2 + 3 * 2 - 2  # of its own there are one or two
    with pytest.raises(ParibusError, match="another setting"):
        borrow(source, "layernorm", target, "rmsnorm")
    paribus.run(second, target.path, workers=2)
    trained = ResultsFolder(tmp_path / "trained")
    for ours, theirs in zip(
        (target, target.tuning_trials), (trained, trained.tuning_trials), strict=True
    ):
        trials = ours.read_study().trials
        seals = [[folder.trial(*trial).seal for trial in trials] for folder in (ours, theirs)]
        assert None not in seals[0] and seals[0] == seals[1]
    assert not paribus.verify(target.path).findings


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_a_study(path: Path) -> None:
    assert len(load_study(str(path)).arms) > 1
