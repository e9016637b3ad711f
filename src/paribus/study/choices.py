"""Resolution of names in a study: a built-in part, or custom code by its import path.

Built-in parts are found in their packages (`declared`). Optimizers, losses, rules, corpora and
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
    """Base class of the options of an optimizer, a loss or a backend; each field has a default."""


def undecorated(*args: Any) -> Any:
    """Raise TypeError; stands in for the function until a declaration decorates one."""
    raise TypeError("this declaration has no function; use it as a decorator")


@dataclass(frozen=True, kw_only=True)
class Decorated:
    """Base class of decorators that make a function available to studies: `@schedule("name")`.

    Attributes:
        name: name of the function in studies.
        options: class of the function's options.
        function: the decorated function.
    """

    name: str = field(kw_only=False)
    options: type[Options] = Options
    function: Callable[..., Any] = undecorated

    def __post_init__(self) -> None:
        kind = type(self).__name__.lower()
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"the name of a {kind} must be a string, not {self.name!r}; write "
                f"@{kind}('my_{kind}')"
            )

    def __call__(self, function: Callable[..., Any]) -> Self:
        """Return a copy of this declaration with `function` attached."""
        return replace(self, function=function)


Declared = TypeVar("Declared")


def find_declared(
    name: str, kind: type[Declared], where: str, package: str, folder: Path
) -> Declared:
    """Return the built-in or custom part with the given name.

    Args:
        name: the name of a part that `package` declares, or the import path of a custom one.
        kind: class of the part.
        where: the study key that holds the name, for errors.
        package: package of the built-in parts.
        folder: folder at which import paths start.

    Raises:
        ParibusError: if there is no such part.
    """
    word = kind.__name__.lower()
    known = declared(package, kind)  # type: ignore[type-var]
    if ":" not in name:
        return require_declared(name, known, where, word, package)
    own = load_own(name, f"{where} = '{name}'", word, kind, folder)
    if known.get(own.name, own) is not own:
        raise ParibusError(
            f"{where} = '{name}' has the name of the built-in {word} '{own.name}', so records "
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
    """Load custom parts, and check that their names are valid and not taken.

    Args:
        paths: import paths of the parts.
        key: the study key that lists the paths, for errors.
        word: the kind of part, for errors.
        kind: class of the parts.
        folder: folder at which the import paths start.
        taken: names that are already in use.

    Raises:
        ParibusError: if a part cannot be loaded, or its name is taken or contains a slash.
    """
    names = set(taken)
    for path in paths:
        where = f"{key} = '{path}'"
        own = load_own(path, where, word, kind, folder)
        if own.name in names or "/" in own.name:
            rule = "a name cannot contain '/'" if "/" in own.name else "that name is taken"
            raise ParibusError(f"{where} is named '{own.name}', but {rule}; rename your {word}")
        names.add(own.name)
        yield own


def require_declared(
    name: str,
    known: Mapping[str, Declared],
    where: str,
    word: str,
    package: str,
    own: str = "name your own as 'file.py:name'",
) -> Declared:
    """Return `known[name]`. Raises ParibusError with a suggestion if the name is unknown.

    Args:
        name: name of the part.
        known: parts by name.
        where: the study key that holds the name, for errors.
        word: the kind of part, for errors.
        package: package that declares the `known` parts, for errors.
        own: how to use a custom part, for errors.
    """
    if name not in known:
        raise ParibusError(
            f"{where}: unknown {word} '{name}'; {nearest(name, known)}; built-in ones are declared "
            f"in {package.replace('.', '/')}/; {own}",
            code="unknown",
        )
    return known[name]


def read_options(model: type[Options], given: Mapping[str, Any], where: str, name: str) -> Options:
    """Validate the options of a part, and return them as an instance of `model`.

    Args:
        model: class of the options.
        given: options from the study.
        where: the study key that holds the options, for errors.
        name: name of the part, for errors.

    Raises:
        ParibusError: if an option is unknown or invalid.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ParibusError(f"{where} of '{name}': {explain(error, model)}") from None
