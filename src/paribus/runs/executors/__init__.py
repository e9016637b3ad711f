"""Executors, which start, list and cancel the workers of a run.

The executor is chosen on the command line or in Python, never by a study or a results folder,
because those may come from an untrusted source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.runs.executors.jobs import Backend
from paribus.study.choices import read_options
from paribus.untrusted_io import STUDY_BYTES, parse_toml, read_text

BACKENDS = {name: f"{__name__}.{name}:{name.capitalize()}" for name in ("local", "ray", "slurm")}


def find_backend(chosen: str | Backend, options: Mapping[str, Any] | None = None) -> Backend:
    """Create a backend from its name, or from a TOML file with its kind and options.

    A `Backend` object is returned unchanged.

    Args:
        chosen: name of a backend, path of a TOML file, or a `Backend`.
        options: options that take precedence over those in the file.

    Raises ParibusError if the name or an option is unknown.
    """
    if isinstance(chosen, Backend):
        return chosen
    where, kind, values = f"--backend {chosen}", chosen, dict(options or {})
    if chosen.endswith(".toml"):
        values = parse_toml(read_text(Path(chosen), STUDY_BYTES), chosen) | values
        kind = str(values.pop("kind", ""))
    if kind not in BACKENDS:
        raise ParibusError(f"{where}: unknown backend '{kind}'; {nearest(kind, BACKENDS)}")
    make: type[Backend] = resolve_name(BACKENDS[kind])
    return make(read_options(make.Options, values, f"{where}: options", kind))
