"""Summary badges: counts of trials, controls and excluded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paribus.analysis import Analysis
from paribus.errors import one_line
from paribus.report.sentences import sentence
from paribus.results.controls import WORST
from paribus.results.records import RunsRecord


@dataclass(frozen=True)
class Chip:
    """Summary badge shown next to the verdicts, such as "15 of 15 trials".

    Attributes:
        section: id of the page section that the badge links to.
        style: "good", "open" or "bad", or "" for no style.
    """

    text: str
    section: str
    style: str = ""


def chips_of(analysis: Analysis) -> Iterator[Chip]:
    """Yield badges that count trials, controls, excluded runs and stable trials."""
    runs, called = analysis.runs, analysis.study.called
    n, total = len(analysis.events), analysis.n_trials
    yield _chip("trials", "trials", "" if n == total else "open", n, total)
    states = Counter(control.state for control in analysis.controls)
    counts = [f"{states[state]} {state}" for state in WORST[-2::-1] if states[state]]
    if runs:
        yield _chip("unrecorded", "controls", "open")
        yield from chips_of_runs(runs)
    elif states:
        style = "bad" if states["broken"] else "open" if states["not proven"] else "good"
        yield _chip("controls", "controls", style, states["held"], states.total(), counts)
    if runs and analysis.study.is_paired:
        alone = {
            (arm, seed)
            for pair in analysis.study.contrasts
            for arm, partner in (pair, pair[::-1])
            for seed in analysis.seeds_of(arm) - analysis.seeds_of(partner)
        }
        if alone:
            yield _chip("unpaired", "trials", "open", len(alone))
    if analysis.excluded:
        names = [f"{count} of {called[arm]}" for arm, count in analysis.excluded.items()]
        yield _chip("failed", "trials", "open", names=names)
    if events := [event for event in analysis.events.values() if event.has_losses]:
        stable = sum(not event.is_unstable for event in events)
        style = "good" if stable == len(events) else "open"
        yield _chip("stable", "stability", style, stable, len(events))


def chips_of_runs(runs: RunsRecord) -> Iterator[Chip]:
    """Yield badges that count files that could not be read, and copies."""
    if runs.refused:
        names = [one_line(path) for path, _ in runs.refused]
        yield _chip("refused", "trials", "open", len(names), runs.files, names)
    if runs.copies:
        yield _chip("copies", "trials", "open", runs.copies)


def _chip(
    code: str, section: str, style: str, n: int = 0, total: int = 0, names: Sequence[str] = ()
) -> Chip:
    return Chip(sentence("chip", code=code, n=n, total=total, names=names), section, style)
