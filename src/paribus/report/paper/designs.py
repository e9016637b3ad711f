"""What sets the studies of a paper apart: a row for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paribus import numbers
from paribus.numbers import plural
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.words import listed
from paribus.study import LEARNING_RATE, Study


def designs(studies: Sequence[Material]) -> Table:
    """The design of every study."""
    rows = tuple(_row(material) for material in studies)
    head = ("study", "layers x width", "matrix", "parameters", "iterations", "windows")
    return Table(
        "designs",
        "The studies: the sizes of their models, whether the output matrix is the token matrix "
        "(shared) or its own, the iterations of a trial, windows and their "
        "tokens in a batch, the training tokens of a trial, learning rate and schedule, seeds, "
        "arms, and trials that were trained for the verdict. Where several stand in a cell, arms "
        f"differ in it.{_left_of_names(studies)}",
        (*head, "tokens a trial", "learning rate", "seeds", "arms", "trials"),
        rows,
        frozenset({"study", "layers x width", "matrix", "windows", "learning rate"}),
        wide=True,
    )


def _left_of_names(studies: Sequence[Material]) -> str:
    """What names of studies begin with, where it is not told."""
    starts = {one.full_name.removesuffix(one.name) for one in studies} - {""}
    if not starts:
        return ""
    return f" Names omit “{listed(sorted(starts))}”, which they begin with."


def _row(material: Material) -> tuple[str, ...]:
    study, settings = material.study, [material.study.setting(arm) for arm in material.study.arms]
    batches = sorted({one.training.batch_size for one in settings})
    shapes = sorted({(one.model.n_layer, one.model.d_model) for one in settings})
    lengths = sorted({one.data.seq_len for one in settings})
    return (
        material.name,
        _several(f"{layers} x {width}" for layers, width in shapes),
        _several("shared" if one.model.head.tied else "own" for one in settings),
        spanned(material.parameters),
        _several(f"{one.iterations:,}" for one in settings),
        f"{_several(str(n) for n in batches)} x {_several(str(n) for n in lengths)}",
        spanned(one.tokens for one in settings),
        _rates(study),
        seeds(study),
        str(len(study.arms)),
        f"{material.analysis.n_trials:,}",
    )


def _rates(study: Study) -> str:
    settings = [study.setting(arm) for arm in study.arms]
    schedules = (
        one.training.schedule.kind
        + (f", warmup {one.training.schedule.warmup}" if one.training.schedule.warmup else "")
        for one in settings
    )
    schedule = _several(schedules, "; ")
    if study.tuning and LEARNING_RATE in study.tuning.keys:
        return f"tuned for each arm; {schedule}"
    rates = sorted({one.training.optimizer.learning_rate for one in settings})
    return f"{', '.join(map(numbers.compact, rates))}; {schedule}"


def seeds(study: Study) -> str:
    """How many seeds, or after how many the data are looked at."""
    return ", ".join(map(str, study.plan.looks)) if study.plan else str(len(study.seeds))


def spanned(values: Iterable[int]) -> str:
    """`8,656`, or `8,656 to 1,611,136`; empty without any."""
    known = sorted(set(values))
    if len(known) < 2:
        return "".join(f"{value:,}" for value in known)
    return f"{known[0]:,} to {known[-1]:,}"


def millions(values: Sequence[int]) -> str:
    """`0.1, 0.5 and 6.4 million`; fewer than a tenth of a million as they are."""
    if any(value < 100_000 for value in values):
        return listed([f"{value:,}" for value in values])
    return f"{listed(list(dict.fromkeys(f'{value / 1e6:.1f}' for value in values)))} million"


def design_in_words(material: Material) -> str:
    """A study's design in a sentence."""
    study = material.study
    settings = [study.setting(arm) for arm in study.arms]
    tokens = spanned(one.tokens for one in settings)
    size = spanned(material.parameters)
    text = f"{plural(len(study.arms), 'arm')}"
    text += f" of {size} parameters" if size else ""
    text += f", {tokens} training tokens a trial, "
    if study.plan:
        text += f"looks after {listed([str(look) for look in study.plan.looks])} seeds"
    else:
        text += plural(len(study.seeds), "seed")
    text += f": {plural(material.analysis.n_trials, 'trial')}"
    if study.tuning and LEARNING_RATE in study.tuning.keys:
        tuned = material.analysis.tuned
        n = f"{len(tuned.candidates)} " if tuned else ""
        text += f", each arm at its best of {n}learning rates that were tried on other seeds"
    else:
        rates, _, schedule = _rates(study).partition("; ")
        text += f", at a learning rate of {rates} ({schedule})"
    if study.data.test_fraction or study.data.test_path:
        text += "; the verdict is of a part of the text that was sealed until then"
    return f"{text}."


def texts(studies: Sequence[Material]) -> str:
    """On what text models were trained, each text once."""
    return listed(list(dict.fromkeys(one.facts.text for one in studies)))


def _several(values: Iterable[str], between: str = ", ") -> str:
    return between.join(dict.fromkeys(values))
