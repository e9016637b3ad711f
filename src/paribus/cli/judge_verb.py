"""The verb `paribus judge`: verdicts on finished runs of any program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from paribus.cli.options import PLAIN, Answer, show, show_path
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.readers import Reading
    from paribus.results import Results
    from paribus.study import Study
    from paribus.study.runs import RunsSection


def judge(
    paths: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    score: list[str] | None = None,
    margin: float | None = None,
    better: list[Literal["lower", "higher"]] | None = None,
    arm: str | None = None,
    arm_from: str | None = None,
    seed: str | None = None,
    baseline: str | None = None,
    pair: str | None = None,
    reader: Annotated[str | None, Parameter(name=("--reader", "--form"))] = None,
    where: list[str] | None = None,
    best_of: str = "",
    step: str = "",
    item: str = "",
    metric: str = "",
    value: str = "",
    new_items: bool = False,
    at_step: float | None = None,
    target: float | None = None,
    crashed: Literal["data", "exclude"] = "data",
    stopped_early: Literal["ask", "ok"] = "ask",
    bar: float | None = None,
    resolution: float | None = None,
    alpha: float = 0.05,
    study: str | None = None,
    results: Path | None = None,
    page: Path | None = None,
    answer: Answer = PLAIN,
) -> int:
    """Judge finished runs from tables or logs of any trainer.

    Args:
        paths: Files, folders and patterns; label=PATTERN names the arm of its runs.
        score: The score that decides; more of them stand beside it.
        margin: The largest change that would not matter, in the score's unit.
        better: Which direction is better, of the first score or of each; by default by its name.
        arm: The column or fact that names the arm; by default arm.
        arm_from: What else names it: folder or name of the file, or a fact.
        seed: The column or fact that is the seed; by default seed.
        baseline: The arm that others are compared with; by default baseline.
        pair: Compare runs of one seed, or of one value of this column, as pairs: they share data.
        reader: The form of the files, if not recognised: a name, your form.toml or file.py:name.
        where: Take the runs that meet a condition, such as lr=0.01.
        best_of: Take the best run of each seed over this setting.
        step: The column of steps, where a run has several rows of a table.
        item: The column of items, where a run has a row for each question.
        metric: The column of the score's name, in a table with a row for each.
        value: The column of its value there.
        new_items: Claim it of new questions or documents, too.
        at_step: The step at which scores are read; by default the last.
        target: Compare what runs need to come to this value of the score, too.
        crashed: Whether a run without a finite score is a result, or is left out.
        stopped_early: ok: runs that are called crashed were stopped by the budget of all.
        bar: Compare the runs of one arm with this number instead.
        resolution: The smallest difference that the score can show, where runs may be equal.
        alpha: The chance of a false claim, over all arms.
        study: A registered [runs] study: its file or results folder says all of this.
        results: A folder to keep the records in, for report and verify.
        page: Write the page to this file.
    """
    if arm and arm_from:
        raise ParibusError(f"--arm {arm} and --arm-from {arm_from} both name arms; keep one")
    if page is not None:
        from paribus.report.page import prepare

        prepare()
    from paribus.readers.select import read_runs, table_columns
    from paribus.study.runs import section_from
    from paribus.trainers.judge import judged, make_study, paired_by

    scores = score or []
    if study is not None:
        stated = {"--score": score, "--margin": margin, "--better": better, "--baseline": baseline}
        stated |= {"--arm": arm or arm_from, "--pair": pair, "--target": target}
        if options := [name for name, value in stated.items() if value]:
            raise ParibusError(
                f"{', '.join(options)} is what the study says; leave it out beside --study"
            )
        registered, home = _registered(study, results, paths)
        if not paths and (waiting := _wait_for_runs(registered, home)):
            show(waiting)
            return 0
        reading = _read(registered, paths, reader)
        from paribus.trainers.recording import judge_runs

        records = judge_runs(registered, home, **({"reading": reading} if reading else {}))
        return _give(records, page, answer)
    if not paths:
        raise ParibusError("judge takes files, such as runs.csv, or a registered --study")
    seed = paired_by(pair, seed)
    rows = {"step": step, "item": item, "metric": metric, "value": value}
    columns = table_columns(scores, arm or arm_from, seed, pair=pair is not None, **rows)
    reading, named = read_runs(paths, reader, columns, arm=arm or arm_from)
    counted: dict[str, Any] = {
        "at_step": at_step,
        "crashed": crashed,
        "stopped_early": stopped_early,
        "where": where or (),
        "best_of": best_of,
    }
    if bar is not None:
        section = section_from({"arm": named, "seed": seed or "seed"} | counted)
        return _against_bar(reading, section, scores, bar, better, alpha, answer)
    built = make_study(
        reading,
        scores=scores,
        margin=margin,
        baseline=baseline,
        better=better,
        arm=named,
        seed=seed or "seed",
        pair=pair is not None,
        target=target,
        resolution=resolution,
        alpha=alpha,
        new_items=new_items,
        rows=rows,
        name=results.name if results else "judged",
        **counted,
    )
    if answer.verbose:
        _show_files(reading)
        _show_facts(reading, built)
    with judged(built, reading, results) as records:
        return _give(records, page, answer)


def _against_bar(
    reading: Reading,
    section: RunsSection,
    scores: list[str],
    bar: float,
    better: list[Literal["lower", "higher"]] | None,
    alpha: float,
    answer: Answer,
) -> int:
    """Print the comparison of one arm with a bar; returns the exit code."""
    from dataclasses import asdict

    from paribus.cli.options import print_json
    from paribus.decision import WORDS
    from paribus.readers.select import group_by_arm, select_runs, set_nested_seed
    from paribus.schema import stamped
    from paribus.trainers.bar import compare_with_bar
    from paribus.trainers.judge import default_score, direction
    from paribus.trainers.runs import check_runs

    set_nested_seed(reading.runs, section)
    by_arm = group_by_arm(reading.runs, section)
    if len(by_arm) > 1:
        raise ParibusError(f"--bar is of one arm, and there are {len(by_arm)}: {', '.join(by_arm)}")
    score = scores[0] if scores else default_score(reading.runs)
    side = direction(score, better[0] if better else None)
    selection = select_runs(by_arm, section, score, lower=side == "lower")
    findings = selection.findings + check_runs(selection.runs, section, [score])
    runs = next(iter(selection.runs.values()), [])
    against = compare_with_bar(runs, score, bar, side, at_step=section.at_step, alpha=alpha)
    if answer.json:
        print_json(stamped({"bar": asdict(against)}))
    else:
        show(*against.lines, *(finding.text for finding in findings))
    return WORDS[against.word].exit_code if answer.exit_verdict else 0


def _registered(
    name: str, results: Path | None, paths: list[str] | None
) -> tuple[Study, Path | None]:
    """Return a study of runs, by its file or its results folder, and where its records are."""
    from paribus.results import ResultsFolder
    from paribus.study import load_study
    from paribus.study.trainer import RUNS

    home = Path(name)
    if home.is_dir():
        study, results = ResultsFolder(home).read_study(), home
        if study.trainer == RUNS and not paths and ResultsFolder(home).read_runs() is None:
            raise ParibusError(
                f"{name} has no verdict yet, and its paths begin where the study's file lies; "
                "judge that file the first time, such as --study study.toml"
            )
    else:
        study = load_study(name)
    if study.trainer != RUNS:
        raise ParibusError(
            f"{name} is run by trainer '{study.trainer}': `paribus run` runs it, and `paribus "
            "report` judges its results"
        )
    return study, results


def _wait_for_runs(study: Study, results: Path | None) -> str:
    """Return that a study waits for its runs; empty where files exist, or a verdict does."""
    from paribus.results import ResultsFolder
    from paribus.results.registration import read_registration
    from paribus.runs.run import results_folder
    from paribus.study.runs import section_of
    from paribus.trainers.runs import files_of

    paths = section_of(study).paths
    folder = ResultsFolder(results_folder(study, results).path)
    if not paths or files_of(study) or folder.read_runs():
        return ""
    registered = "not registered" if read_registration(folder) is None else "registered"
    return f"{study.name}: {registered}; no runs in {', '.join(paths)} yet"


def _read(study: Study, paths: list[str] | None, reader: str | None) -> Reading | None:
    """Return the runs in the files that are named; None where the study names its own."""
    if not paths:
        return None
    from paribus.readers.select import read_runs
    from paribus.study.runs import section_of
    from paribus.trainers.runs import columns_of

    section = section_of(study)
    columns = columns_of(section, study.metrics)
    return read_runs(paths, reader or section.reader or None, columns, arm=section.arm)[0]


def _show_files(reading: Reading) -> None:
    """Print what became of the files."""
    show(f"{reading.counts}.")
    for fate, files in (("refused", reading.refused), ("skipped", reading.skipped)):
        for path, why in files:
            show_path(f"{fate}: {path}: {why}")


def _show_facts(reading: Reading, study: Study) -> None:
    """Print which facts of the runs differ, and what follows from each."""
    from paribus.readers.select import group_by_arm
    from paribus.study.runs import section_of
    from paribus.trainers.runs import facts_of_runs

    section = section_of(study)
    facts = facts_of_runs(group_by_arm(reading.runs, section), section, study.metrics)
    for fact in facts:
        if fact.conclusion not in ("equal", "varies"):
            values = "; ".join(
                f"{arm} {', '.join(map(str, own[:3]))}" for arm, own in fact.values.items()
            )
            show(f"{fact.conclusion}: {fact.name} ({fact.kind}): {values}")


def _give(results: Results, page: Path | None, answer: Answer) -> int:
    """Analyse, decide, write the page, print the card; returns the exit code."""
    from paribus.cli.commands import analysed, give

    report, written = analysed(results), list[str]()
    analysis = report.verdicts.analysis
    if page is not None:
        from paribus.files import write_bytes
        from paribus.report.page import render

        write_bytes(page, render(results, analysis, report.verdicts).encode())
        written.append(f"page: {page}")
    return give(report, answer, written)
