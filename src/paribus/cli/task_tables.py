"""Tables of zero- and few-shot accuracy, for 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.markup import escape

from paribus import numbers
from paribus.analysis import Analysis
from paribus.cli.printed_tables import table_of
from paribus.engine.execution.evaluate import Answers
from paribus.study import Study

MOST_ARMS = 4  # side by side


def task_contrasts(analysis: Analysis) -> Iterator[RenderableType]:
    """Every task of every contrast, with Holm over all of them."""
    if not analysis.tasks:
        return
    right = ("chance", "baseline", "arm", "delta", "p", "Holm p")
    table = table_of(
        "task", *right, title=f"tasks, accuracy in per cent, {about_items(analysis)}", right=right
    )
    for arm, reference in analysis.study.contrasts:
        rows = [c for c in analysis.tasks if (c.arm, c.reference) == (arm, reference)]
        if rows:
            table.add_row(f"[bold]{escape(arm)} against {escape(reference)}[/]")
        for c in rows:
            says = c.decided
            tested = says is not None and not says.descriptive_only
            table.add_row(
                f"  {escape(c.task)}",
                percent(c.chance),
                percent(c.baseline),
                percent(c.treatment),
                numbers.signed(100 * (c.treatment - c.baseline), 1),
                numbers.p_value(says.p_value if says and tested else None),
                numbers.p_value(c.holm_p if tested else None),
            )
    yield table


def about_items(analysis: Analysis) -> str:
    """What p of single tasks is about."""
    return (
        "for new questions" if analysis.study.inference.of_new_questions else "on these questions"
    )


def answers(study: Study, found: Answers) -> Iterator[RenderableType]:
    """Accuracy by task and shots, and the macro averages; means over seeds, with their SD."""
    rows = found.tasks.to_pylist()
    shots = sorted({row["shots"] for row in rows})
    values: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        values.setdefault((row["arm"], row["task"], row["shots"]), []).append(row["accuracy"])
    chances = {row["task"]: row["chance"] for row in rows}
    arms = [arm for arm in study.arms if any(key[0] == arm for key in values)]
    if len(arms) <= MOST_ARMS:
        columns = ("shots", "chance", *map(escape, arms))
        table = table_of("task", *columns, title="accuracy in per cent (SD)", right=columns)
        for task, chance in chances.items():
            for n in shots:
                if (arms[0], task, n) in values:
                    cells = [mean_sd(values[arm, task, n]) for arm in arms]
                    table.add_row(escape(task), str(n), percent(chance), *cells)
        yield table
    columns = tuple(f"{n} shots" for n in shots)
    macro = table_of("macro accuracy", *columns, right=columns)
    for arm in arms:
        macro.add_row(escape(arm), *(mean_sd(_macro(rows, arm, n)) for n in shots))
    yield macro
    if found.not_offered:
        pairs = ", ".join(f"{escape(task)} at {n}" for task, n in found.not_offered)
        yield f"[dim]does not fit the window, and was not asked: {pairs}[/]"
    for arm in found.unlike:
        yield f"[red]{escape(arm)} was shown other prompts; it cannot be compared[/]"


def _macro(rows: list[dict], arm: str, shots: int) -> list[float]:
    """The unweighted mean over tasks, of every seed."""
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if (row["arm"], row["shots"]) == (arm, shots):
            by_seed.setdefault(row["seed"], []).append(row["accuracy"])
    return [float(np.mean(accuracies)) for accuracies in by_seed.values()]


def mean_sd(shares: list[float]) -> str:
    """Mean and SD over seeds of shares, in per cent; the mean alone of a single one."""
    mean = 100 * float(np.mean(shares)) if shares else None
    sd = 100 * float(np.std(shares, ddof=1)) if len(shares) > 1 else None
    return numbers.mean_sd(mean, sd, 1) if mean is not None else numbers.NONE


def percent(share: float) -> str:
    """A share in per cent with one decimal."""
    return numbers.fixed(100 * share, 1)
