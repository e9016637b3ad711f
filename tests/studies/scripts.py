"""The scripts of `studies/`, as modules, and the study files there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from paribus.study import Study, load_study, shipped_studies

HOME = Path(__file__).parents[2] / "studies"


def study_of(name: str) -> str | Path:
    """Return what loads the study `name`: its file, or the name of an example that ships."""
    own = HOME / f"{name}.toml"
    return own if own.is_file() else name


def all_studies() -> dict[str, Study]:
    """Return the examples that ship, and the studies beside the kept ones, by name."""
    files = sorted(HOME.glob("*.toml"))
    return shipped_studies() | {file.stem: load_study(file) for file in files}


def script(name: str) -> ModuleType:
    """`studies/<name>.py`."""
    about = importlib.util.spec_from_file_location(f"studies_{name}", HOME / f"{name}.py")
    assert about is not None and about.loader is not None
    made = importlib.util.module_from_spec(about)
    about.loader.exec_module(made)
    return made
