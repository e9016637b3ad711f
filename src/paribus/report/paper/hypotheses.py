"""The hypotheses, each with one answer over all studies, its intervals, and what could be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paribus import numbers
from paribus.decision import HYPOTHESES, rule_of
from paribus.report.paper.document import Block, Grid, Part, Ref, say
from paribus.report.paper.judged import SHORT, Judged, State, judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.tables import change_of
from paribus.report.words import listed

OF: dict[str, State] = {"H0": "none", "H1a": "harm"}  # the finding that shows it
CURE = "H1b"
EMBEDDING = "model.embedding."  # how the keys begin that say what is done to embeddings
JUDGED = ("harm", "gain", "none", "open")
MOST_ROWS = 16  # of all comparisons; of more, those that are open are in the appendix alone
TITLE = "The hypotheses: zero- and few-shot accuracy"


def spoken_to(material: Material) -> list[Judged]:
    """The verdicts of a study that speak to H0 and H1a: those on the endpoint that they are of."""
    rows = rule_of(material.analysis).rows
    if not any(row.hypothesis in OF for row in rows):
        return []
    metric = HYPOTHESES["H0"].metric or ""
    return [one for one in judged_on(judged(material), metric) if one.state in JUDGED]


def hypotheses(studies: Sequence[Material]) -> Part | None:
    """The section; None where no verdict speaks to H0 and H1a."""
    found = [(material, one) for material in studies for one in spoken_to(material)]
    if not found:
        return None
    every = [one for _, one in found]
    told = " ".join([_h1a(every), _h0(every), _open(every)])
    shown = found
    if len(found) > MOST_ROWS:
        shown = [(material, one) for material, one in found if one.state != "open"]
    blocks: list[Block] = []
    if shown:
        table = _table(shown)
        opening = " All are in " if shown == found else " The others are in "
        blocks += [say(told, opening, Ref(table.name), "."), Grid(table)]
    else:
        blocks.append(say(told))
    blocks.append(say(" ".join(filter(None, [_power(found), _chance(found), _h1b(studies)]))))
    return Part(TITLE, blocks, level=2)


def _h1a(found: Sequence[Judged]) -> str:
    """Whether a cost in accuracy was shown, in how many comparisons and how large."""
    shown = [one for one in found if one.state == OF["H1a"]]
    label, n = found[0].contrast.declared.label, len(found)
    if not shown:
        return f"H1a, that {label} falls, is shown in none of {n} comparisons."
    holds = "everywhere" if len(shown) == n else "in some settings"
    return (
        f"H1a, that {label} falls although training is stable, holds {holds}: it is shown in "
        f"{len(shown)} of {n} comparisons, with changes of {_span(shown)}."
    )


def _h0(found: Sequence[Judged]) -> str:
    """Whether it was shown that nothing worth having changes."""
    shown = [one for one in found if one.state == OF["H0"]]
    margins = listed(list(dict.fromkeys(one.margin for one in found)))
    where = f"in {len(shown)} of them" if shown else "in none"
    return f"H0, a change shown to lie within the margin of {margins}, is shown {where}."


def _open(found: Sequence[Judged]) -> str:
    left = [one for one in found if one.state == "open"]
    gains = [one for one in found if one.state == "gain"]
    text = f" In {len(gains)} accuracy rises, which neither of them says." if gains else ""
    if not left:
        return text.strip()
    text += f" {len(left)} {'are' if len(left) > 1 else 'is'} open, with changes of {_span(left)}"
    return f"{text.strip()}: neither an effect nor its absence is shown there."


def _span(found: Sequence[Judged]) -> str:
    """The least to the largest change, and the span of all intervals."""
    says = [one.contrast.decided for one in found if one.contrast.decided is not None]
    digits = found[0].contrast.declared.change_digits
    ends = dict.fromkeys(numbers.signed(f(one.mean for one in says), digits) for f in (min, max))
    low = min(one.interval.low for one in says)
    high = max(one.interval.high for one in says)
    return f"{' to '.join(ends)} (intervals within {numbers.interval(low, high, digits)})"


def _power(found: Sequence[tuple[Material, Judged]]) -> str:
    """What could have been seen, beside what is worth seeing."""
    digits, seen, missed, worth = 4, [], 0, set[float]()
    for _, one in found:
        says, contrast = one.contrast.decided, one.contrast
        if says is None or says.detectable is None:
            continue
        seen.append(says.detectable)
        digits = contrast.declared.change_digits
        if contrast.smallest_effect is not None:
            worth.add(contrast.smallest_effect)
            missed += contrast.could_miss
    if not seen:
        return ""
    powers = listed(sorted({f"{material.study.inference.power:.0%}" for material, _ in found}))
    ends = [numbers.fixed(f(seen), digits) for f in (min, max)]
    text = (
        f"With {powers} power changes from {ends[0]} on would have been seen in the most sensitive "
        f"comparison, and from {ends[1]} on in the least."
    )
    if missed:
        least = listed([f"{value:g}" for value in sorted(worth)])
        text += (
            f" The registered smallest effect worth detecting, {least}, can have been missed in "
            f"{missed} of {len(found)}."
        )
    return text


def _chance(found: Sequence[tuple[Material, Judged]]) -> str:
    """How far above guessing the references are, without which nothing can fall."""
    above = []
    for material in {one.name: one for one, _ in found}.values():
        rows = material.results.tasks.to_pylist()
        mine = [r["accuracy"] - r["chance"] for r in rows if r["arm"] == material.study.baseline]
        above += [float(np.mean(mine))] if mine else []
    if not above:
        return ""
    low, high = (numbers.signed(100 * value, 1) for value in (min(above), max(above)))
    where = f"{low}" if low == high else f"{low} to {high}"
    return f"The baselines of these studies are {where} percentage points above guessing."


def _h1b(studies: Sequence[Material]) -> str:
    """Whether instability was cured where there was one."""
    tried = [
        one
        for material in studies
        if any(row.hypothesis == CURE for row in rule_of(material.analysis).rows)
        for one in judged(material)
        if one.state in JUDGED and not one.verdict.evidence.baseline_stable
    ]
    # Where some arms are of embeddings, it speaks of these: a lower learning rate can cure, too.
    tried = [one for one in tried if _is_of_embeddings(one)] or tried
    arms = {(one.study, one.verdict.arm) for one in tried}
    cured = {(one.study, one.verdict.arm) for one in tried if one.stability == "cured"}
    if not arms:
        return f"{CURE}, a cure where training is unstable, was not put to the test."
    where = listed(list(dict.fromkeys(study for study, _ in sorted(arms))))
    return (
        f"{CURE}, a cure where training is unstable, was put to the test in {where} alone, and is "
        f"shown in {len(cured)} of {numbers.plural(len(arms), 'comparison')}."
    )


def _is_of_embeddings(one: Judged) -> bool:
    return any(key.startswith(EMBEDDING) for key, _ in one.treatment)


def _table(found: Sequence[tuple[Material, Judged]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(material.name for material, _ in found):
        rows.append((name, "", "", ""))
        rows += [_row(one) for material, one in found if material.name == name]
    declared = found[0][1].contrast.declared
    unit = f" ({declared.change_unit})" if declared.change_unit else ""
    levels = listed(
        sorted({numbers.level(material.study.inference.alpha) for material, _ in found})
    )
    return Table(
        "hypotheses",
        f"The comparisons that speak to H0 and H1a: the change of {declared.label}{unit} against "
        f"the reference at the same seed, with {levels} intervals, and the least change that would "
        "have been seen with the registered power.",
        ("arm", "change", "seen from", "finding"),
        tuple(rows),
        frozenset({"arm", "finding"}),
    )


def _row(one: Judged) -> tuple[str, ...]:
    says, digits = one.contrast.decided, one.contrast.declared.change_digits
    return (
        f"\N{EN SPACE}{one.called}",
        change_of(one.contrast) if says else one.contrast.why_not,
        numbers.fixed(says.detectable if says else None, digits),
        SHORT[one.state],
    )
