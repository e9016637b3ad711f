"""Commands that take a study file, from `plan` to `report`; see also `folder_verbs`."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.markup import escape

from paribus.cli.options import (
    PLAIN,
    PLANNED,
    TRAINING,
    TRYING,
    Answer,
    Crew,
    Folder,
    Json,
    Overrides,
    Pdf,
    Planned,
    ResultsPath,
    StudyName,
    Training,
    Trust,
    Trying,
    console,
    parse_overrides,
    print_json,
    print_stamped,
    show,
    show_path,
)
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.engine.cost import Cost
    from paribus.report.model import Card, Report
    from paribus.results import Results
    from paribus.study import Study


def plan(
    study: StudyName,
    *,
    pilot: Path | None = None,
    sd: float | None = None,
    where: Planned = PLANNED,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Print a study's smallest detectable change and its cost.

    Args:
        pilot: The results folder of a similar study, from which SDs are estimated.
        sd: The SD on the primary endpoint, if known: of paired differences, or of unpaired runs.
    """
    loaded = _load(study, set_, trust)
    from paribus.analysis import analyse, detectable, planned_looks
    from paribus.cli import tables
    from paribus.results import load_results
    from paribus.runs.trainer_runner import compared_metrics

    loaded, cost = _cost(loaded, where)
    metrics = compared_metrics(loaded)
    piloted = load_results(pilot) if pilot else None
    earlier = analyse(piloted) if piloted else None
    rows = detectable(loaded, pilot=earlier, sd=sd) if earlier or sd is not None else []
    looks = planned_looks(loaded)
    show(*_question(loaded), tables.arms(loaded, cost))
    show(tables.plan(loaded, rows, metrics, study), *tables.design(loaded))
    show(*tables.detectable(rows, metrics, is_paired=loaded.is_paired))
    show(tables.costs(loaded, cost, piloted))
    if looks:
        show(tables.looks(looks))


def _question(study: Study) -> list[str]:
    """Return the lines with a study's title and question."""
    return [f"[bold]{escape(study.title or study.name)}[/]", escape(study.question)]


def _cost(study: Study, where: Planned) -> tuple[Study, Cost | None]:
    """Resolve budgets and estimate the cost, which is None unless the built-in engine trains."""
    from paribus.study.trainer import STACKED

    options = where.options(study)
    if study.trainer != STACKED:
        return study, None
    tflops, utilisation, count = (options.pop(key) for key in ("tflops", "utilisation", "count"))
    if tflops is None:
        if utilisation or count:
            raise ParibusError("--utilisation and --count require --tflops; add --tflops")
        from paribus.engine.execution.start import estimate, settled_budgets

        return settled_budgets(study), estimate(study, **options)
    from paribus.engine.cost import UTILISATION, stated_rate, study_cost, vocabularies_of

    if where.workers:
        raise ParibusError("--workers cannot be combined with --tflops; use --count instead")
    rate = stated_rate(study, tflops, utilisation=utilisation or UTILISATION, count=count)
    return study, study_cost(study, vocabularies_of(study), rate=rate, price=where.price)


