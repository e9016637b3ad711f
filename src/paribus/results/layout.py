"""Which folders of a results folder are ours, and that they are folders.

Records are written, replaced and removed in them without a question. A link in the place of one
would lead that somewhere else: to another study's records, or to somebody's home.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import fence, hold_folder

# Folders at the top of a results folder, which hold nothing but what we write.
OWN = (
    ".tasks",
    "checkpoints",
    "evaluations",
    "paper",
    "sources",
    "tables",
    "tasks",
    "tensorboard",
    "test",
    "trials",
    "tuning",
)
PATIENCE_SECONDS = 60.0  # a page and a paper take ten
WAY_OUT = "remove it, or choose another folder with --results"


def secure(results: Path) -> None:
    """Before anything is written to or removed from `results`: all its folders are real ones.

    From then on this process writes nothing through a link that leads out of it. `results` itself
    may be reached through a link. Raises ParibusError for a link in the place of a folder of ours
    or anywhere below, unless it leads to a file: that one is replaced, and not written through.
    """
    fence(results)
    for name in OWN:
        folder = results / name
        if not os.path.lexists(folder):
            continue
        if folder.is_symlink() or not folder.is_dir():
            kind = "a link" if folder.is_symlink() else "no folder"
            raise ParibusError(f"{folder} is {kind}, where records are kept; {WAY_OUT}")
        _require_no_links(folder)


def _require_no_links(folder: Path) -> None:
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink() and not entry.is_file():
                        raise ParibusError(
                            f"{entry.path} is a link to what is no file, among records; {WAY_OUT}"
                        )
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            raise ParibusError(f"cannot read {error.filename}: {error.strerror}") from None


@contextlib.contextmanager
def answering(results: Path) -> Iterator[None]:
    """Keep others from writing their analysis, verdict, page or paper to `results` meanwhile.

    A run is not kept out: it writes records, and these answers are of the records that were read.
    Waits for another command to finish, and raises ParibusError if it does not.
    """
    began = time.monotonic()
    while (held := hold_folder(results)) is None:
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise ParibusError(
                f"another command has been writing its answer to {results} for "
                f"{PATIENCE_SECONDS:g} s; ask again when it has ended"
            )
        time.sleep(0.1)
    with held:
        yield
