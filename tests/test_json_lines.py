"""A file of JSON lines: two writers, kills, and lines that cannot be read."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from paribus.json_lines import JsonLines

from .tools import refused

# A process that appends entries one by one, each under the lock.
WRITES = """
import sys
import time
from pathlib import Path
from paribus.json_lines import JsonLines
name, path, n = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
while not path.with_name("begin").exists():
    time.sleep(0.001)
for number in range(n):
    with JsonLines(path, "").appending() as (_, append):
        append({"by": name, "number": number, "time": "2026-01-01", "words": "x" * 3000})
    print(number, flush=True)
    time.sleep(0.002)
"""


def writer(name: str, path: Path, n: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITES, name, str(path), str(n)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def append_to(path: Path, *entries: dict[str, Any]) -> JsonLines:
    lines = JsonLines(path, "name another file")
    with lines.appending() as (_, append):
        for entry in entries:
            append(entry)
    return lines


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "lines.jsonl"
    assert JsonLines(path, "").read() == []
    append_to(path, {"a": 1}, {"b": "é\n"})
    lines = append_to(path, {"c": [1, None]})
    assert lines.read() == [{"a": 1}, {"b": "é\n"}, {"c": [1, None]}]
    assert len(path.read_bytes().splitlines()) == 3
    with lines.appending() as (entries, _):
        assert entries == lines.read()


def test_killed_writers_lose_nothing_that_they_reported(tmp_path):
    path, rng, reported = tmp_path / "lines.jsonl", random.Random(1), 0
    (tmp_path / "begin").touch()
    for number in range(6):
        process = writer(f"round {number}", path, 10_000)
        process.stdout.readline()  # it is ready
        process.stdout.readline()  # and has begun
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        reported += 1 + len(rest)
        append_to(path, {"by": "the next", "number": number})
    entries = JsonLines(path, "").read()
    assert len([e for e in entries if e["by"] != "the next"]) >= reported
    assert len([e for e in entries if e["by"] == "the next"]) == 6


def test_every_byte_after_which_a_write_can_end(tmp_path):
    whole = append_to(tmp_path / "whole", {"n": 1}, {"n": 2}).path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:end])
        assert JsonLines(path, "").read() == [{"n": 1}]
        assert append_to(path, {"n": 3}).read() == [{"n": 1}, {"n": 3}]


def test_a_file_that_cannot_be_used_is_one_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    for content in ("[1]\n", "no JSON\n", '{"n": NaN}\n'):
        path.write_text(content)
        for use in (JsonLines(path, "restore it").read, lambda: append_to(path, {"n": 1})):
            with refused("unreadable", match="line 1"):
                use()
        assert path.read_text() == content
    with refused("system", match="cannot write"):
        append_to(path / "below", {"a": 1})
    os.mkfifo(tmp_path / "pipe")
    with refused("unreadable"):
        JsonLines(tmp_path / "pipe", "").read()
