"""Every study that ships can be run: each arm, at a small size, passes its dry run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from paribus.data import Dataset, load_dataset
from paribus.execution.checks.dry_run import dry_run
from paribus.model import count_parameters
from paribus.study import Study, load_study, shipped_studies, tuning_study, with_precision

SMALL = {
    "model.n_layer": 1,
    "model.n_head": 2,
    "model.d_model": 16,
    "data.seq_len": 16,
    "training.iterations": 100,
}
STUDIES = shipped_studies()


def arms() -> Iterator[tuple[Study, str]]:
    """Of all studies at a small size, those that do not go the way of one before."""
    met = set()
    for name in STUDIES:
        study = with_precision(load_study(name, SMALL), "float32")
        for arm in study.arms:
            setting = study.setting(arm)
            name, tokenizer = setting.training.optimizer.name, setting.data.tokenizer
            if (way := (setting.model, name, tokenizer)) not in met:
                met.add(way)
                yield study, arm


@pytest.mark.parametrize(("study", "arm"), arms(), ids=lambda given: getattr(given, "name", given))
def test_every_arm_passes_its_dry_run(study: Study, arm: str, dataset: Dataset) -> None:
    data = study.setting(arm).data
    if data.tokenizer != "character":
        dataset = load_dataset(data, study.folder)
    assert dry_run(study, arm, dataset, torch.device("cpu"), 1) == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_of_a_size_for_two_cores(name: str) -> None:
    """Tokens of all trials; `quickstart`'s 15 trials of 100 iterations take seven minutes."""
    study = STUDIES[name]
    assert study.title and study.question
    assert len(study.seeds) >= 3
    whole = [study, tuning_study(study, study.tuning.candidates)] if study.tuning else [study]
    tokens = sum(one.setting(arm).tokens for one in whole for arm, _ in one.trials)
    assert tokens <= 9 * 15 * 100 * 16 * 128
    for arm in study.arms.values():
        assert arm.title and arm.description


def test_what_the_descriptions_count() -> None:
    rotary, gates = STUDIES["rotary-or-learned"], STUDIES["swiglu-or-gelu"]
    size = {
        arm: count_parameters(study.setting(arm), 65)
        for study in (rotary, gates)
        for arm in study.arms
    }
    assert size["baseline"] - size["rotary"] == 16_384
    assert abs(size["swiglu"] - size["baseline"]) < 0.01 * size["baseline"]
    mlp = 8 * 2 * 128 * 512
    assert size["swiglu-wide"] - size["baseline"] == pytest.approx(mlp / 2, rel=0.01)
