"""Figures of finished studies for notebooks, as Altair charts.

Figures of the page go by their names, with `_` in place of other signs.
"""

from __future__ import annotations

import re
from typing import Any

from paribus.analysis import analyse
from paribus.errors import ParibusError, nearest
from paribus.report.figures import Figure, draw
from paribus.results import Results


def names(results: Results) -> list[str]:
    """Return the figures that the records have data for, in the order of the page."""
    return list(_drawn(results))


def plot(results: Results, name: str = "forest") -> Any:
    """Return a figure as an Altair chart: by its name, by the first part of it, or of a metric.

    `loss` is the first that begins so, the curves of held-out loss, or else the first that ends so,
    of training loss; `validation_loss`, an endpoint, is each seed's. Raises ParibusError for one
    that there is not.
    """
    drawn, wanted = _drawn(results), _identifier(name)
    begun = [label for label in drawn if label.startswith(wanted)]
    within = [label for label in drawn if label.endswith(f"_{wanted}") and label[:6] != "pairs_"]
    exact = [label for label in (wanted, f"pairs_{wanted}") if label in drawn]
    chosen = next(iter([*exact, *begun, *within]), None)
    if chosen is None or not wanted:
        raise ParibusError(f"there is no figure '{name}': {nearest(wanted, drawn)}")
    return drawn[chosen].with_data()


def _drawn(results: Results) -> dict[str, Figure]:
    judged = results.standing.judged
    return {_identifier(figure.name): figure for figure in draw(judged, analyse(results))}


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name)
