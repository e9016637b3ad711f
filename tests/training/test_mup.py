"""The example of muP: coordinates stay as wide models train, and grow without it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paribus.engine.data import load_dataset
from paribus.engine.probes import study_probes
from paribus.engine.training import Trainer
from paribus.study import load_study

pytestmark = pytest.mark.slow
STUDY = Path(__file__).parents[2] / "examples/mup/study.toml"
WIDTHS = np.log2([32, 64, 128])
STEPS = 12


@pytest.fixture(scope="module")
def coordinates():
    """{arm: [parts] after some steps}, the mean over two seeds."""
    study = load_study(str(STUDY))
    dataset = load_dataset(study.data, study.folder)
    (probe,) = (replace(one, every=1) for one in study_probes(study) if one.name == "coordinates")
    found = {}
    for arm in study.arms:
        trainer = Trainer(study.setting(arm), [1, 2], dataset, folder=study.folder, probes=[probe])
        for _ in range(STEPS):
            trainer.step()
        rows = [trainer.state(r).measured[-1, len(trainer.columns) :] for r in range(2)]
        found[arm] = np.mean(rows, axis=0)
    return found


def slopes(coordinates: dict[str, np.ndarray], kind: str) -> np.ndarray:
    """Return [parts], by what power of the width coordinates grow."""
    sizes = [coordinates[arm] for arm in ("width-32", f"{kind}-64", f"{kind}-128")]
    return np.polyfit(WIDTHS, np.log2(sizes), 1)[0]


def test_under_mup_coordinates_are_flat_over_widths_and_grow_without(coordinates):
    assert np.abs(slopes(coordinates, "mup")).max() < 0.15
    assert slopes(coordinates, "standard")[1:-1].min() > 0.8
