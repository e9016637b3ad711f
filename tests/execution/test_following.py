"""Following a run from outside: the live file, `paribus status`, and trackers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.results import Results, ResultsFolder
from paribus.runs import trackers
from paribus.runs.progress import read_progress
from paribus.runs.queue import Order, Queue

from ..tools import verb


def shown(folder: Path) -> str:
    code, out, _ = verb("status", folder)
    assert code == 0
    return out


def test_a_run_is_followed_by_tensorboard_and_leaves_no_live_file(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    results = trained.results
    events = EventAccumulator(str(results.path / "tensorboard" / "layernorm" / "seed-1"))
    events.Reload()
    logged = events.Scalars("train_loss")
    steps = results.trial_steps["layernorm", 1]
    assert [event.step for event in logged] == steps["step"].to_pylist()
    assert [event.value for event in logged] == pytest.approx(steps["train_loss"].to_pylist())
    (loss,) = events.Scalars("evaluation/validation_loss")
    score = next(r for r in results.scores.to_pylist() if r["arm"] == "layernorm")
    assert (loss.step, loss.value) == (8, pytest.approx(score["validation_loss"], rel=1e-6))
    assert "embedding_norm/all/mean" in events.Tags()["scalars"]
    assert read_progress(results.path) is None
    seen = shown(results.path)
    assert "9 of 9 trials" in seen


def queue_of(results: Results) -> Queue:
    """Return the queue of a run in the folder of some results."""
    queue = Queue.of(results.path)
    executor = {"backend": "local", "options": {}}
    queue.open(Order({}, "/", str(results.path), "stacked", {}, executor, "/"))
    return queue


def test_a_study_under_way_is_shown(small_study, fabricate):
    study = small_study(seeds=[1, 2, 3])
    skip = [("baseline", 3), ("layernorm", 3), ("rmsnorm", 2), ("rmsnorm", 3)]
    results = fabricate(study, lambda arm, seed: 2.0, skip=skip)
    queue = queue_of(results)
    queue.report("w", {"event": "stage", "home": str(results.path)})
    for t in (2, 5):
        event = {"event": "trained", "trials": [["rmsnorm", 2]], "t": t, "losses": [3.0 - t / 10]}
        queue.report("w", event)
    seen = shown(results.path)
    assert "5 of 9 trials" in seen and "left" in seen
    line = next(line for line in seen.splitlines() if line.strip().startswith("rmsnorm/seed-2"))
    assert line.split() == ["rmsnorm/seed-2", "started", "5"]
    assert max(map(len, seen.splitlines())) <= 80
    queue.remove()
    assert "under way" not in shown(results.path)


class Broken:
    """A tracker that fails at the method named `at`."""

    def __init__(self, at: str) -> None:
        self.at, self.heard = at, []

    def __call__(self, *arguments: object) -> Broken:
        self._hear("open")
        return self

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if what == self.at:
            raise ConnectionError("the server\nis gone")

    def write(self, step: int, values: dict[str, float]) -> None:
        self._hear(next(iter(values)))

    def end(self) -> None:
        self._hear("end")


@pytest.mark.parametrize("at", ["open", "live/train_loss", "train_loss", "end"])
def test_a_tracker_that_fails_is_dropped_by_name_and_the_run_goes_on(at, trained, tmp_path, caplog):
    broken, sound = Broken(at), Broken("never")
    followers = trackers.Trackers({"broken": broken, "sound": sound}, trained.study, tmp_path)
    first, second = ([trial.arm, trial.seed] for trial in trained.results.finished[:2])
    home = ResultsFolder(trained.results.path)
    for trial, event in ((first, "trained"), (first, "finished"), (second, "trained")):
        given = {"event": event, "trials": [trial], "t": 2, "losses": [3.0]}
        followers.follow(given, home)
    followers.close()
    (line,) = caplog.messages
    assert "broken" in line and "ConnectionError" in line
    assert broken.heard[-1] == at
    assert sound.heard[:3] == ["open", "live/train_loss", "train_loss"]
    assert sound.heard[-4:] == ["end", "open", "live/train_loss", "end"]
