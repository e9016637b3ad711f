"""What the command line prints, as rich renderables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.analysis import Analysis
from paribus.execution import Estimate
from paribus.results import Results
from paribus.study import METRICS, Study
from paribus.study.canonical import flatten

MARKS = {"held": "[green]✓[/]", "declared": "[yellow]~[/]", "broken": "[red]✗[/]"}


def _table(*columns: str, title: str = "", right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def shipped(studies: dict[str, Study]) -> Table:
    table = _table("study", "what it asks", "trials")
    for name, study in studies.items():
        question = study.question or study.title
        table.add_row(name, escape(question), f"{len(study.arms)} x {len(study.seeds)}")
    return table


def study(study: Study, cost: Estimate) -> Iterator[RenderableType]:
    yield f"[bold]{escape(study.title or study.name)}[/]"
    if study.question:
        yield escape(study.question)
    arms = _table(
        "arm",
        "against",
        "differs in",
        "parameters",
        "TFLOP",
        title="arms",
        right=("parameters", "TFLOP"),
    )
    for arm in study.arms:
        differences = [f"{k}\n  {a} -> {b}" for k, (a, b) in study.differences(arm).items()]
        arms.add_row(
            escape(arm),
            escape(study.reference(arm) or ""),
            escape("\n".join(differences)) or "(nothing)",
            f"{cost.parameters[arm]:,}",
            f"{cost.flops[arm] / 1e12:,.2f}",
        )
    yield arms

    trials = len(study.trials)
    tokens = sum(cost.tokens[arm] for arm, _ in study.trials)
    flops = sum(cost.flops[arm] for arm, _ in study.trials)
    total = _table("cost", "", title=f"{trials} trials", right=("",))
    total.add_row("tokens per trial", f"{cost.tokens[study.baseline]:,}")
    total.add_row("tokens in all", f"{tokens:,}")
    total.add_row("training FLOPs in all", f"{flops:.3g}")
    step = f"{cost.step_seconds * 1e3:,.0f} ms"
    total.add_row("one step" if cost.measured else "one step, at least", step)
    how = "measured just now" if cost.measured else "a lower bound: too large to try out here"
    total.add_row(
        f"expected time, {cost.workers} workers on {cost.device}", numbers.duration(cost.seconds)
    )
    total.add_row("memory of a worker", f"{cost.memory_bytes / 2**20:,.0f} MiB")
    yield total
    yield f"[dim]time and memory: {how}[/]"

    spec = _table("key", "value", title="as resolved")
    for key, value in flatten(study.model_dump(exclude={"arms", "claims"})).items():
        spec.add_row(key, escape(str(value)))
    yield spec


def status(results: Results) -> Iterator[RenderableType]:
    table = _table("trial", "state", "steps", "training", right=("steps", "training"))
    finished = {(folder.arm, folder.seed) for folder in results.finished}
    for folder in [*results.finished, *results.unfinished]:
        if (folder.arm, folder.seed) in finished:
            trial = results.trials[folder.arm, folder.seed]
            diverged = trial["diverged_at"] is not None
            state = "[red]diverged[/]" if diverged else "[green]finished[/]"
            seconds = results.timing[folder.arm, folder.seed]["training_seconds"]
            row = (state, str(trial["iterations"]), numbers.duration(seconds))
        else:
            checkpoint = folder.read_checkpoint()
            steps = checkpoint[1]["t"] if checkpoint else 0
            row = ("started" if checkpoint else "waiting", str(steps), "")
        table.add_row(escape(folder.label), *row)
    yield table
    yield f"{len(results.finished)} of {len(results.study.trials)} trials are finished"


def comparison(analysis: Analysis) -> Iterator[RenderableType]:
    """Arm x metric with deltas, then the controls, then what was left out."""
    study = analysis.study
    table = _table("", "mean (SD)", "n", "delta to its baseline \\[95% CI]", right=("n",))
    for endpoint in study.endpoints:
        metric = METRICS[endpoint.metric]
        table.add_row(f"[bold]{metric.label}[/]", f"[dim]{metric.unit}[/]")
        for arm in study.arms:
            summary = analysis.summary(arm, metric.name)
            table.add_row(
                f"  {escape(arm)}",
                numbers.mean_sd(summary.mean, summary.sd, metric.digits),
                str(summary.n),
                _delta(analysis, arm, metric.name),
            )
    yield table
    yield from _claims(analysis)

    controls = _table("control", "arm", "", "", title="all else equal?")
    for control in analysis.controls:
        controls.add_row(
            control.name, escape(control.arm), MARKS[control.state], escape(control.detail)
        )
    if analysis.controls:
        yield controls
    for line in left_out_lines(analysis):
        yield f"[yellow]left out:[/] {escape(line)}"


def left_out_lines(analysis: Analysis) -> list[str]:
    """One line per seed and reason; the same reason is not said again for every metric."""
    lines = [
        f"seed {out.seed} of {out.arm} against {out.reference}: {out.why}"
        for out in analysis.left_out
    ]
    return list(dict.fromkeys(lines))


def _delta(analysis: Analysis, arm: str, metric: str) -> str:
    if analysis.study.reference(arm) is None:
        return ""
    contrast = analysis.contrast(arm, metric)
    if contrast.paired is None:
        return f"[dim]{contrast.why_not}[/]"
    interval = contrast.paired.t_interval
    return numbers.delta(contrast.paired.mean, interval.low, interval.high, METRICS[metric].digits)


def _claims(analysis: Analysis) -> Iterator[RenderableType]:
    claims = analysis.study.claims
    if claims is None:
        return
    table = _table("", "claimed", "measured", title="claimed and measured")
    for claim in claims.values:
        metric = METRICS[claim.metric]
        table.add_row(f"[bold]{metric.label}[/]")
        for arm in claim.arms:
            summary = analysis.summary(arm, claim.metric)
            table.add_row(
                f"  {escape(arm)}",
                numbers.mean_sd(claim.mean, claim.sd, metric.digits),
                numbers.mean_sd(summary.mean, summary.sd, metric.digits),
            )
    yield table
    yield f"[dim]claimed by {escape(claims.source)}[/]"
