"""The verb `paribus judge`: verdicts on finished runs of any program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.markup import escape

from paribus.cli.options import PLAIN, Answer, print_json, show, show_path
from paribus.errors import ParibusError
from paribus.numbers import plural, some

if TYPE_CHECKING:
    from paribus.readers import Reading
    from paribus.results import Results


def judge(
    paths: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    score: list[str] | None = None,
    margin: float | None = None,
    better: list[Literal["lower", "higher"]] | None = None,
    arm: Annotated[str | None, Parameter(name=("--arm", "--arm-from"))] = None,
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
        score: The score that decides; repeat the option for scores that stand beside it.
        margin: The largest change that would not matter, in the score's unit.
        better: Which direction is better, repeated for each score; by default by its name.
        arm: What names the arm: a column, a fact, or the folder or name of the file; by default
            arm.
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
    scores = score or []
    if study is not None:
        stated = {"--score": score, "--margin": margin, "--better": better, "--baseline": baseline}
        stated |= {"--arm": arm, "--pair": pair, "--target": target}
        if repeated := [name for name, value in stated.items() if value]:
            raise ParibusError(
                f"{', '.join(repeated)} is already set by the study; remove it, or remove --study"
            )
        records = _judge_study(study, paths, reader, results)
        return 0 if records is None else _give(records, page, answer)
    if not paths:
        raise ParibusError("judge takes files, such as runs.csv, or a registered --study")
    from paribus.readers.judge import judged, make_study

    options: dict[str, Any] = {"arm": arm, "seed": seed, "pair": pair, "reader": reader}
    options |= {"step": step, "item": item, "metric": metric, "value": value}
    options |= {"where": where or [], "best_of": best_of, "at_step": at_step}
    options |= {"crashed": crashed, "stopped_early": stopped_early}
    if bar is not None:
        unused = {"--page": page, "--results": results, "--margin": margin, "--baseline": baseline}
        unused |= {"--target": target, "--markdown": answer.markdown}
        if stated := [option for option, value in unused.items() if value]:
            raise ParibusError(
                f"{', '.join(stated)} has no meaning with --bar, which prints a card; leave it out"
            )
        return _against_bar(paths, scores, bar, better, alpha, answer, options)
    built, reading, selection = make_study(
        paths,
        score=scores,
        margin=margin,
        baseline=baseline,
        better=better,
        target=target,
        resolution=resolution,
        alpha=alpha,
        name=results.name if results else "judged",
        **options,
    )
    if answer.verbose:
        _show_reading(reading)
        for fact in selection.facts:
            own = "; ".join(f"{arm} {some(list(map(str, v)), 3)}" for arm, v in fact.values.items())
            if fact.conclusion not in ("equal", "varies"):
                show(f"{fact.name}: {fact.conclusion} ({fact.kind}): {own}")
    with judged(built, reading, selection, results) as records:
        return _give(records, page, answer)


def _against_bar(
    paths: list[str],
    scores: list[str],
    bar: float,
    better: list[Literal["lower", "higher"]] | None,
    alpha: float,
    answer: Answer,
    options: dict[str, Any],
) -> int:
    """Print the comparison of one arm with a bar, and return the exit code."""
    from paribus.decision import WORDS
    from paribus.readers.judge import (
        compare_with_bar,
        default_score,
        describe_bar,
        direction,
        read_data,
    )
    from paribus.readers.select import score_of, select_runs
    from paribus.schema import stamped

    reading, section, by_arm = read_data(paths, scores, **options)
    if len(by_arm) > 1:
        raise ParibusError(
            f"--bar needs a single arm, and there are {len(by_arm)}: {', '.join(by_arm)}"
        )
    score = scores[0] if scores else default_score(reading.runs)
    side = better[0] if better else direction(score)
    selection = select_runs(by_arm, section, [score], lower=side == "lower")
    ((arm, runs),) = selection.runs.items()
    values = [score_of(run, score, section.at_step) for run in runs]
    against = compare_with_bar(values, bar, side, alpha)
    if answer.json:
        print_json(stamped({"bar": {"score": score} | against}))
    else:
        lines = describe_bar(arm, score, against)
        if n := selection.excluded.get(arm):
            lines.append(f"Failed runs are excluded: {n} of {plural(n + len(runs), 'run')}.")
        show(*map(escape, [*lines, *(text for _, text in selection.findings)]))
    return WORDS[against["word"]] if answer.exit_verdict else 0


def _judge_study(
    name: str, paths: list[str] | None, reader: str | None, results: Path | None
) -> Results | None:
    """Judge a registered study of runs, named by its file or results folder. While it has no runs
    yet, print so and return None."""
    from paribus.readers.runs import files_of, judge_runs, scores_of
    from paribus.readers.select import read_runs
    from paribus.results.store import ResultsFolder, results_folder
    from paribus.study import load_study
    from paribus.study.runs import section_of
    from paribus.study.trainer import RUNS

    is_folder = Path(name).is_dir()
    study = ResultsFolder(Path(name)).read_study() if is_folder else load_study(name)
    if study.trainer != RUNS:
        raise ParibusError(
            f"{name} is run by trainer '{study.trainer}': `paribus run` runs it, and `paribus "
            "report` judges its results"
        )
    home = ResultsFolder(Path(name)) if is_folder else results_folder(study, results)
    section, is_judged = section_of(study), home.read_runs() is not None
    if paths:
        reading = read_runs(paths, section, scores_of(study), reader)
        return judge_runs(study, home.path, reading=reading)
    if is_folder and not is_judged:
        raise ParibusError(
            f"{name} has no verdict yet, and its paths are relative to the study's file; "
            "judge that file the first time, such as --study study.toml"
        )
    if section.paths and not is_judged and not files_of(study):
        show(f"{study.name}: no runs in {', '.join(section.paths)} yet")
        return None
    return judge_runs(study, home.path)


def _show_reading(reading: Reading) -> None:
    """Print how many files were read, and why others were not."""
    show_path(f"{reading.counts}.")
    for fate, files in (("refused", reading.refused), ("skipped", reading.skipped)):
        for path, why in files:
            show_path(f"{fate}: {path}: {why}")


def _give(results: Results, page: Path | None, answer: Answer) -> int:
    """Analyse, decide, write the page, print the card, and return the exit code."""
    from paribus.cli.commands import analysed, give

    report, written = analysed(results), list[str]()
    if page is not None:
        from paribus.files import write_bytes
        from paribus.report.page import render

        write_bytes(page, render(results, report.verdicts.analysis, report.verdicts).encode())
        written.append(f"page: {page}")
    return give(report, answer, written)
