"""What a design cannot see whatever the spread: told before anything trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.analysis import sights
from paribus.errors import ParibusError
from paribus.study import Study
from paribus.study.custom_code import measuring_digests
from paribus.study.importing import load_own

from ..conftest import Maker

TASKS = {"own": ["ideas.py:last_letter"], "names": ["last_letter"], "items": 20}
EFFECT = {"primary": True, "margin": 0.05, "smallest_effect": 0.02}


@pytest.fixture
def asking(small_study: Maker) -> Maker:
    """A study of eight seeds with these primary endpoints; the code that it names is not there."""

    def make(*metrics: str, n: int = 8, tasks: dict = TASKS) -> Study:
        endpoints = [{"metric": metric} | EFFECT for metric in metrics]
        return small_study(seeds=list(range(1, n + 1)), endpoints=endpoints, tasks=tasks)

    return make


def test_an_effect_is_seen_up_to_some_spread(asking: Maker) -> None:
    (sight,) = sights(asking("validation_loss"))
    assert sight.why_not == "" and sight.sd


def test_a_file_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "ideas.py").touch()
    for find in (
        lambda: load_own("idea.py:f", "here", "probe", callable, tmp_path),
        lambda: measuring_digests(["idea.py:f"], "here", tmp_path),
    ):
        with pytest.raises(ParibusError, match=r"no file .*: did you mean 'ideas.py'\?; paths"):
            find()
