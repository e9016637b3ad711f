"""The scripts of `studies/`, as modules, and the study files there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from paribus.study import Study, load_study, shipped_studies

from ..tools import module_at

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
    return module_at(HOME / f"{name}.py")
