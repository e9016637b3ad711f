"""Weights & Biases, offline and for real, where it is installed."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paribus.results import ResultsFolder

pytest.importorskip("wandb")

BLOCK = 32768


def logged_in(file: Path) -> Iterator[bytes]:
    """The records of a log of LevelDB: blocks of 32 KiB, and pieces with 7 bytes before each."""
    content, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (room := BLOCK - at % BLOCK) < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the whole, or its last piece
            yield whole
            whole = b""


def read(file: Path) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """What a log says: the run, its config, and a row for each call of `log`."""
    from wandb.proto import wandb_internal_pb2

    run, config, rows = None, {}, []
    for data in logged_in(file):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            run = record.run
            config |= {item.key: json.loads(item.value_json) for item in run.config.update}
        if record.HasField("history"):
            items = record.history.item
            rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
    return run, config, rows


def test_a_run_a_trial(trained, tmp_path, monkeypatch):
    from paribus.runs.wandb import WeightsAndBiases

    monkeypatch.setenv("WANDB_MODE", "offline")
    trial = trained.results.finished[0]
    sink = WeightsAndBiases(trained.study, tmp_path)
    home, trials = ResultsFolder(trained.results.path), [(trial.arm, trial.seed)]
    sink.follow({"event": "trained", "trials": trials, "t": 2, "losses": [3.5]}, home)
    sink.follow({"event": "finished", "trials": trials}, home)
    sink.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    # On a busy machine wandb's own process writes the last row after `finish` has returned.
    until = time.monotonic() + 20
    run, config, rows = read(file)
    while "evaluation/validation_loss" not in rows[-1] and time.monotonic() < until:
        time.sleep(0.2)
        run, config, rows = read(file)
    assert run is not None and run.run_group == trial.arm
    assert (config["arm"], config["seed"]) == (trial.arm, trial.seed)
    assert rows[0]["live/train_loss"] == 3.5
    steps = trained.results.trial_steps[trial.arm, trial.seed].to_pylist()
    logged = {row["step"]: row["train_loss"] for row in rows if "train_loss" in row}
    assert logged == {row["step"]: row["train_loss"] for row in steps}
    scores = trial.read_json("evaluation.json")
    assert rows[-1]["evaluation/validation_loss"] == scores["validation_loss"]


@pytest.mark.parametrize("method", ["init", "log", "finish"])
def test_after_an_error_nothing_more_is_logged(trained, tmp_path, monkeypatch, caplog, method):
    import paribus.runs.wandb

    calls = []

    class Broken:
        def __getattr__(self, name):
            def call(*arguments, **named):
                calls.append(name)
                if name == method:
                    raise ConnectionError("the server\nis gone")
                return self

            return call

    monkeypatch.setattr(paribus.runs.wandb, "wandb", Broken())
    log = paribus.runs.wandb.WeightsAndBiases(trained.study, tmp_path)
    first, second = ([trial.arm, trial.seed] for trial in trained.results.finished[:2])
    home = ResultsFolder(trained.results.path)
    for trial, event in ((first, "trained"), (first, "finished"), (second, "trained")):
        log.follow({"event": event, "trials": [trial], "t": 2, "losses": [3.0]}, home)
    log.close()
    (line,) = caplog.messages
    assert "ConnectionError: the server is gone" in line
    assert calls[-1] == method
