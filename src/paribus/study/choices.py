"""Resolution of component names in a study: built-in names, or import paths of custom code.

Components are optimizers, losses, decision rules, corpora and backends. Built-in components are
discovered in their packages (`declared`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from paribus.declared import declared
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.study.base import Spec
from paribus.study.custom_code import load_own


class Options(Spec):
    """Base class for the options of a component, in which each field has a default."""


def undecorated(*args: Any) -> Any:
    """Raise TypeError, as the placeholder until a declaration is applied to a function."""
    raise TypeError("this declaration has no function; apply it as a decorator")


@dataclass(frozen=True, kw_only=True)
class Decorated:
    """Base class for decorators that make a function available to studies: `@schedule("name")`.

    Attributes:
        name: name of the function in studies.
        options: class that validates the function's options.
        function: the decorated function.
    """

    name: str = field(kw_only=False)
    options: type[Options] = Options
    function: Callable[..., Any] = undecorated

    def __post_init__(self) -> None:
        kind = type(self).__name__.lower()
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"a declaration's name must be a nonempty string, not {self.name!r}; use a "
                f"decorator such as @{kind}('my_{kind}')"
            )

    def __call__(self, function: Callable[..., Any]) -> Self:
        """Return a copy of this declaration with `function` attached."""
        return replace(self, function=function)


Declared = TypeVar("Declared")


def find_declared(
    name: str, kind: type[Declared], where: str, package: str, folder: Path
) -> Declared:
    """Return a component of class `kind` by its name in `package`, or by its import path.

    Raises ParibusError if it does not exist, naming the study key `where`.
    """
    word = kind.__name__.lower()
    known = declared(package, kind)  # type: ignore[type-var]
    if ":" not in name:
        return require_declared(name, known, where, word)
    own = load_own(name, f"{where} = '{name}'", word, kind, folder)
    if known.get(own.name, own) is not own:
        raise ParibusError(
            f"{where} = '{name}' has the same name as the built-in {word} '{own.name}', so records "
            f"could not distinguish them; rename your {word}"
        )
    return own


def load_new(
    paths: Iterable[str],
    key: str,
    word: str,
    kind: type[Declared],
    folder: Path,
    taken: Iterable[str],
) -> Iterator[Declared]:
    """Load custom components of class `kind` from import paths, which the study's `key` lists.

    Raises ParibusError if a component, called `word` in messages, cannot be loaded, or if its name
    is in use (`taken`) or contains a slash.
    """
    names = set(taken)
    for path in paths:
        where = f"{key} = '{path}'"
        own = load_own(path, where, word, kind, folder)
        if own.name in names or "/" in own.name:
            rule = "names cannot contain '/'" if "/" in own.name else "that name is already in use"
            raise ParibusError(f"{where} is named '{own.name}', but {rule}; rename your {word}")
        names.add(own.name)
        yield own


def require_declared(
    name: str,
    known: Mapping[str, Declared],
    where: str,
    word: str,
    own: str = "refer to custom code as 'file.py:name'",
) -> Declared:
    """Return `known[name]`. Raises ParibusError with a suggestion if the name is unknown.

    The message names the study key `where`, the noun `word` for the component, and with `own` how
    to use a custom one.
    """
    if name not in known:
        raise ParibusError(
            f"{where}: unknown {word} '{name}'; {nearest(name, known, len(known))} (or {own})",
            code="unknown",
        )
    return known[name]


def read_options(model: type[Options], given: Mapping[str, Any], where: str, name: str) -> Options:
    """Validate the options of the component `name`, and return them as an instance of `model`.

    Raises ParibusError if an option is unknown or invalid, naming the study key `where`.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ParibusError(f"{where} of '{name}': {explain(error, model)}") from None
