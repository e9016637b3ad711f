"""Leases: one holder at a time, by names and time stamps of files alone."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.results import lease
from paribus.results.lease import Lease, hold, holder


def left(folder: Path, number: int, **about: object) -> Path:
    """A lease that another process has left, or holds."""
    path = folder / f".lock.{number}"
    path.write_text(f"{number}-abc\n{json.dumps({'pid': 1, 'host': 'node7'} | about)}\n")
    return path


def test_one_holds_and_the_next_is_told_who(tmp_path: Path) -> None:
    with hold(tmp_path) as mine:
        assert mine.holds() and (holder(tmp_path) or {})["pid"] == os.getpid()
        with pytest.raises(ParibusError, match=rf"another run.*process {os.getpid()} of"):
            hold(tmp_path).__enter__()
        assert mine.holds()
    assert not mine.holds() and holder(tmp_path) is None and not list(tmp_path.iterdir())


def test_of_many_at_once_one_takes_it(tmp_path: Path) -> None:
    """A link is made once, whoever asks; what a dead one has left is in nobody's way."""
    left(tmp_path, 4, system=lease._system(), pid=2**22 + 1, started="1")
    start, taken, refused = threading.Barrier(8), list[Lease](), list[str]()

    def take() -> None:
        start.wait()
        try:
            taken.append(lease._take(tmp_path))
        except ParibusError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1 and len(refused) == 7
    assert taken[0].holds() and [path.name for path in tmp_path.iterdir()] == [".lock.5"]


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    """A number that another process has now is told from it by when it began."""
    left(tmp_path, 1, system=lease._system(), pid=os.getpid(), started="1")
    with hold(tmp_path) as mine:
        assert mine.path.name == ".lock.2"


def test_another_machine_is_watched_by_the_clock_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamps may be years away: only that they change counts."""
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.02)
    path = left(tmp_path, 1, system="another machine")
    os.utime(path, (0, 0))
    over = threading.Event()

    def beat() -> None:
        stamp = 0
        while not over.wait(0.02):
            stamp += 1
            os.utime(path, (stamp, stamp))

    beating = threading.Thread(target=beat)
    beating.start()
    with pytest.raises(ParibusError, match="process 1 of node7"):
        hold(tmp_path).__enter__()
    over.set()
    beating.join()
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.1)
    theirs = Lease(path, "1-abc")
    assert theirs.holds()
    with hold(tmp_path) as mine:  # it does not move: it is dead, or as good as dead
        assert mine.path.name == ".lock.2" and mine.holds() and not theirs.holds()


def test_without_hard_links_a_file_that_is_created_once_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with hold(tmp_path) as mine:
        assert mine.holds()
        with pytest.raises(ParibusError, match="another run"):
            hold(tmp_path).__enter__()
