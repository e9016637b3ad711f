"""The paper's limits, and how what it reports is made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paribus import numbers
from paribus.numbers import plural
from paribus.report.paper.alike import merged, once, skeleton
from paribus.report.paper.caveats import rates_untold, shared_caveats
from paribus.report.paper.designs import spanned, texts
from paribus.report.paper.document import Block, Grid, Part, Ref, say
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.words import listed
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Study


def limits(studies: Sequence[Material]) -> Part:
    """What the studies do not say."""
    size = spanned(n for one in studies for n in one.parameters)
    several = len(studies) > 1
    what = "These are models" if several else "This is a model"
    if not size:
        what = "These are models of one kind" if several else "This is one model"
    else:
        what += f" of {size} parameters"
    iterations = spanned(one.facts.iterations for one in studies)
    told = [
        f"{what}, trained for {iterations} iterations on {texts(studies)}; nothing here says what "
        "would happen at another scale, with another budget or on another text.",
        _seeds(studies),
        *_named(studies, [_tuned(one, alone=not several) for one in studies]),
    ]
    unbounded = sum(c.primary and c.paired is None for s in studies for c in s.analysis.contrasts)
    if unbounded:
        told.append(f"{unbounded} primary contrasts could not be analysed.")
    left = [one.name for one in studies if one.analysis.left_out]
    if left:
        where = "the results" if not several else f"the records of {listed(left)}"
        told.append(f"Seeds were left out of comparisons; they are named in {where}.")
    held = dict.fromkeys(one.facts.held_out for one in studies)
    told.append(
        f"{'. '.join(held)}; next-token accuracy and loss are no measure of what a model can be "
        "used for."
    )
    if several:
        told += [*shared_caveats(studies), *rates_untold(studies)]
        told.append(
            "Each study holds its own error rate; none is held over all of them together, and "
            "nothing is pooled."
        )
    return Part("Limits", [say(" ".join(told))])


def _named(studies: Sequence[Material], lines: Iterable[str]) -> list[str]:
    """Lines that differ in numbers alone as one, with the names of the studies that it is of where
    others have another."""
    alike: dict[str, dict[str, str]] = {}
    for one, line in zip(studies, lines, strict=True):
        alike.setdefault(skeleton(line), {})[one.name] = line
    told = [merged(list(lines.values())) for lines in alike.values()]
    if len(alike) == 1:
        return told
    return [f"In {listed(list(of))}: {line}" for of, line in zip(alike.values(), told, strict=True)]


def _seeds(studies: Sequence[Material]) -> str:
    few = [one for one in studies if len(one.study.seeds) < DESCRIPTIVE_BELOW]
    rest = [one for one in studies if len(one.study.seeds) >= DESCRIPTIVE_BELOW]
    told = []
    if few:
        n = sorted({len(one.study.seeds) for one in few})
        where = "" if not rest else f" in {listed([one.name for one in few])}"
        seeds = plural(n[0], "seed") if len(n) == 1 else f"{spanned(n)} seeds"
        told.append(
            f"With {seeds}{where} there is too little to test anything, so differences are "
            "described."
        )
    if rest:
        dropout = any(one.facts.training["dropout"] for one in rest)
        told.append(
            f"{'The others have' if few else 'There are'} "
            f"{spanned(len(one.study.seeds) for one in rest)} seeds. Intervals are as "
            "wide as so few pairs make them, and they speak of what a seed decides: "
            f"initialization, order of the data{' and dropout' if dropout else ''}."
        )
    return " ".join(told)


def _tuned(material: Material, *, alone: bool) -> str:
    """What was tuned before the verdict, and what was not."""
    study, tuned = material.study, material.analysis.tuned
    if tuned is None or study.tuning is None:
        where = _listed_rates(study) if alone else "at those of its design"
        return (
            f"The study itself tunes no learning rate: every verdict holds {where}, "
            "however that was chosen. An arm may do better, or worse, at settings tuned for it."
        )
    keys = listed([key.rpartition(".")[2].replace("_", " ") for key in study.tuning.keys])
    return (
        f"Arms were tuned in {keys} alone, over {len(tuned.candidates)} candidates by "
        f"{tuned.metric.label} on {plural(len(study.tuning.seeds), 'seed')}. All else is as it was "
        "set for all of them, and may suit one arm better than another."
    )


def _listed_rates(study: Study) -> str:
    """`at the learning rate 3e-4`, or at those of all arms."""
    rates = {study.setting(arm).training.optimizer.learning_rate for arm in study.arms}
    words = [numbers.compact(rate) for rate in sorted(rates)]
    return f"at the learning rate{'s' if len(words) > 1 else ''} {listed(words)}"


def reproducibility(studies: Sequence[Material], own: Sequence[str]) -> Part:
    """Digests, and what makes the records and this paper again; `own` are the sections that have
    words of the authors."""
    blocks: list[Block] = []
    same = (
        "On the same software and kind of CPU the records are equal byte for byte, timing apart. "
    )
    machines = "".join(f"{line} " for line in once(one.facts.machine for one in studies) if line)
    if len(studies) == 1:
        text = (
            f"The study's digest is {studies[0].study.digest}. The file study.json beside this "
            "paper holds every setting; “paribus run study.json” trains all arms again, and "
            "“paribus report” draws the page and this paper from the records without training. "
            f"{same}{machines}Tables are beside this paper as CSV, figures as SVG and PDF, and the "
            "text as data."
        )
        blocks.append(say(text))
    else:
        blocks.append(
            say(
                "Digests are in ",
                Ref("digests"),
                ". The file study.json of each results folder holds every setting; “paribus run "
                "study.json” trains its arms again, “paribus verify” computes its root digest from "
                "registration and sealed records, and “paribus paper” sets this paper from the "
                f"records without training. {same}{machines}",
            )
        )
        blocks.append(Grid(_digests(studies)))
    written = (
        f"Words of the authors stand in {listed(list(own))}; all other sentences, numbers, tables "
        "and figures were made from the records."
        if own
        else "Every sentence, number, table and figure was made from the records."
    )
    blocks.append(say(written))
    return Part("Reproducibility", blocks)


def _digests(studies: Sequence[Material]) -> Table:
    rows = tuple((one.full_name, one.study.digest[:12], one.results.root) for one in studies)
    head = ("study", "registration", "root digest over registration and sealed records")
    caption = "Digests of what was registered and recorded."
    return Table("digests", caption, head, rows, frozenset(head), wide=True)
