"""What the command line prints of a study: what ships, what it would do and cost, how far it is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.cli.printed_tables import table_of
from paribus.digests import flatten
from paribus.engine.execution.timing.estimate import Estimate
from paribus.engine.execution.trial.checkpoints import begun_stacks
from paribus.results import Results
from paribus.results.heldout_part import awaits_heldout_part
from paribus.study import Study, is_open


def shipped(studies: dict[str, Study]) -> Table:
    """Every study that ships: what it asks, and arms x seeds."""
    table = table_of("study", "what it asks", "trials")
    for name, study in studies.items():
        question = study.question or study.title
        table.add_row(name, escape(question), f"{len(study.arms)} x {len(study.seeds)}")
    return table


def cost(study: Study, estimated: Estimate) -> Table:
    """Tokens, operations, time and memory."""
    tokens = sum(estimated.tokens[arm] for arm, _ in study.trials)
    flops = sum(estimated.flops[arm] for arm, _ in study.trials)
    how = "measured just now" if estimated.measured else "at least: too large to try out here"
    table = table_of("", "", title=f"{len(study.trials)} trials", right=("",))
    table.show_header = False
    if len(set(estimated.bytes_per_token.values())) > 1:
        for arm in study.arms:
            table.add_row(f"trial of {escape(arm)}", _budget(estimated, arm))
    else:
        table.add_row("tokens per trial", f"{estimated.tokens[study.baseline]:,}")
    table.add_row("tokens in all", f"{tokens:,}")
    table.add_row("FLOPs per trial", f"{estimated.flops[study.baseline]:.3g}")
    table.add_row("FLOPs in all", f"{flops:.3g}")
    side = f" of {estimated.stack} side by side" if estimated.stack > 1 else ""
    table.add_row(f"one step{side} ({how})", f"{estimated.step_seconds * 1e3:,.0f} ms")
    table.add_row(*_precision(study, estimated))
    many = "s" if estimated.workers > 1 else ""
    where = f"{estimated.workers} worker{many} on {estimated.device}"
    table.add_row(f"expected time, {where}", numbers.duration(estimated.seconds))
    if study.tuning is not None:
        growing = f", more where the grid grows ({study.tuning.extensions} times at most)"
        edge = growing if study.tuning.edge == "extend" else ""
        table.add_row("tuning trials, before these", f"{estimated.tuning_trials}{edge}")
        table.add_row("tokens of these", f"{estimated.tuning_tokens:,}")
        table.add_row("expected time of tuning", numbers.duration(estimated.tuning_seconds))
    table.add_row("memory of a worker", f"{estimated.memory_bytes / 2**20:,.0f} MiB")
    return table


def _budget(estimated: Estimate, arm: str) -> str:
    """What a trial of `arm` is trained on, where arms read other text or have other tokens."""
    tokens, each = estimated.tokens[arm], estimated.bytes_per_token[arm]
    return (
        f"{estimated.iterations[arm]:,} iterations, {tokens:,} tokens, {tokens * each:,.0f} bytes "
        f"({each:.3g} a token)"
    )


def _precision(study: Study, estimated: Estimate) -> tuple[str, str]:
    """What it would be trained with, and whether the device can do that well."""
    label = "precision (auto: kept once registered)" if is_open(study) else "precision"
    return label, estimated.precision + (" (emulated: slow)" if estimated.emulated else "")


def study(study: Study, estimated: Estimate) -> Iterator[RenderableType]:
    """What `paribus show` prints: the question, the arms, the cost, and every key as resolved."""
    yield f"[bold]{escape(study.title or study.name)}[/]"
    if study.question:
        yield escape(study.question)
    arms = table_of(
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
            f"{estimated.parameters[arm]:,}",
            f"{estimated.flops[arm] / 1e12:,.2f}",
        )
    yield arms

    yield cost(study, estimated)
    spec = table_of("key", "value", title="as resolved")
    for key, value in flatten(study.model_dump(exclude={"arms", "claims"})).items():
        spec.add_row(key, escape(_shown(value)))
    yield spec


def _shown(value: object) -> str:
    """A value of a study; of a list of tables a line for each, with what is stated in it."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], dict):
        return str(value)
    stated = [
        {key: of for key, of in table.items() if of is not None and of is not False}
        for table in value
    ]
    return "\n".join(", ".join(f"{key} = {of}" for key, of in table.items()) for table in stated)


def status(results: Results) -> Iterator[RenderableType]:
    """Every trial with its state and steps, and how many are finished."""
    table = table_of("trial", "state", "steps", "training", right=("steps", "training"))
    finished = {(folder.arm, folder.seed) for folder in results.finished}
    stacks = begun_stacks(results.path).items()
    begun = {trial: steps for stack, steps in stacks for trial in stack}
    for folder in [*results.finished, *results.unfinished]:
        if (folder.arm, folder.seed) in finished:
            trial = results.trials[folder.arm, folder.seed]
            diverged = trial["diverged_at"] is not None
            state = "[red]diverged[/]" if diverged else "[green]finished[/]"
            seconds = results.timing[folder.arm, folder.seed]["training_seconds"]
            row = (state, str(trial["iterations"]), numbers.duration(seconds))
        else:
            steps = begun.get((folder.arm, folder.seed))
            row = ("waiting" if steps is None else "started", str(steps or 0), "")
        table.add_row(escape(folder.label), *row)
    yield table
    yield f"{len(results.finished)} of {results.n_trials} trials are finished"
    if awaits_heldout_part(results):
        yield (
            "the sealed test part is not evaluated yet: the run opens it once, when every trial is "
            "finished"
        )
