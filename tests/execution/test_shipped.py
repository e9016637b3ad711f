"""Every study file can be run: each arm, at a small size, passes its dry run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.setting import with_precision
from paribus.engine.setting.data import SourceText
from paribus.study import LEARNING_RATE, Study, load_study, shipped_studies, tuning_study

from ..conftest import small_text
from ..studies.scripts import all_studies, study_of

SMALL = {
    "model.n_layer": 1,
    "model.n_head": 2,
    "model.d_model": 16,
    "data.seq_len": 16,
    "training.iterations": 100,
    "training.schedule.warmup": 0,
}
# What needs a text, or a length, of its own is left out.
LADDER = ("embedding-norm-124m", "embedding-norm-350m", "embedding-norm-1b")  # planned on paper
# Of hours, as they say, on texts of their own.
LONG = (
    *("embedding-factorial", "embedding-factorial-long", "embedding-factorial-long-cliff"),
    "embedding-larger-cpu",
)
LEFT_OUT = (*LADDER, *LONG)
STUDIES = {name: study for name, study in all_studies().items() if name not in LEFT_OUT}
# Of the cost of 15 flagship trials of 100 iterations, at most.
TIMES = {
    "quickstart": 1,
    "embedding-norm-tuned": 41,
}


def blocks(study: Study, arm: str) -> int:
    """What the parameters of an arm's blocks are in proportion to."""
    model = study.setting(arm).model
    return model.n_layer * model.d_model**2


def arms() -> Iterator[tuple[Study, str]]:
    """Of all studies at a small size, those that do not go the way of one before."""
    met = set()
    for name in STUDIES:
        study = with_precision(load_study(study_of(name), SMALL), "float32")
        for arm in study.arms:
            setting = study.setting(arm)
            if setting.model.d_model > SMALL["model.d_model"]:
                continue  # an arm of a size of its own goes the way of the small ones
            name, tokenizer = setting.training.optimizer.name, setting.data.tokenizer
            if (way := (setting.model, name, tokenizer)) not in met:
                met.add(way)
                yield study, arm


@pytest.mark.parametrize(
    ("study", "arm"), list(arms()), ids=lambda given: getattr(given, "name", given)
)
def test_every_arm_passes_its_run(study: Study, arm: str, dataset: Dataset, tmp_path: Path) -> None:
    data = study.setting(arm).data
    if data.tokenizer != "character":
        # Text that has to be downloaded has a stand-in: a dry run asks how sources are mixed.
        (tmp_path / "text.txt").write_text(small_text())
        texts = {name: SourceText(path="text.txt") for name in data.sources}
        dataset = load_dataset(data.model_copy(update={"sources": texts}), tmp_path)
    assert check_arm(study, arm, dataset, torch.device("cpu"), 1) == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_of_a_size_for_its_machine(name: str) -> None:
    """Tokens of all trials, tuning included; 15 trials of 100 iterations take seven minutes of two
    cores.

    The tuned protocols are the long ones: the first has 63 tuning trials, and at most 60 for the
    verdict. Models that are smaller than the flagship count by their parameters.
    """
    study = STUDIES[name]
    assert study.title and study.question
    assert len(study.seeds) >= 3
    whole = [study, tuning_study(study)] if study.tuning else [study]
    flagship = blocks(STUDIES["embedding-norm"], "baseline")
    cost = sum(
        one.setting(arm).tokens * blocks(one, arm) / flagship
        for one in whole
        for arm, _ in one.trials
    )
    most = TIMES.get(name, 9)
    assert most / 2 < cost / (15 * 100 * 16 * 128) <= most or most == 9
    for arm in study.arms.values():
        assert arm.title and arm.description


def test_the_tuned_protocol_tunes_looks_and_seals() -> None:
    study = STUDIES["embedding-norm-tuned"]
    tuning = study.tuning
    assert study.plan.looks == (8, 12, 20)
    rates, warmups = tuning.grid.values()
    assert len(rates) >= 4 and list(warmups) == [0, 30]
    steps = [math.log10(b / a) for a, b in pairwise(map(float, rates))]
    assert all(step == pytest.approx(1 / 3, abs=0.02) for step in steps)
    assert len(tuning.seeds) == 6 and not set(tuning.seeds) & set(study.seeds)
    assert study.data.test_fraction > 0
    assert study.training.schedule.kind == "cosine" and study.training.schedule.warmup > 0
    # The arms are those of the commissioned protocol, which says of what its verdict holds.
    plain = STUDIES["embedding-norm"]
    assert {arm: one.set for arm, one in study.arms.items()} == {
        arm: one.set for arm, one in plain.arms.items()
    }
    assert "at this learning rate (3e-4)" in plain.title and "this learning rate" in plain.question
    longer = {"training.iterations": 1500, "training.schedule.warmup": 150}
    assert load_study("embedding-norm-tuned", longer).setting("baseline").iterations == 1500


def test_shipped_tuned_studies_tune_rate_and_warmup_from_none_on() -> None:
    tuned = [study for study in shipped_studies().values() if study.tuning is not None]
    assert len(tuned) == 4
    for study in tuned:
        tuning = study.tuning
        rates, *warmups = tuning.grid.values()
        assert len(rates) >= 3 and len(tuning.seeds) >= 3
        if study.name != "quickstart":
            assert set(tuning.grid) == {LEARNING_RATE, "training.schedule.warmup"}
            assert 0 in warmups[0] and len(warmups[0]) >= 2
            trials = len(tuning_study(study).trials)
            assert trials <= 144 and len(tuning.seeds) >= 5  # hours on two cores, and no more
