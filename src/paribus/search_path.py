"""The module search path: folders of the user's own code are appended and listed.

They are added while a process works, when code of theirs is loaded. What was started before, and
imports nothing of theirs, is not to be started anew for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ADDED: set[str] = set()


def add_own_folder(folder: Path) -> None:
    """Let modules in `folder` be imported, behind everything that is installed."""
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)
        _ADDED.add(path)


def own_folders() -> list[str]:
    """Return the folders that were added, as far as they are still searched, in their order."""
    return [path for path in sys.path if path in _ADDED]


def shared_folders() -> list[str]:
    """Return the absolute paths of all `sys.path` entries that `add_own_folder` did not add."""
    return [path or os.getcwd() for path in sys.path if path not in _ADDED]
