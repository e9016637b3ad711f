"""Tables of what `paribus bench` measured, for 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.cli.printed_tables import table_of
from paribus.engine.execution.timing.bench import Bench

MIB = 2**20
BUSY = 0.9  # of a processor: below it, other programs are part of what was measured


def bench(found: Bench) -> Iterator[RenderableType]:
    """The machine, then speed and phases with a row per size of a stack."""
    machine, n = found.machine, found.workers
    yield (
        f"[bold]{escape(found.study)}, {escape(found.arm)}[/]: {found.parameters:,} parameters, "
        f"{found.tokens_per_step:,} tokens a step, {found.precision}"
    )
    on = "" if machine["device"] == "cpu" else f"{machine['device']}; "
    yield escape(
        f"{on}{machine['processor']}, {machine['cores']} cores; PyTorch "
        f"{machine['packages']['torch']}; {found.date}"
    )
    yield f"{n} worker{'s' if n > 1 else ''} at once, {found.steps} steps each, every probe on"
    yield _speeds(found)
    yield _phases(found)
    yield f"held-out evaluation of a trial: {numbers.duration(found.evaluation_seconds)}"
    shares = [s.processor_share for s in found.speeds if s.processor_share is not None]
    if shares and min(shares) < BUSY:
        yield (
            f"[yellow]warning:[/] the workers had a processor for {min(shares):.0%} of the time; "
            "other programs ran beside them, and alone they are faster"
        )


def _speeds(found: Bench) -> Table:
    on_gpu = any(speed.device_memory_bytes is not None for speed in found.speeds)
    columns = ("stack", "tokens/s", "GFLOP/s", "ceiling", "share", "MiB")
    if on_gpu:
        columns += ("GPU MiB",)
    table = table_of(
        *columns, title="speed, against matrix products of its shapes alone", right=columns
    )
    for speed in found.speeds:
        row = [
            str(speed.stack),
            f"{speed.tokens_per_second:,.0f}",
            _three_digits(speed.flops_per_second / 1e9),
            _three_digits(speed.ceiling_flops_per_second / 1e9),
            f"{speed.share:.0%}",
            f"{speed.memory_bytes / MIB:,.0f}",
        ]
        if on_gpu:
            row.append(f"{(speed.device_memory_bytes or 0) / MIB:,.0f}")
        table.add_row(*row)
    return table


def _phases(found: Bench) -> Table:
    """Shares are of the step whose phases were timed, which on a GPU is not the one that trains."""
    phases = tuple(found.speeds[0].phase_seconds)
    title, columns = "ms of a step, and its share", ("stack", *phases, "step")
    on_gpu = any(speed.device_memory_bytes is not None for speed in found.speeds)
    if on_gpu:
        title = "ms of a step with each kernel launched alone, and its share; then in one launch"
        columns += ("one",)
    table = table_of(*columns, title=title, right=columns)
    for speed in found.speeds:
        whole = speed.phased_seconds
        seconds = (*(speed.phase_seconds[phase] for phase in phases), whole)
        shares = [f"[dim]{value / whole:.0%}[/]" for value in seconds]
        milliseconds = [_three_digits(value * 1e3) for value in seconds]
        if on_gpu:
            milliseconds.append(_three_digits(speed.step_seconds * 1e3))
            shares.append("")
        table.add_row(str(speed.stack), *milliseconds)
        table.add_row("", *shares)
    return table


def _three_digits(value: float) -> str:
    """`0.12`, `1.23`, `12.3`, `1,234`."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"
