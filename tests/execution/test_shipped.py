"""Every study file can be run: each arm, at a small size, passes its dry run."""

from collections.abc import Iterator

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.engine.data import load_dataset
from paribus.engine.setting import with_precision
from paribus.engine.setting.data import SourceText
from paribus.study import Study, load_study

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
def test_every_arm_passes_its_run(study, arm, dataset, tmp_path):
    data = study.setting(arm).data
    if data.tokenizer != "character":
        # Text that has to be downloaded has a stand-in: a dry run asks how sources are mixed.
        (tmp_path / "text.txt").write_text(small_text())
        texts = {name: SourceText(path="text.txt") for name in data.sources}
        dataset = load_dataset(data.model_copy(update={"sources": texts}), tmp_path)
    assert check_arm(study, arm, dataset, torch.device("cpu"), 1) == []