def check(
    study: StudyName | None = None,
    *,
    where: Trying = TRYING,
    set_: Overrides = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Run one training step of each arm to find errors; without a study, list the examples."""
    if study is None:
        from paribus.cli import tables
        from paribus.study import shipped_studies

        show(tables.shipped(shipped_studies()), "To get started: paribus run quickstart")
        return
    loaded = _load(study, set_, trust)
    import tempfile

    from paribus.cli import tables
    from paribus.ledger import unrecorded
    from paribus.numbers import plural
    from paribus.runs.run import register as register_study, try_briefly
    from paribus.study.trainer import COMMAND, STACKED

    options = where.options(loaded)
    with tempfile.TemporaryDirectory() as folder, unrecorded():
        home = Path(folder) / "results"
        register_study(loaded, home, **options)
        tried = try_briefly(loaded, home) if loaded.trainer == COMMAND else {}
    cost = None
    if loaded.trainer == STACKED:
        from paribus.engine.cost import study_cost, vocabularies_of
        from paribus.engine.execution.start import settled_budgets

        loaded = settled_budgets(loaded)
        cost = study_cost(loaded, vocabularies_of(loaded, is_prepared=True))
    if json:
        print_stamped({"study": loaded.model_dump(mode="json"), "cost": cost})
        return
    show(*_question(loaded), tables.arms(loaded, cost))
    show(*tables.design(loaded), *(escape(f"{arm}: {words}") for arm, words in tried.items()))
    how = {STACKED: "; every arm ran one step.", COMMAND: "."}
    show(
        f"{loaded.name} is valid: {plural(len(loaded.arms), 'arm')} x "
        f"{plural(len(loaded.seeds), 'seed')}"
        + how.get(loaded.trainer, "; the trainer was not run.")
    )


def register(
    study: StudyName,
    *,
    results: ResultsPath = None,
    where: Trying = TRYING,
    set_: Overrides = None,
    trust: Trust = False,
) -> None:
    """Register endpoints, margins and the decision rule; `run` also does this."""
    loaded = _load(study, set_, trust)
    from paribus.cli import tables
    from paribus.runs.run import register as register_study

    path = register_study(loaded, results, **where.options(loaded))
    show(*tables.design(loaded))
    show_path(f"registered: {path}")


def run(
    study: StudyName,
    *,
    results: ResultsPath = None,
    where: Training = TRAINING,
    pdf: Pdf = True,
    null: PositiveInt | None = None,
    answer: Answer = PLAIN,
    set_: Overrides = None,
    trust: Trust = False,
) -> int:
    """Train, evaluate and judge the arms of a study, resuming an interrupted run.

    Args:
        null: Instead, estimate false-positive rates from this many baseline-vs-baseline studies.
    """
    loaded = _load(study, set_, trust)
    if null:
        return _run_null(loaded, null, results, where)
    from paribus.cli import tables
    from paribus.results import extended
    from paribus.results.store import results_folder

    staged = extended(loaded, results_folder(loaded, results))
    warnings = "\n".join(tables.design(staged))
    return _finish(train(loaded, results, where, before=warnings), answer, pdf=pdf)


def _run_null(study: Study, number: int, results: Path | None, where: Training) -> int:
    """Run studies of the baseline against itself and print the false-positive rate."""
    from collections import Counter

    from scipy.stats import binomtest

    from paribus import numbers
    from paribus.analysis import analyse
    from paribus.decision import decide
    from paribus.results.store import results_folder
    from paribus.study.null_study import null_studies

    home = results or results_folder(study, None).path.with_name(f"{study.name}-null")
    words, wrong = Counter[str](), 0
    for k, null in enumerate(null_studies(study, number), start=1):
        show(f"null study {k} of {number} (baseline against itself)")
        folder = home / str(k)
        own = [verdict.word for verdict in decide(analyse(train(null, folder, where)))]
        if "INVALID" in own:
            raise ParibusError(f"{folder} has an INVALID verdict; see `paribus report {folder}`")
        wrong += not {"BETTER", "WORSE"}.isdisjoint(own)
        words.update(own)
    ends = binomtest(wrong, number).proportion_ci()
    show(
        ", ".join(f"{word} {n}" for word, n in words.most_common()),
        f"BETTER or WORSE in {wrong} of {numbers.plural(number, 'null study', 'null studies')}: "
        f"{wrong / number:.1%}, 95% interval {ends.low:.1%} to {ends.high:.1%}; nominal rate "
        f"{study.inference.alpha:.1%}",
    )
    return 0


def report(
    folder: Folder,
    *,
    page: Annotated[
        bool, Parameter(negative="--no-page", help="Write the page; --no-page implies --no-pdf.")
    ] = True,
    pdf: Pdf = True,
    answer: Answer = PLAIN,
) -> int:
    """Analyse the results again, write the page and the PDF, and print the summary."""
    from paribus.results import load_results

    return _finish(load_results(folder), answer, page=page, pdf=pdf and page)


def train(
    study: Study,
    results: Path | None,
    where: Crew,
    *,
    before: str = "",
    open_test: bool = True,
) -> Results:
    """Run a study and print its progress.

    Args:
        before: text to print after all checks have passed.
        open_test: whether the built-in trainer also evaluates the sealed test split.
    """
    from paribus.runs.progress import watching
    from paribus.runs.run import run as run_study

    options = where.options(study)
    with watching(console, before) as watch:
        return run_study(study, results, watch=watch, open_test=open_test, **options)


def _load(name: str, overrides: list[str] | None, trust: bool) -> Study:
    from paribus.decision import find_rule
    from paribus.study import load_study, require_trust

    loaded = load_study(name, parse_overrides(overrides), trust=trust)
    require_trust(loaded)
    find_rule(loaded)  # an unknown rule is an error at once
    return loaded


def analysed(results: Results) -> Report:
    """Build the report, and write analysis.json and verdict.json if the folder is writable."""
    from paribus.analysis import analyse as analyse_results
    from paribus.decision import decide
    from paribus.report.model import build_report
    from paribus.report.record import verdict_record
    from paribus.results import ResultsFolder
    from paribus.results.formats import write_json

    log = logging.getLogger("paribus")
    if not results.finished:
        raise ParibusError(
            f"{results.path} has no finished trial; run the study first", code="unfinished"
        )
    if changed := ResultsFolder(results.path).runs_changed():
        log.warning("%s; the verdict refers to the original contents", changed)
    analysis = analyse_results(results)
    report = build_report(decide(analysis))
    if not os.access(results.path, os.W_OK):
        log.warning("%s is read-only, so no files are written", results.path)
        return report
    write_json(results.path / "analysis.json", analysis.to_dict())
    write_json(results.path / "verdict.json", verdict_record(report))
    return report


def _finish(results: Results, answer: Answer, *, pdf: bool, page: bool = True) -> int:
    """Analyse results, write page and PDF, print the summary, and return the exit code."""
    if not (page and os.access(results.path, os.W_OK)):
        return give(analysed(results), answer)
    from paribus.report.figures import draw
    from paribus.report.page import write_report
    from paribus.report.pdf import write_pdf

    with console.status("analysing"):
        report = analysed(results)
    with console.status("writing the page and the PDF" if pdf else "writing the page"):
        shown = (results.judged, report.verdicts.analysis)
        shown = (*shown, report.verdicts, draw(*shown))
        written = [f"page: {write_report(*shown)}"]
        if pdf:
            written.append(f"PDF: {write_pdf(*shown)}")
    return give(report, answer, written)


def give(report: Report, answer: Answer, written: Sequence[str] = ()) -> int:
    """Print the summary or verdict.json, and return the exit code."""
    from paribus.decision import WORDS, exit_code
    from paribus.report.record import verdict_record

    give_card(report, verdict_record(report), answer)
    if answer.verbose:
        from paribus.cli import tables

        show(*tables.in_full(report.verdicts))
    for line in written:
        show_path(line)
    code = exit_code(verdict.word for verdict in report.verdicts)
    return code if answer.exit_verdict or code == WORDS["INVALID"] else 0


def give_card(card: Card, record: dict[str, Any], answer: Answer) -> None:
    """Print a card, or its record as JSON."""
    from paribus.report.render import card_markdown, card_text
    from paribus.schema import stamped

    if answer.json:
        print_json(stamped(record))
    elif answer.markdown:
        print(card_markdown(card), end="")
    else:
        console.print(card_text(card, verbose=answer.verbose), soft_wrap=True)
