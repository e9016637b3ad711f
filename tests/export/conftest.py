"""A trained study of a few arms, and folders exported from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import paribus
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.model import GPT, build_model, load_parameters
from paribus.results import Results, load_results
from paribus.study import parse_study

from ..tools import in_one_process, made_once

WINDOW = 96
LINES = [
    "All else equal, does it help?",
    "The quick brown fox jumps over 13 lazy dogs;\tthey mix bold ink.",
    "Über façade: «日本» ok_not.",
]


def text(n_lines: int = 120) -> str:
    return "".join(f"{LINES[i % 3]} {i}\n" for i in range(n_lines))


ARMS = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}
STUDY: dict[str, Any] = {
    "name": "small",
    "question": "Is {this} | that better?",
    "seeds": [1],
    "data": {"corpus": "text", "path": "text", "seq_len": WINDOW, "validation_fraction": 0.4},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 32, "init": {"std": 0.2}},
    "training": {"iterations": 8, "batch_size": 4, "optimizer": {"learning_rate": 0.01}},
    "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
    "tasks": {"items": 4},  # what is asked here is asked of a suite of its own
    "arms": ARMS,
}


@dataclass(frozen=True)
class Trained:
    """Results with the folder of their text."""

    results: Results
    folder: Path

    @property
    def dataset(self) -> Dataset:
        return load_dataset(self.results.study.data, self.folder)

    def export(self, arm: str, out: Path, seed: int = 1) -> Path:
        return paribus.export_trial(self.results.path, arm, seed, out, folder=self.folder)

    def model(self, arm: str, seed: int = 1) -> GPT:
        """Our own model with the weights of the trial."""
        trial = next(t for t in self.results.finished if (t.arm, t.seed) == (arm, seed))
        model = build_model(self.results.study.setting(arm), self.dataset.vocab_size)
        load_parameters(model, trial.read_weights())
        return model.eval()


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Every arm of ARMS, trained a little on three documents."""

    def train(folder: Path) -> None:
        (folder / "text").mkdir()
        for document in range(3):
            (folder / "text" / f"{document}.txt").write_text(text(), encoding="utf-8")
        parsed = parse_study(STUDY, folder=folder)
        with in_one_process():
            paribus.run(parsed, folder / "results", workers=1, device="cpu")

    folder = made_once(tmp_path_factory, "trained-by-export", train)
    return Trained(load_results(folder / "results"), folder)


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    """`exported(arm)`: the folder of its first seed, written once."""
    root, done = tmp_path_factory.mktemp("exported"), {}

    def export(arm: str) -> Path:
        if arm not in done:
            done[arm] = trained.export(arm, root / arm)
        return done[arm]

    return export


@pytest.fixture(scope="session")
def tokens(trained):
    """[3, WINDOW] of any tokens."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, trained.dataset.vocab_size, (3, WINDOW), generator=generator)
