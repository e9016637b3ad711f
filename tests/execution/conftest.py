"""Studies that are trained once for all tests here. Who writes to their folders takes a copy."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

import paribus
from paribus.results import Results, load_results
from paribus.runs.progress import Progress
from paribus.study import Study

from ..conftest import NOTHING, studies_in
from ..tools import in_one_process, made_once

SEEDS = [1, 2, 3]


@dataclass(frozen=True)
class Trained:
    """A finished study, and (finished trials, tokens done) as its run told of them."""

    study: Study
    results: Results
    seen: list[tuple[int, int]]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The small study with three seeds, by two workers, followed by everyone who can follow."""

    def study_in(folder: Path) -> Study:
        return studies_in(folder)({"evaluation.every": 3}, seeds=SEEDS)

    def train(folder: Path) -> None:
        seen: list[tuple[int, int]] = []

        def watch(progress: Progress) -> None:
            seen.append((progress.n_finished, progress.tokens_done))

        paribus.run(study_in(folder), folder / "r", workers=2, watch=watch)
        (folder / "seen.json").write_text(json.dumps(seen))

    folder = made_once(tmp_path_factory, "trained-by-execution", train)
    seen = [(n, tokens) for n, tokens in json.loads((folder / "seen.json").read_text())]
    return Trained(study_in(folder), load_results(folder / "r"), seen)


@pytest.fixture
def copy(trained, tmp_path):
    """Its results folder, to be written to."""
    return shutil.copytree(trained.results.path, tmp_path / "copy")


OWN = """
import torch
from torch import nn

print('a library that talks')

class Quiet(nn.RMSNorm):
    def __init__(self, model):
        super().__init__(model.d_model)

class Masked(nn.LayerNorm):
    '''nanoGPT keeps its causal mask as a buffer: no parameter, and none of our business.'''
    def __init__(self, model):
        super().__init__(model.d_model)
        self.register_buffer('mask', torch.ones(1))
    def forward(self, x):
        return super().forward(x) * self.mask
"""


@pytest.fixture(scope="session")
def odd_arms(tmp_path_factory):
    """One seed of arms out of the ordinary: with own modules, and one that diverges."""

    def train(folder: Path) -> None:
        (folder / "own.py").write_text(OWN + NOTHING)
        modules = {
            "quiet": {"model.modules.final_norm": "own.py:Quiet"},
            "masked": {"model.modules.final_norm": "own.py:Masked"},
            "no-attention": {"model.modules.attention": "own.py:Nothing"},
            "wild": {"training.optimizer.learning_rate": 1e30},
        }
        arms = {"baseline": {}} | {name: {"set": changes} for name, changes in modules.items()}
        study = studies_in(folder)({"training.grad_clip": None}, seeds=[1], arms=arms)
        with in_one_process():
            paribus.run(study, folder / "r", workers=1)

    return load_results(made_once(tmp_path_factory, "odd-arms", train) / "r")
