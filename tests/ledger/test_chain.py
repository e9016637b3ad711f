"""The ledger's file: two writers, kills, edits, and two ledgers as one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paribus.errors import ParibusError
from paribus.ledger import Chain, entry_digest, merged

# What another process does: adds entries one by one, each under the lock. Half-way it waits for one
# that is named to be there too, which a lock that is held to the end would never let happen.
WRITES = """
import sys
import time
from pathlib import Path
from paribus.ledger import Chain
name, path, n, other = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
print("ready", flush=True)
while not path.with_name("begin").exists():
    time.sleep(0.001)
for number in range(n):
    with Chain(path).adding() as ledger:
        ledger.append({"by": name, "number": number, "time": "2026-01-01", "words": "x" * 3000})
    print(number, flush=True)
    if other and number == n // 2:
        path.with_name(name).touch()
        while not path.with_name(other).exists():
            time.sleep(0.001)
    time.sleep(0.002)
"""


def writer(name: str, path: Path, n: int, other: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITES, name, str(path), str(n), other]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def chain_of(path: Path, *entries: dict[str, Any]) -> Chain:
    chain = Chain(path)
    with chain.adding() as ledger:
        for entry in entries:
            ledger.append(entry)
    return chain


def test_what_is_written_is_read(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "deep" / "ledger.jsonl")
    assert chain.entries() == [] and chain.verify() == []
    chain_of(chain.path, {"a": 1}, {"b": "é\n"})
    chain_of(chain.path, {"c": [1, None]})
    assert chain.entries() == [{"a": 1}, {"b": "é\n"}, {"c": [1, None]}]
    assert chain.verify() == []
    assert len(chain.path.read_bytes().splitlines()) == 3


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    both = [writer("one", path, 40, "two"), writer("two", path, 40, "one")]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    (tmp_path / "begin").touch()
    for process in both:
        assert process.stdout is not None
        process.stdout.read()
        assert process.wait(60) == 0
        process.stdout.close()
    chain = Chain(path)
    assert chain.verify() == []
    for name in ("one", "two"):
        mine = [entry["number"] for entry in chain.entries() if entry["by"] == name]
        assert mine == list(range(40))
    # Neither waited for the other to end.
    order = [entry["by"] for entry in chain.entries()]
    assert order != sorted(order) and order != sorted(order, reverse=True)


def test_writers_that_are_killed_leave_a_chain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a killed one had said to have written is there, and the next one goes on."""
    path, rng, said = tmp_path / "ledger.jsonl", random.Random(1), 0
    (tmp_path / "begin").touch()
    for round_ in range(6):
        process = writer(f"round {round_}", path, 10_000)
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        process.stdout.readline()  # and has begun
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        said += 1 + len(rest)
        chain_of(path, {"by": "the next", "number": round_})
        assert Chain(path).verify() == []
    entries = Chain(path).entries()
    assert len([e for e in entries if e["by"] != "the next"]) >= said
    assert len([e for e in entries if e["by"] == "the next"]) == 6


