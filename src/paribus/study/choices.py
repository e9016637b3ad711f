"""Resolve names that a user may choose: a shipped one, or custom code by its import path.

Shipped parts are found in their folders (`declared`). Optimizers, losses, rules, corpora and
backends are all resolved in this way, with the same errors for unknown names.
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
    """Base class of the options of an optimizer, a loss or a backend: fields with defaults."""


def undecorated(*args: Any) -> Any:
    """Raise TypeError: the placeholder of a declaration that decorates no function yet."""
    raise TypeError("this declaration decorates no function")


@dataclass(frozen=True, kw_only=True)
class Decorated:
    """Decorator that declares a function as a part that studies can name: `@schedule("name")`.

    Attributes:
        name: Its name in studies.
        options: Class of its options.
        function: The function.
    """

    name: str = field(kw_only=False)
    options: type[Options] = Options
    function: Callable[..., Any] = undecorated

    def __post_init__(self) -> None:
        kind = type(self).__name__.lower()
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"{kind} {self.name!r}: its name must be a string: @{kind}('my_{kind}')"
            )

    def __call__(self, function: Callable[..., Any]) -> Self:
        """Return the declaration with `function` attached."""
        return replace(self, function=function)


Declared = TypeVar("Declared")


def find_declared(
    name: str, kind: type[Declared], where: str, package: str, folder: Path
) -> Declared:
    """Return the `kind` named `name`: one that `package` declares, or custom code by its import
    path.

    `where` is the study's key, for errors. Raises ParibusError.
    """
    word = kind.__name__.lower()
    known = declared(package, kind)  # type: ignore[type-var]
    if ":" not in name:
        return require_declared(name, known, where, word, package)
    own = load_own(name, f"{where} = '{name}'", word, kind, folder)
    if known.get(own.name, own) is not own:
        raise ParibusError(
            f"{where} = '{name}': its name '{own.name}' is also that of a shipped "
            "one, so records could not tell them apart; give it another name"
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
    """Yield the custom parts at these import paths. Their names must not be in `taken`.

    `key` (the study's key) and `word` (the kind of part) are for errors. Raises ParibusError.
    """
    names = set(taken)
    for path in paths:
        where = f"{key} = '{path}'"
        own = load_own(path, where, word, kind, folder)
        if own.name in names or "/" in own.name:
            rule = "a name has no '/'" if "/" in own.name else "the name is taken"
            raise ParibusError(
                f"{where}: a {word} cannot be named '{own.name}': {rule}; give it another name"
            )
        names.add(own.name)
        yield own


def require_declared(
    name: str,
    known: Mapping[str, Declared],
    where: str,
    word: str,
    package: str,
    own: str = "your own is 'file.py:name'",
) -> Declared:
    """Return the part `name` of the `known` ones, which `package` declares.

    Raises ParibusError, which says how to use custom code (`own`).
    """
    if name not in known:
        raise ParibusError(
            f"{where}: there is no {word} '{name}': {nearest(name, known)}; they are declared in "
            f"{package.replace('.', '/')}/; {own}",
            code="unknown",
        )
    return known[name]


def read_options(model: type[Options], given: Mapping[str, Any], where: str, name: str) -> Options:
    """Return `given` as an instance of the options `model` of the part `name`. Raises
    ParibusError."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ParibusError(f"{where} of '{name}': {explain(error, model)}") from None
