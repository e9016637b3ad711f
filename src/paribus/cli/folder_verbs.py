"""The verbs of a results folder that is there: followed, asked more, checked, exported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from paribus.cli import study_tables
from paribus.cli.options import HERE, AverageLast, Folder, Step, Trust, Where, Workers, console
from paribus.errors import ParibusError


def watch(folder: Folder) -> None:
    """Follow a study under way; leaves when it is finished."""
    from paribus.cli.watch import watch as watch_folder

    watch_folder(folder, console)


def status(folder: Folder) -> None:
    """Show which trials of a results folder are finished."""
    from paribus.cli import sampling_tables, tuning_tables
    from paribus.results import ResultsFolder, load_results

    results = load_results(folder)
    of_tuning = tuning_tables.rounds(ResultsFolder(results.path))
    for part in (*study_tables.status(results), *sampling_tables.standing(results), *of_tuning):
        console.print(part)


def extend(
    folder: Folder,
    *,
    seeds: Annotated[int, Parameter(help="How many seeds the second stage has.")],
) -> None:
    """Register a second stage of new seeds, which `paribus run` then trains."""
    from paribus.analysis import extension_in_words
    from paribus.results import extend as extend_study

    study = extend_study(folder, seeds)
    first, last = study.seeds[study.stages[0]], study.seeds[-1]
    console.print(f"registered: a second stage, seeds {first} to {last}")
    console.print(extension_in_words(study))
    console.print(f"`paribus run STUDY --results {folder}` trains it", soft_wrap=True, markup=False)


def evaluate(
    folder: Folder,
    *,
    tasks: Annotated[
        list[str] | None,
        Parameter(negative=(), consume_multiple=True, help="Tasks by name; by default all."),
    ] = None,
    fewshot: Annotated[
        str | None,
        Parameter(help="Solved examples before each question; by default 0,1,3, of --standard 0."),
    ] = None,
    items: Annotated[
        int | None, Parameter(help="Questions of each task; by default all of them.")
    ] = None,
    standard: Annotated[
        bool, Parameter(negative=(), help="The harness's own tasks, which are downloaded.")
    ] = False,
    data: Annotated[
        Path | None, Parameter(help="Where copies of the standard tasks' data sets lie.")
    ] = None,
    step: Step = None,
    average_last: AverageLast = 1,
    workers: Workers = None,
    where: Where = HERE,
    trust: Trust = False,
) -> None:
    """Let finished trials answer zero- and few-shot tasks through the LM Evaluation Harness."""
    from paribus.cli import task_tables
    from paribus.engine.execution.evaluate import evaluate as evaluate_trials
    from paribus.results import ResultsFolder

    found = evaluate_trials(
        folder,
        tasks=tasks,
        shots=_shots(fewshot),
        items=items,
        kind="standard" if standard else "own",
        data=data,
        step=step,
        average_last=average_last,
        workers=workers,
        **where.chosen(),
        trust=trust,
    )
    for part in task_tables.answers(ResultsFolder(folder).read_study(), found):
        console.print(part)
    console.print(f"answers: {found.path}", soft_wrap=True)


def verify(
    results: Folder,
    *,
    trials: Annotated[
        bool,
        Parameter(negative=(), help="Evaluate every trial's weights again, and redraw its start."),
    ] = False,
    folder: Annotated[
        Path | None,
        Parameter(help="Where the study file lies, if its text is named by a relative path."),
    ] = None,
    workers: Workers = None,
    where: Where = HERE,
    trust: Trust = False,
) -> int:
    """Check a results folder against itself; 3 where something does not agree."""
    from paribus.verification import verify as verify_folder

    found = verify_folder(
        results,
        trials=trials,
        folder=folder,
        trust=trust,
        workers=workers,
        **where.chosen(),
    )
    for line in found.checked:
        console.print(f"checked: {line}", soft_wrap=True, markup=False)
    for line in found.findings:
        console.print(f"does not agree: {line}", soft_wrap=True, markup=False)
    console.print(f"root: {found.root}", soft_wrap=True)
    return 3 if found.findings else 0


def keep(
    results: Folder,
    out: Annotated[Path, Parameter(help="The folder to write; it must be new.")],
) -> None:
    """Keep a finished study without its weights: records, tables, page, verdict, root digest."""
    from paribus.results import keep as keep_study
    from paribus.verification import verify as verify_folder

    written = keep_study(results, out)
    size = sum(path.stat().st_size for path in written.rglob("*") if path.is_file())
    console.print(f"kept: {written} ({size / 2**20:.1f} MiB)", soft_wrap=True)
    console.print(f"root: {verify_folder(written).root}", soft_wrap=True)


def unpack(
    kept: Annotated[Path, Parameter(help="A kept study.")],
    out: Annotated[Path, Parameter(help="The results folder to write; it must be new.")],
) -> None:
    """Make a results folder of a kept study, for whatever reads one; it has no weights."""
    from paribus.results import unpack as unpack_study

    console.print(f"unpacked: {unpack_study(kept, out)}", soft_wrap=True)


def compare(
    *folders: Folder,
    output: Annotated[Path, Parameter(help="The page to write.")] = Path("compare.html"),
) -> None:
    """Put several studies of the same arms on one page, side by side; nothing is pooled."""
    from paribus.report import write_comparison
    from paribus.results import load_results

    with _readable(folders) as read:
        path = write_comparison([load_results(folder) for folder in read], output)
    console.print(f"comparison: {path}", soft_wrap=True)


def paper(
    *sources: Annotated[
        Path, Parameter(help="The paper, a Markdown file; with --new the folders of its studies.")
    ],
    output: Annotated[
        Path | None,
        Parameter(
            name=["--output", "-o"],
            help="The PDF, by default of the paper's name; with --new the Markdown file, paper.md.",
        ),
    ] = None,
    new: Annotated[
        bool, Parameter(negative=(), help="Write a first draft on these studies, to be edited.")
    ] = False,
    check: Annotated[
        bool,
        Parameter(
            negative=(),
            help="List numbers that are bound to nothing, and values that changed; set nothing.",
        ),
    ] = False,
    latex: Annotated[
        Path | None, Parameter(help="A folder for the paper as LaTeX, in place of the PDF.")
    ] = None,
) -> int:
    """Set a paper whose numbers, tables and figures are of studies; 1 where --check finds any."""
    from paribus.report import paper as papers

    if new:
        path = output or Path("paper.md")
        papers.write_draft(sources, path)
        console.print(f"draft: {path}; `paribus paper {path}` sets it", soft_wrap=True)
        return 0
    if len(sources) != 1:
        raise ParibusError(
            f"{len(sources)} files; a paper is one Markdown file, which `paribus paper --new DIR "
            "...` begins"
        )
    source = sources[0]
    if check:
        findings = papers.check(source)
        for line in findings:
            console.print(line, soft_wrap=True, markup=False)
        return 1 if findings else 0
    pdf = output or (None if latex else source.with_suffix(".pdf"))
    if pdf and pdf.suffix != ".pdf":
        raise ParibusError(f"{pdf} must be the name of a file that ends in .pdf; choose another")
    for line in papers.set_paper(source, pdf, latex):
        console.print(line, soft_wrap=True, markup=False)
    for made in filter(None, (pdf, latex)):
        console.print(f"paper: {made}", soft_wrap=True)
    return 0


def export(
    results: Folder,
    out: Annotated[Path, Parameter(help="The folder to write; it must be new or empty.")],
    *,
    trial: Annotated[str, Parameter(help="Which model: ARM/seed-N, such as layernorm/seed-1.")],
    folder: Annotated[
        Path | None,
        Parameter(help="Where the study file lies, if its text is named by a relative path."),
    ] = None,
    step: Step = None,
    average_last: AverageLast = 1,
    trust: Trust = False,
) -> None:
    """Write a trained model as a Hugging Face folder; its logits are ours."""
    from paribus.engine.export import export_trial

    arm, _, seed = trial.rpartition("/seed-")
    if not arm or not seed.isdecimal():
        raise ParibusError(f"--trial '{trial}' must be ARM/seed-N, such as layernorm/seed-1")
    written = export_trial(
        results,
        arm,
        int(seed),
        out,
        folder=folder,
        step=step,
        average_last=average_last,
        trust=trust,
    )
    console.print(f"exported: {written}", soft_wrap=True)


@contextlib.contextmanager
def _readable(folders: Sequence[Path]) -> Iterator[list[Path]]:
    """Results folders, those of kept studies unpacked for as long."""
    from paribus.results import readable

    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(readable(folder)) for folder in folders]


def _shots(text: str | None) -> list[int] | None:
    """Numbers parted by commas."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise ParibusError(f"--fewshot {text} must be whole numbers, such as 0,1,3")
    return [int(part) for part in parts]