def test_every_place_at_which_a_write_can_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill after any byte of a line: what was whole stays, and the next writer says the rest."""
    whole = chain_of(tmp_path / "whole", {"n": 1}, {"n": 2}).path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:end])
        chain, caplog_before = Chain(path), len(caplog.records)
        assert chain.entries() == [{"n": 1}]
        is_torn = end > first
        assert [f.split(" is ")[0] for f in chain.verify()] == (["line 2"] if is_torn else [])
        chain_of(path, {"n": 3})
        is_whole = end == len(whole) - 1  # only its end was missing
        assert chain.entries() == [{"n": 1}, *([{"n": 2}] if is_whole else []), {"n": 3}]
        assert chain.verify() == []
        told = caplog.records[caplog_before:]
        assert len(told) == (is_torn and not is_whole)
        assert all(f"({end - first} bytes)" in record.getMessage() for record in told)


@pytest.mark.parametrize("line", range(5))
def test_edits_are_found_by_their_line(line: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    chain = chain_of(path, *({"n": n, "study": "abc"} for n in range(5)))
    lines = path.read_bytes().splitlines(keepends=True)

    def after(changed: list[bytes]) -> list[str]:
        path.write_bytes(b"".join(changed))
        return chain.verify()

    def with_line(new: bytes) -> list[bytes]:
        return [*lines[:line], new, *lines[line + 1 :]]

    named, following = f"line {line + 1} ", f"line {line + 2} "
    edited = after(with_line(lines[line].replace(b"abc", b"abd")))
    assert edited[0].startswith(f"{named}was edited")
    assert len(edited) == (1 if line == 4 else 2)
    assert all(one.startswith((named, following)) for one in edited)
    # Its own digest made to fit: the line after it still holds that of the old one.
    entries = [json.loads(one)["entry"] for one in lines]
    forged = chain_of(tmp_path / "forged", *entries[:line], entries[line] | {"study": "abd"})
    refitted = after(with_line(forged.path.read_bytes().splitlines(keepends=True)[line]))
    assert [one.partition(" does")[0] for one in refitted] == [following.strip()] * (line < 4)
    assert after(with_line(b"no line\n"))[0].startswith(f"{named}is no line of a ledger")
    if line < 4:  # what is cut off at the end leaves no trace in the file
        deleted = after([*lines[:line], *lines[line + 1 :]])
        assert [one.partition(" does")[0] for one in deleted] == [named.strip()]
    doubled = after([*lines[: line + 1], lines[line], *lines[line + 1 :]])
    assert doubled[0].startswith(following)
    if line < 4:
        swapped = after([*lines[:line], lines[line + 1], lines[line], *lines[line + 2 :]])
        assert swapped[0].startswith(named)
    assert after(lines) == []


def test_a_ledger_that_is_none_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("[1]\n")
    with pytest.raises(ParibusError, match="line 1 is no line of a ledger"):
        Chain(path).entries()
    with pytest.raises(ParibusError, match="line 1 is no line"), Chain(path).adding():
        pass
    with pytest.raises(ParibusError, match="cannot write the ledger"):
        chain_of(tmp_path / "ledger.jsonl" / "below", {"a": 1})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ParibusError):
        Chain(tmp_path / "pipe").entries()


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"time": st.sampled_from(["2026-01-01", "2026-01-02"]), "n": st.integers(0, 6)}
    ),
    max_size=8,
)


@given(ENTRIES, ENTRIES, ENTRIES)
@settings(max_examples=100, deadline=None)
def test_merging_is_a_union(a: list[Any], b: list[Any], c: list[Any]) -> None:
    both = merged([a, b])
    assert {entry_digest(e) for e in both} == {entry_digest(e) for e in a + b}
    assert len({entry_digest(e) for e in both}) == len(both)
    assert [e["time"] for e in both] == sorted(e["time"] for e in both)
    assert merged([b, a]) == both == merged([both, b]) == merged([both])
    assert merged([both, c]) == merged([a, merged([b, c])])


def test_of_one_second_what_follows_comes_later() -> None:
    """A study is registered, opens its texts and decides: also where all has one time."""
    second = {"time": "2026-01-01T00:00:00+00:00"}
    kinds: list[dict[str, Any]] = [
        {"kind": "registration"},
        {"kind": "opening", "text": {"role": "validation"}},
        {"kind": "look"},
        {"kind": "opening", "text": {"role": "test"}},
        {"kind": "verdict"},
    ]
    for number in range(20):
        mine = [second | one | {"study": str(number)} for one in kinds]
        assert merged([mine[::-1]]) == merged([mine[:2], mine]) == mine


@given(a=ENTRIES, b=ENTRIES)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_merged_verifies_and_goes_on(a: list[Any], b: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "merged"
    Chain(path).write(merged([a, b]))
    assert Chain(path).verify() == [] and Chain(path).entries() == merged([a, b])
    before = path.read_bytes()
    Chain(path).write(merged([Chain(path).entries(), a]))
    assert path.read_bytes() == before
    chain_of(path, {"time": "2026-01-03"})
    assert Chain(path).verify() == []
