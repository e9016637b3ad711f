"""Jinja environments of the report, and sentences from the macros in `templates/sentences.txt`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jinja2

from paribus import numbers


def join(words: Sequence[str], most: int = 0) -> str:
    """Join words as `a, b and c`, with semicolons if a word contains a comma.

    Args:
        most: number of words shown if there are at least two more, as in `a, b, c and 2 more`; 0
            shows all.
    """
    shown = list(words)
    if most and len(shown) > most + 1:
        shown = [*shown[:most], f"{len(shown) - most} more"]
    comma, last = ("; ", "; and ") if any("," in word for word in shown) else (", ", " and ")
    return last.join([comma.join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


@cache
def environment(autoescape: bool = False) -> jinja2.Environment:
    """Return the environment of all templates, which escapes values for HTML if `autoescape`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paribus.report"),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"listed": join, "some": numbers.some, "plural": numbers.plural}
    environment.filters["p_equals"] = numbers.p_equals
    return environment


@cache
def _macros() -> Any:
    return environment().get_template("sentences.txt").module


@cache
def _template(text: str) -> jinja2.Template:
    return environment().from_string(text)


def sentence(macro: str, **values: Any) -> str:
    """Render a macro of `sentences.txt`, on one line."""
    return " ".join(str(getattr(_macros(), macro)(**values)).split())


def filled(template: str, values: dict[str, Any]) -> str:
    """Render the text of a template."""
    return _template(template).render(values)
