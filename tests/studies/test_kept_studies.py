"""The studies that the project keeps: each agrees with itself, with what ships, and with numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import paribus
from paribus.engine.format import PRECISION
from paribus.results import ResultsFolder, readable
from paribus.results.keeping import is_kept, read_analysis
from paribus.study import load_study
from paribus.study.study import substance

from . import headline
from .agreeing import disagreements
from .elsewhere import Processors, processors
from .scripts import HOME, study_of

ALL = sorted(file.parent for file in HOME.glob("*/kept.json"))
GALLERY = sorted(file.parent for file in HOME.glob("gallery/*/kept.json"))
KEPT = [kept for kept in ALL + GALLERY if is_kept(kept)]  # the others are without their records
QUICK = ("embedding-norm",)  # read in every run of the tests
MOST_MIB = 10.0  # of those kept before there was a limit of 1.5 MB

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Processors]:
    """Start processes that compute as other processors do, as far as this one can."""
    with processors() as started:
        yield started


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(kept, id=kept.name, marks=() if kept.name in QUICK else pytest.mark.slow)
        for kept in KEPT
    ],
)
def test_a_kept_study_agrees_on_every_processor(kept: Path, elsewhere: Processors) -> None:
    size = sum(file.stat().st_size for file in kept.rglob("*") if file.is_file())
    assert size <= MOST_MIB * 2**20
    with readable(kept) as results:  # as `verify` of the kept study does, once for all
        asked = elsewhere.ask(results)
        found = paribus.verify(results)
        assert list(found.findings) == []
        assert found.root == json.loads((kept / "kept.json").read_text())["root"]
        told = read_analysis(kept)
        assert list(disagreements(results, told)) == []
        study = ResultsFolder(results).read_study()
        if study.tuning:
            assert headline.best_values(results) == study.tuning.chosen
        for name, answer in asked():
            assert answer["findings"] == [], name
            assert answer["numbers"] > 100 and answer["largest"] < 1e-10, name


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_a_kept_study_is_the_one_in_its_file(kept: Path) -> None:
    ran = ResultsFolder(kept).read_study()
    asked = load_study(
        study_of(kept.relative_to(HOME).as_posix()), {PRECISION: ran.training.precision}
    )
    was = substance(ran.model_dump(mode="json"))
    if ran.training.budget == "bytes":  # which settles how many steps that is with each tokenizer
        for name, arm in asked.arms.items():
            if "training.iterations" not in arm.set:
                was["arms"][name]["set"].pop("training.iterations", None)
    assert was == substance(asked.model_dump(mode="json"))
