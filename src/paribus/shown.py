"""Base class of objects with a notebook display."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """An object that a notebook shows as a card, a figure and a table.

    What draws them is loaded when it is asked: `paribus.report.notebook`.
    """

    def _repr_html_(self) -> str:
        return import_module("paribus.report.notebook").html(self)
