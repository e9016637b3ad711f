"""Looks in the terminal: the plan before a run, and where a study stands."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape

from paribus import numbers
from paribus.analysis import Analysis, PlannedLooks, look_in_words
from paribus.cli.printed_tables import table_of
from paribus.results import Results
from paribus.study import Study


def planned(study: Study, plan: PlannedLooks | None) -> Iterator[RenderableType]:
    """The boundaries of each look, and how many seeds a study takes on average."""
    if plan is None or study.plan is None:
        return
    alpha, family = study.inference.alpha, study.family
    columns = ["seeds", "spent"]
    columns += ["|t|", "p"] if family == 1 else ["|t|, first", "p, first", "|t|, last", "p, last"]
    table = table_of("look", *columns, title="looks", right=("look", *columns))
    for number, (first, last) in enumerate(zip(plan.first, plan.last, strict=True), start=1):
        bounds = [first] if family == 1 else [first, last]
        cells = [cell for b in bounds for cell in (f"{b.t:.2f}", f"{b.nominal_p:.2g}")]
        table.add_row(str(number), str(first.pairs), f"{last.spent:.2g}", *cells)
    yield table
    if family > 1:
        yield (
            f"[dim]first: the first of {family} family by Holm's method, at level "
            f"{alpha / family:.3g}; last: where all others are rejected, at {alpha:g}[/]"
        )
    most = plan.first[-1].pairs
    columns = ["seeds, mean", "of the baseline", "found", f"found with {most} fixed"]
    columns += ["inside the margin"] if plan.margin else []
    table = table_of("true difference", *columns, title="expected seeds", right=tuple(columns))
    for row in plan.expected:
        found = row.found
        cells = [f"{found.pairs[0]:.1f} of {most}", f"{found.baseline:.1f}"]
        cells += [f"{found.effects[0]:.0%}", f"{row.fixed_power:.0%}"]
        cells += [f"{found.equivalent[0]:.0%}"] if plan.margin else []
        at_margin = plan.margin and abs(row.effect - plan.margin) < 0.005
        name = f"{row.effect:g} SD" + (" (the margin)" if at_margin else "")
        table.add_row(name, *cells)
    yield table
    if not plan.margin:
        yield (
            "[dim]stops inside the margin are left out: --pilot DIR or --sd X says how wide the "
            "margin is in SDs[/]"
        )


def standing(results: Results) -> Iterator[RenderableType]:
    """The looks that were taken, and the one that comes."""
    study = results.study
    if study.plan is None:
        return
    for entry in results.looks:
        yield escape(look_in_words(study, entry))
    if results.unfinished:
        number = len(results.looks)
        if number < len(study.plan.looks):
            upto = study.plan.looks[number]
            yield f"next is look {number + 1} of {len(study.plan.looks)}, at {upto} seeds"


def sampled(analysis: Analysis) -> Iterator[RenderableType]:
    """A line for each contrast of a study with looks or stages: its pairs, and the plain interval
    beside the one that holds."""
    for contrast in analysis.contrasts:
        one = contrast.sampling
        if not contrast.primary or one is None or not one.in_words:
            continue
        on = f" on {contrast.declared.label}" if len(analysis.study.judged) > 1 else ""
        text = f"{contrast.arm}{on}: {one.in_words}"
        if contrast.paired is not None and contrast.tested:
            plain, digits = contrast.paired.t_interval, contrast.declared.digits
            shown = numbers.delta(contrast.paired.mean, plain.low, plain.high, digits)
            text += f"; as one plain sample it would be {shown}"
        yield f"[dim]{escape(text)}[/]"
