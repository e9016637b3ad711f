"""Live progress: a bar and the trials under way, in a terminal or a notebook; else plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from paribus import numbers
from paribus.runs.progress import Progress, Watch

PLAIN_SECONDS, NOTEBOOK_SECONDS = 15.0, 0.5
MOST_TRIALS_SHOWN = 12


@contextmanager
def bar(wanted: bool | None) -> Iterator[Watch | None]:
    """Yield what shows progress if it is `wanted`: by default, in a terminal or a notebook."""
    console = Console()
    if not (console.is_terminal or console.is_jupyter if wanted is None else wanted):
        yield None
        return
    with watching(console) as watch:
        yield watch


@contextmanager
def watching(console: Console, before: Iterable[RenderableType] = ()) -> Iterator[Watch]:
    """Yield a `watch` for `paribus.run`; its first call prints `before`."""
    waiting = iter(before)

    def after(watch: Watch) -> Watch:
        def heard(progress: Progress) -> None:
            for part in waiting:
                console.print(part)
            watch(progress)

        return heard

    if console.is_jupyter:
        yield after(_in_notebook())
        return
    if not console.is_terminal:
        yield after(_plain(console))
        return
    starting = Spinner("dots", "starting workers, trying one step of every arm")
    with Live(starting, console=console, refresh_per_second=4, transient=True) as live:
        yield after(lambda progress: live.update(picture(progress)))


@contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Say `what` is done while it is; a line where there is no terminal."""
    if console.is_terminal:
        with console.status(what):
            yield
        return
    console.print(what)
    yield


def _in_notebook() -> Watch:
    """Return what writes one output anew; rich's own live display needs ipywidgets for that."""
    from IPython.display import display  # pyright: ignore[reportMissingImports]

    handle: Any = display({"text/plain": "starting"}, raw=True, display_id=True)

    def show(progress: Progress) -> None:
        console = Console(width=80, force_jupyter=False, color_system=None)
        with console.capture() as drawn:
            console.print(picture(progress))
        handle.update({"text/plain": drawn.get()}, raw=True)

    return _seldom(show, NOTEBOOK_SECONDS)


def _plain(console: Console) -> Watch:
    def show(progress: Progress) -> None:
        fresh = progress.news not in ("", progress.doing)
        news = f"{progress.news}; " if fresh else ""
        console.print(escape(f"{news}{_summary(progress)}"), soft_wrap=True)

    return _seldom(show, PLAIN_SECONDS)


def _seldom(show: Watch, seconds: float) -> Watch:
    """Return `show`, called if there are news, or was not called for some seconds."""
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if progress.news or time.monotonic() - last >= seconds:
            last = time.monotonic()
            show(progress)

    return watch


def _summary(progress: Progress) -> str:
    left, doing = progress.seconds_left, progress.doing
    if not doing and left is not None and progress.tokens_done < progress.tokens:
        doing = f"{numbers.duration(left)} left"
    parts = [f"{progress.n_finished}/{progress.n_trials} trials"]
    if progress.unit == "tokens":
        parts.append(f"{progress.tokens_done / max(progress.tokens, 1):.0%} of tokens")
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    return ", ".join([*parts, doing] if doing else parts)


def picture(progress: Progress) -> Group:
    """Return a bar, a line of counts and the trials that are being trained."""
    running = Table.grid(padding=(0, 2))
    for label, (t, loss) in list(progress.running.items())[:MOST_TRIALS_SHOWN]:
        running.add_row(f"  {escape(label)}", f"step {t}", f"loss {numbers.fixed(loss, 3)}")
    bar = Table.grid()  # a bar alone does not end its line
    bar.add_row(ProgressBar(total=progress.tokens, completed=progress.tokens_done, width=72))
    return Group(bar, _summary(progress), running)
