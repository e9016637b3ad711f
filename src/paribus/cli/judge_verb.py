"""Command `paribus judge`: verdicts on finished runs of any program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape

from paribus.cli.options import PLAIN, Answer, show, show_path
from paribus.errors import ParibusError, one_line
from paribus.numbers import some

if TYPE_CHECKING:
    from paribus.results import Results


@Parameter(name="*")
@dataclass(frozen=True)
class Selection:
    """Command-line options for selecting runs and reading their files.

    Attributes:
        arm: The column or setting with the arm, or folder or name (of the file); by default arm.
        seed: The column or setting with the seed; by default seed.
        pair: Pair runs by this column (such as seed), if paired runs share data.
        reader: The file format, if not detected: a name, form.toml or file.py:name.
        where: Use only runs that satisfy a condition, such as lr=0.01.
        best_of: For each seed, use only the best run over the values of this setting.
        step: The column with the step, for tables with several rows per run.
        item: The column with the item, for tables with one row per question.
        metric: The column with the score's name, for tables with one row per score.
        value: The column with the score's value, for tables with one row per score.
        at_step: The step at which to read scores; by default the last.
        crashed: Treat runs without a finite score as diverged (data), or exclude them.
        stopped_early: Set to ok if a budget stopped the runs that end early, as planned.
    """

    arm: str | None = None
    seed: str | None = None
    pair: str | None = None
    reader: Annotated[str | None, Parameter(name="--form")] = None
    where: list[str] | None = None
    best_of: str = ""
    step: str = ""
    item: str = ""
    metric: str = ""
    value: str = ""
    at_step: float | None = None
    crashed: Literal["data", "exclude"] = "data"
    stopped_early: Literal["ask", "ok"] = "ask"


ALL = Selection()


def judge(
    paths: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    score: list[str] | None = None,
    margin: float | None = None,
    better: list[Literal["lower", "higher"]] | None = None,
    baseline: str | None = None,
    selection: Selection = ALL,
    target: float | None = None,
    bar: float | None = None,
    alpha: float = 0.05,
    study: str | None = None,
    results: Path | None = None,
    page: Path | None = None,
    answer: Answer = PLAIN,
) -> int:
    """Judge finished runs from tables or logs of any trainer.

    Args:
        paths: Files, folders and glob patterns; ARM=PATTERN sets the arm of the matching runs.
        score: The primary score; repeat the option for secondary scores.
        margin: The largest change considered negligible, in the score's unit.
        better: The better direction, repeated for each score; by default inferred from the name.
        baseline: The arm that the other arms are compared with; by default baseline.
        target: Also compare the budgets needed to reach this value of the score.
        bar: Compare the mean of a single arm with this number.
        alpha: The family-wise error rate over all arms.
        study: The file or results folder of a registered [runs] study, which sets these options.
        results: A folder for the records, which report and verify can read.
        page: A file for the HTML page.
    """
    scores = score or []
    if page is not None:
        _require_page(page)
    if study is not None:
        stated = {"score": score, "margin": margin, "better": better, "baseline": baseline}
        stated |= {"arm": selection.arm, "pair": selection.pair, "target": target}
        _require_unset("cannot be combined with --study, which sets it", **stated)
        from paribus.trainers.runs import judge_study

        records = judge_study(study, paths or [], selection.reader, results)
        if isinstance(records, str):
            show(escape(records))
            return 0
        return _give(records, page, answer)
    if not paths:
        raise ParibusError("no runs to judge; pass files, such as runs.csv, or --study")
    if files := [path for path in paths if path.endswith(".toml")]:
        raise ParibusError(f"{files[0]} is a study file, not runs; pass --study {files[0]}")
    from paribus.readers.judge import make_study
    from paribus.trainers.runs import judge_against_bar, judged

    options: dict[str, Any] = vars(selection) | {"where": selection.where or []}
    if bar is not None:
        unused = {"page": page, "results": results, "margin": margin, "baseline": baseline}
        _require_unset("cannot be combined with --bar", **unused, target=target)
        from paribus.cli.commands import give_card
        from paribus.decision import WORDS
        from paribus.report.bar import bar_card

        side = better[0] if better else None
        against, record = judge_against_bar(paths, scores, bar, better=side, alpha=alpha, **options)
        give_card(bar_card(against, record), {"bar": against}, answer)
        return WORDS[against["word"]] if answer.exit_verdict else 0
    built, reading, chosen = make_study(
        paths,
        score=scores,
        margin=margin,
        baseline=baseline,
        better=better,
        target=target,
        alpha=alpha,
        name=results.name if results else "judged",
        **options,
    )
    if answer.verbose:
        for fate, files in (("refused", reading.refused), ("skipped", reading.skipped)):
            for path, why in files:
                show_path(one_line(f"{fate}: {path}: {why.removeprefix(path)}"))
        for fact in chosen.facts:
            own = "; ".join(f"{arm} {some(list(map(str, v)), 3)}" for arm, v in fact.values.items())
            if fact.conclusion not in ("equal", "varies"):
                show_path(f"{fact.name}: {fact.conclusion} ({fact.kind}): {own}")
    with judged(built, reading, chosen, results) as records:
        ways = f"records: {results}; for the page and the PDF: paribus report {results}"
        return _give(records, page, answer, [ways] if results else [])


def _require_page(path: Path) -> None:
    """Raise ParibusError unless `path` names an HTML file in an existing folder."""
    if path.suffix.lower() != ".html" or not path.absolute().parent.is_dir():
        ways = "a PDF is written by --results DIR and `paribus report DIR`"
        raise ParibusError(f"--page {path} must be NAME.html in an existing folder; {ways}")


def _require_unset(why: str, **options: object) -> None:
    """Raise ParibusError if any of the options is set, with `why` as the reason."""
    if stated := [f"--{name}" for name, value in options.items() if value]:
        raise ParibusError(f"{' and '.join(stated)} {why}; remove {' and '.join(stated)}")


def _give(results: Results, page: Path | None, answer: Answer, written: Sequence[str] = ()) -> int:
    """Analyse results, write the page, print the summary, and return the exit code."""
    from paribus.cli.commands import analysed, give

    report, written = analysed(results), list(written)
    if page is not None:
        from paribus.files import write_bytes
        from paribus.report.page import render

        write_bytes(page, render(results, report.verdicts.analysis, report.verdicts).encode())
        written.append(f"page: {page}")
    return give(report, answer, written)
