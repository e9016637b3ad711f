"""Executors start, list and cancel the workers of a run.

The command line or Python code chooses the executor, never a study or a results folder, because
those may come from a stranger.
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
    """Return the backend of a name, or of a TOML file with a kind and options.

    `options` take precedence over those of a file. A `Backend` object is returned unchanged. Raises
    ParibusError for an unknown name, and for options that the backend does not have.
    """
    if isinstance(chosen, Backend):
        return chosen
    where, kind, values = f"--backend {chosen}", chosen, dict(options or {})
    if chosen.endswith(".toml"):
        values = parse_toml(read_text(Path(chosen), STUDY_BYTES), chosen) | values
        kind = str(values.pop("kind", ""))
    if kind not in BACKENDS:
        raise ParibusError(f"{where}: no backend '{kind}': {nearest(kind, BACKENDS)}")
    make: type[Backend] = resolve_name(BACKENDS[kind])
    return make(read_options(make.Options, values, f"{where}: options", kind))
