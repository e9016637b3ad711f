"""Following a run from outside: `paribus status`, and the display of `paribus run`."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from paribus.results import Results
from paribus.runs.progress import read_progress, watching
from paribus.runs.queue import Order, Queue

from ..tools import verb


def shown(folder: Path) -> str:
    code, out, _ = verb("status", folder)
    assert code == 0
    return out


def test_a_finished_run_leaves_no_queue(trained):
    assert read_progress(trained.results.path) is None
    assert "9 of 9 trials" in shown(trained.results.path)


def queue_of(results: Results) -> Queue:
    """Return the queue of a run in the folder of some results."""
    queue = Queue.locate(results.path)
    executor = {"backend": "local", "options": {}}
    queue.open(Order({}, "/", str(results.path), {}, executor, "/"))
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
    progress, screen = read_progress(results.path), io.StringIO()
    assert progress
    with watching(
        Console(file=screen, force_terminal=True, color_system=None, width=80), "before it"
    ) as watch:
        watch(progress)
        watch(progress)
    drawn = screen.getvalue()
    assert drawn.count("before it") == 1 and "5/9 trials" in drawn and "━" in drawn
    assert re.search(r"rmsnorm/seed-2 +step 5", drawn)
    queue.fail("out of memory")
    seen = shown(results.path)
    assert "out of memory" in seen and "running: " not in seen
    queue.remove()
    assert "running: " not in shown(results.path)
