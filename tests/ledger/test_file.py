"""The ledger's file: two writers, kills, and lines that cannot be read."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from paribus.ledger import Event, appending, events_in

from ..tools import refused

# A process that appends events one by one, each under the lock.
WRITES = """
import sys
from pathlib import Path
from paribus.ledger import Event, appending
event = Event.model_validate_json(sys.argv[2])
for number in range(10_000):
    with appending(Path(sys.argv[1])) as (_, append):
        append(event)
    print(number, flush=True)
"""


def event(study: str) -> Event:
    time = "2026-01-01T00:00:00+00:00"
    return Event(kind="registration", time=time, study=study, registration="a" * 64)


def append_to(path: Path, *studies: str) -> list[str]:
    """Append an event of each study; return the studies of the file."""
    with appending(path) as (_, append):
        for study in studies:
            append(event(study))
    return [event.study for event in events_in(path)]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    assert append_to(path, "a", "é") == ["a", "é"]
    assert append_to(path, "c") == ["a", "é", "c"]
    assert events_in(path)[1] == event("é")
    assert len(path.read_bytes().splitlines()) == 3
    with appending(path) as (events, _):
        assert events == events_in(path)
    assert events_in(tmp_path / "none.jsonl") == []


def test_killed_writers_lose_nothing_that_they_reported(tmp_path):
    path, rng, reported = tmp_path / "ledger.jsonl", random.Random(1), 0
    for _ in range(3):
        line = event("killed").model_dump_json()
        command = [sys.executable, "-c", WRITES, str(path), line]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()  # it has begun
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        reported += 1 + len(process.stdout.read().split())
        process.wait()
        process.stdout.close()
        append_to(path, "next")
    studies = [event.study for event in events_in(path)]
    assert studies.count("killed") >= reported
    assert studies.count("next") == 3


def test_every_byte_after_which_a_write_can_end(tmp_path):
    append_to(tmp_path / "whole", "a", "b")
    whole = (tmp_path / "whole").read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole), 7):
        path = tmp_path / "cut"
        path.write_bytes(whole[:end])
        assert [event.study for event in events_in(path)] == ["a"]
        assert append_to(path, "c") == ["a", "c"]


def test_a_file_that_cannot_be_used_is_one_line(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for content in ("[1]\n", "no JSON\n", '{"n": NaN}\n'):
        path.write_text(content)
        for use in (events_in, append_to):
            with refused("unreadable", match="line 1"):
                use(path)
        assert path.read_text() == content
    with refused("system", match="cannot write"):
        append_to(path / "below", "a")
    os.mkfifo(tmp_path / "pipe")
    with refused("unreadable"):
        events_in(tmp_path / "pipe")
