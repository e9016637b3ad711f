"""Weights & Biases: what is logged of a trial, and an error of its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paribus.results import ResultsFolder

log = pytest.importorskip("paribus.runs.wandb")


class Recorder:
    """The module `wandb` and its runs: keeps every call, and fails at the method `fails_at`."""

    def __init__(self, fails_at: str = "") -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails_at = fails_at

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Recorder:
            self.calls.append((name, arguments[0] if arguments else named))
            if name == self.fails_at:
                raise ConnectionError("the server\nis gone")
            return self

        return call


def follow(trained: Any, folder: Path) -> None:
    """Let wandb follow the first trial to its end, and the begin of the second."""
    follower = log.WeightsAndBiases(trained.study, folder)
    first, second = ([trial.arm, trial.seed] for trial in trained.results.finished[:2])
    home = ResultsFolder(trained.results.path)
    for trial, event in ((first, "trained"), (first, "finished"), (second, "trained")):
        follower.follow({"event": event, "trials": [trial], "t": 2, "losses": [3.5]}, home)
    follower.close()


def test_a_trial_is_a_run(trained, tmp_path, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(log, "wandb", recorder)
    follow(trained, tmp_path)
    trial = trained.results.finished[0]
    first, second = (named["name"] for name, named in recorder.calls if name == "init")
    assert first == trial.label and second == trained.results.finished[1].label
    assert [name for name, _ in recorder.calls].count("finish") == 2
    rows = [row for name, row in recorder.calls if name == "log"]
    assert rows[0] == rows[-1] == {"step": 2, "live/train_loss": 3.5}
    steps = trained.results.trial_steps[trial.arm, trial.seed].to_pylist()
    logged = {row["step"]: row["train_loss"] for row in rows if "train_loss" in row}
    assert logged == {row["step"]: row["train_loss"] for row in steps}
    scores = trial.read_json("evaluation.json")
    assert rows[-2]["evaluation/validation_loss"] == scores["validation_loss"]


@pytest.mark.parametrize("method", ["init", "log", "finish"])
def test_after_an_error_nothing_more_is_logged(trained, tmp_path, monkeypatch, caplog, method):
    recorder = Recorder(fails_at=method)
    monkeypatch.setattr(log, "wandb", recorder)
    follow(trained, tmp_path)
    (line,) = caplog.messages
    assert "ConnectionError: the server is gone" in line
    assert recorder.calls[-1][0] == method


def test_wandb_takes_what_it_is_given(trained, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_MODE", "offline")
    follow(trained, tmp_path)
    assert not any("continues without" in message for message in caplog.messages)
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2
