"""A git repository of a test's own, and modules of this checkout that are in no package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def module_at(file: Path) -> ModuleType:
    """Import a file by its path, as `<folder>_<name>`."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses look up
    spec.loader.exec_module(module)
    return module
