"""Loading of studies from TOML files, dicts, results folders and built-in examples."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.schema import unstamped
from paribus.study.custom_code import EXAMPLES, sources_folder
from paribus.study.study import Study, built, override
from paribus.study.tuning import CHOSEN
from paribus.study.tuning_study import tuning_study
from paribus.untrusted_io import STUDY_BYTES, parse_json, parse_toml, read_json, read_text

FIRST = "first-steps"  # the folder of examples that are listed first


def shipped_studies() -> dict[str, Study]:
    """Load all built-in example studies, keyed by name."""
    files = sorted(EXAMPLES.glob("*/*.toml"), key=lambda file: (file.parent.name != FIRST, file))
    return {file.stem: load_study(file.stem) for file in files}


def load_study(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
) -> Study:
    """Load a study from a TOML file or a built-in example.

    Args:
        source: path of a TOML file, or name of a built-in example. It can also be the path of a
            `study.json` in a results folder, or a dict with the content of a study file. Relative
            paths in a dict are resolved against the working directory.
        overrides: values keyed by dotted study key, such as
            {"training.iterations": 20, "seeds": [1, 2]}.
        trust: whether custom code named in a `study.json` may run.

    Raises:
        ParibusError: if the study is invalid.
    """
    if isinstance(source, Mapping):
        table, folder, label, is_json = dict(source), Path.cwd(), "study", False
    else:
        text, folder, label = _read(source)
        is_json = os.fspath(source).endswith(".json")  # the study.json of a results folder
        table = parse_json(text, label) if is_json else parse_toml(text, label)
    foreign = is_json and not trust
    if is_json:
        table = unstamped(table, label)
        folder = sources_folder(folder)
        # A study that is run anew is tuned anew.
        if isinstance(table.get("tuning"), dict):
            table["tuning"].pop(CHOSEN, None)
    study = parse_study(table, folder=folder, label=label, foreign=foreign)
    if overrides:
        dump = study.model_dump()
        for key, value in study.format.expand(overrides):
            override(dump, key, value, study.format)
        study = parse_study(dump, folder=folder, label=label, foreign=foreign)
    if study.tuning is not None and study.tuning.chosen:
        raise ParibusError(
            f"{label}: tuning.chosen cannot be set, because paribus writes it after tuning; remove "
            "it from the study file"
        )
    return study


def parse_study(
    table: dict[str, Any],
    *,
    folder: Path,
    label: str = "study",
    foreign: bool = False,
) -> Study:
    """Build a `Study` from a dict (see `built`), and validate its tuning study, if any."""
    study = built(table, folder=folder, label=label, foreign=foreign)
    if study.tuning is not None:
        tuning_study(study)
    return study


def read_study(path: Path, *, folder: Path, foreign: bool) -> Study:
    """Read a study.json, resolving its relative paths against `folder`."""
    table = unstamped(read_json(path), str(path))
    return built(table, folder=folder, label=str(path), foreign=foreign)


def parse_override(text: str) -> tuple[str, Any]:
    """Parse a `key=value` argument, keeping a value that is not valid TOML as a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ParibusError(
            f"'{text}' is not a valid override; use key=value, such as training.iterations=20"
        )
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        table = {}
    return key.strip(), table["value"] if table.keys() == {"value"} else value


def _read(source: str | os.PathLike[str]) -> tuple[str, Path, str]:
    """Return a study file's text, its base folder for relative paths, and its display name."""
    name = os.fspath(source)
    if os.sep not in name and not name.endswith((".toml", ".json")):
        known = {file.stem: file for file in EXAMPLES.glob("*/*.toml")}
        if name in known:
            return known[name].read_text("utf-8"), Path.cwd(), name
        files = [path.name for path in Path().glob("*.toml")]
        raise ParibusError(
            f"'{name}' is neither a study file (*.toml) nor a built-in study; "
            f"{nearest(name, [*known, *files])}",
            code="unknown",
        )
    path = Path(source)
    text = read_text(
        path,
        STUDY_BYTES,
        missing=f"study file {path} does not exist; specify the path of an existing TOML file",
    )
    return text, path.resolve().parent, path.name
