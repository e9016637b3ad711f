"""Optimizers and losses: how a study's name becomes what some file declares, and its options.

Those that ship are found in their folders (`declared`); the user's own are import paths, as for
modules and probes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from paribus.declared import declared
from paribus.errors import ParibusError, nearest
from paribus.study import Spec, explain
from paribus.study.importing import load_own


class Options(Spec):
    """Base of the options that an optimizer or a loss declares: fields with their defaults."""


Declared = TypeVar("Declared")


def find_part(name: str, kind: type[Declared], where: str, package: str, folder: Path) -> Declared:
    """The `kind` that `name` means: one of `package`, or the user's own by its import path.

    `where` is the key of the study, for errors. Raises ParibusError.
    """
    word = kind.__name__.lower()
    if ":" in name:
        return load_own(name, f"{where} = '{name}'", word, lambda v: isinstance(v, kind), folder)
    known = declared(package, kind)  # type: ignore[type-var]
    if name not in known:
        raise ParibusError(
            f"{where}: there is no {word} '{name}': {nearest(name, known)} They are declared in "
            f"{package.replace('.', '/')}/, one file each; your own is 'file.py:name'"
        )
    return known[name]


def part_options(model: type[Options], given: Mapping[str, Any], where: str, name: str) -> Options:
    """`given` as the options that the part `name` declares. Raises ParibusError."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ParibusError(f"{where} of '{name}': {explain(error, model)}") from None
