"""The gallery's study files are those of its script, and examples are sound."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from paribus.engine.data import batch, load_dataset
from paribus.study import load_study

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "studies/gallery"
STUDIES = sorted(GALLERY.glob("*.toml"))
EXAMPLES = sorted((ROOT / "examples").glob("*/study.toml"))


def test_the_gallery_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("make", GALLERY / "make.py")
    assert spec and spec.loader
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_is_a_study(path: Path) -> None:
    assert len(load_study(str(path)).arms) > 1


def test_the_own_curriculum_reads_plain_prose_first() -> None:
    study = load_study(str(ROOT / "examples/curriculum/study.toml"))
    setting = study.setting("plain-first")
    dataset = load_dataset(setting.data, study.folder)

    def signs(t: int) -> float:
        rows = batch(dataset.train, 1, t, 16, setting.data.seq_len, dataset.windows, 300)
        text = dataset.tokenizer.decode(rows.ravel())
        return sum(not (c.islower() or c.isspace()) for c in text) / len(text)

    first, last = (sum(signs(t) for t in steps) / 10 for steps in (range(10), range(290, 300)))
    assert first < 0.8 * last
