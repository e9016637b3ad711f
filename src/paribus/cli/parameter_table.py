"""What `paribus show --parameters` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape

from paribus.cli.printed_tables import table_of
from paribus.study import Study

if TYPE_CHECKING:
    from paribus.engine.training.parameters import ParameterRow

COLUMNS = ("parameter", "x", "shape", "starts as", "res.", "decay", "by")


def parameters(
    study: Study, rows: dict[str, list[ParameterRow]], warnings: list[str]
) -> Iterator[RenderableType]:
    """All parameters of arms that others are compared with; of the others, what differs.

    x: how many blocks have it; res.: whether it writes to the residual stream.
    """
    for arm in study.arms:
        reference = study.reference(arm)
        known = rows[reference] if reference else []
        new = [row for row in rows[arm] if row not in known]
        names = {row.name for row in rows[arm]}
        gone = [row.name for row in known if row.name not in names]
        title = f"parameters of {arm}" + (f", where not those of {reference}" if reference else "")
        table = table_of(*COLUMNS, title=escape(title), right=("x", "decay"))
        table.padding, table.columns[0].no_wrap = (0, 1, 0, 0), True
        for row in new:
            table.add_row(
                row.name,
                str(row.blocks),
                "x".join(map(str, row.shape)) or "1",
                row.rule.replace("normal(std=", "normal(", 1),
                "yes" if row.residual else "",
                f"{row.weight_decay:g}" if row.weight_decay else "",
                row.optimizer,
            )
        yield table if new else escape(f"{title}: none")
        if gone:
            yield escape(f"without {', '.join(gone)}")
    for line in warnings:
        yield f"[yellow]warning:[/] {escape(line)}"
