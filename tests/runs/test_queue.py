"""The queue of a run: claims, answers, deaths and events of several workers."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from paribus.runs.queue import Missing, Order, Queue, Task

from ..tools import refused

ORDER = Order({}, "/", "/r", {}, {"backend": "local", "options": {}}, "/")
TASK = Task("00001", "train", "on a/seed-1", "/r", {"trials": [["a", 1]]})


@pytest.fixture
def queue(tmp_path):
    made = Queue(tmp_path / "queue")
    made.open(ORDER)
    return made


def test_order_and_tasks_are_read_as_written(queue):
    assert queue.read_order() == ORDER
    queue.put([replace(TASK, id="2"), replace(TASK, id="1")])
    assert queue.names() == ["1", "2"]
    assert queue.read_task("1") == replace(TASK, id="1")
    assert TASK.trials == [("a", 1)]
    queue.answer("1", {"x": None})
    queue.finish(replace(TASK, id="1"))
    assert queue.names() == ["2"] and queue.read_answer("1") == {"x": None}
    assert queue.read_task("1") is None


def test_one_of_many_claims_a_task(queue):
    claims, start = [], threading.Barrier(8)

    def claim() -> None:
        start.wait()
        claims.append(queue.claim("1", "w"))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claims) == 1
    queue.release("1", "w")
    assert queue.claim("1", "w")


def test_a_claim_is_abandoned_when_its_process_is_dead_or_does_not_touch_it(queue):
    claim = queue.path / "claims" / "1"
    assert queue.claim("1", "w") and not queue.abandoned("1", "other", stale=100)
    os.utime(claim, (1.0, 1.0))
    queue.touch("1", "other")
    assert queue.abandoned("1", "other", stale=100)
    queue.touch("1", "w")
    assert not queue.abandoned("1", "other", stale=100)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    claim.write_text(json.dumps(queue.claims()["1"] | {"pid": child.pid}))
    assert queue.abandoned("1", "other", stale=100)


def test_of_two_that_take_over_one_succeeds(queue):
    assert queue.claim("1", "w")
    assert queue.release_dead("1") == 1
    assert queue.release_dead("1") == 0
    assert queue.claim("1", "v")
    queue.release("1", "w")  # it is another's now
    assert queue.claims()["1"]["worker"] == "v"


def test_ask_names_what_is_not_answered(queue):
    tasks = [replace(TASK, id=str(k)) for k in range(3)]
    queue.answer("1", [])
    with pytest.raises(Missing) as raised:
        queue.ask(tasks)
    assert [task.id for task in raised.value.tasks] == ["0", "2"]
    for k in (0, 2):
        queue.answer(str(k), k)
    assert queue.ask(tasks) == [0, [], 2]


def test_the_first_failure_counts_and_ends_the_run(queue):
    assert not queue.is_over
    queue.fail("one")
    queue.fail("two")
    failure = queue.failure()
    assert failure is not None and failure["message"] == "one" and queue.is_over


def test_events_are_read_once_and_half_a_line_is_left(queue):
    read: dict[str, int] = {}
    queue.report("w", {"event": "say", "words": "a"})
    path = queue.path / "events" / "w.jsonl"
    with path.open("a") as file:
        file.write('{"event": "sa')
    assert [event["words"] for event in queue.events(read)] == ["a"]
    with path.open("a") as file:
        file.write('y", "words": "b"}\n')
    assert [event["words"] for event in queue.events(read)] == ["b"]
    assert list(queue.events(read)) == []


def test_nothing_is_written_to_a_queue_that_was_removed(queue):
    queue.remove()
    queue.report("w", {"event": "say", "words": "a"})
    queue.fail("late")
    queue.answer("1", 1)
    queue.note_finished()
    queue.release_dead("1")
    assert not queue.path.exists() and queue.is_over


def test_a_changed_order_is_refused(queue):
    (queue.path / "order.json").write_text('{"study": 1}')
    with refused("changed", match=r"order\.json"):
        queue.read_order()
