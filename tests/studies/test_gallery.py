"""The gallery's study files are those of its script, and examples are sound."""

from pathlib import Path

import pytest

from paribus.study import load_study

from .scripts import script

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "studies/gallery"
STUDIES = sorted(GALLERY.glob("*.toml"))
EXAMPLES = sorted((ROOT / "examples").glob("*/study.toml"))


def test_the_gallery_is_what_its_script_writes():
    make = script("gallery/make")
    assert {path.stem for path in STUDIES} == set(make.QUESTIONS)
    for path in STUDIES:
        assert path.read_text("utf-8") == make.study(path.stem)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_of_the_gallery_is_one_question(path):
    study = load_study(str(path))
    assert study.question.endswith("?") and len(study.seeds) == 8
    assert study.tuning is not None and len(study.tuning.keys) == 2
    if study.training.budget == "tokens":
        assert len({study.setting(arm).tokens for arm in study.arms}) == 1


def test_what_readers_call_arms_is_of_arms():
    for name, words in script("gallery/tell").CALLED.items():
        assert words.keys() <= load_study(str(GALLERY / f"{name}.toml")).arms.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_a_study(path):
    assert len(load_study(str(path)).arms) > 1
