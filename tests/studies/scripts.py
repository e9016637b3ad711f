"""The scripts of `studies/`, as modules; None where only the package is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

HOME = Path(__file__).parents[2] / "studies"


def script(name: str) -> ModuleType:
    """`studies/<name>.py`."""
    about = importlib.util.spec_from_file_location(f"studies_{name}", HOME / f"{name}.py")
    assert about is not None and about.loader is not None
    made = importlib.util.module_from_spec(about)
    about.loader.exec_module(made)
    return made
