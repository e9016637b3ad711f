"""The paper's recommendations: what follows from the verdicts of all studies together."""

from __future__ import annotations

from collections.abc import Sequence

from paribus import numbers
from paribus.analysis import SharedContrast
from paribus.decision import Row, Verdict, rule_of
from paribus.report.paper.advice_rules import Record, advice_on
from paribus.report.paper.advice_table import advice_table
from paribus.report.paper.document import Block, Grid, Part, Ref, say
from paribus.report.paper.finding_by_setting import BY_TUNING, trends
from paribus.report.paper.findings import MOST_TOLD
from paribus.report.paper.judged import Judged, Treatment, judged
from paribus.report.paper.material import Material
from paribus.report.words import clause, listed, reference_name
from paribus.study import in_words

NORM = "model.embedding.norm"
UNDECIDED = ("DESCRIPTIVE ONLY", "INCONCLUSIVE")


def recommendation(studies: Sequence[Material]) -> Part:
    """Of one study what its verdicts advise; of several what holds over all of them."""
    if not any(one.verdicts for one in studies):
        return Part("Recommendation", [say("One arm alone: nothing is compared or recommended.")])
    if len(studies) == 1:
        return Part("Recommendation", of_one(studies[0]))
    found = [one for material in studies for one in judged(material)]
    opening = (
        "What follows is advice for settings like these, by rules that read the verdicts and "
        "nothing else, one for every set of verdicts that can come out"
    )
    table = advice_table(studies)
    blocks: list[Block] = [say(f"{opening}.")]
    if table is not None:
        blocks = [
            say(f"{opening}: setting by setting in ", Ref(table.name), "."),
            Grid(table, True),
        ]
    blocks.append(say(f"Over all settings. {' '.join(_over_all(found))}"))
    blocks.append(say(f"What to do instead. {' '.join(_instead(studies, found))}"))
    return Part("Recommendations", blocks)


def by_treatment(found: Sequence[Judged]) -> dict[tuple[Treatment, str], list[Judged]]:
    """The verdicts of every treatment, and of what it is tried against, over all studies."""
    groups: dict[tuple[Treatment, str], list[Judged]] = {}
    for one in found:
        groups.setdefault((one.treatment, one.against), []).append(one)
    return groups


def called(found: Sequence[Judged]) -> str:
    """What a treatment is called: what the names of its arms share, part by part of a title; or the
    shortest of them."""
    first, *others = (one.called.split(", ") for one in found)
    shared = [part for part in first if all(part in other for other in others)]
    return ", ".join(shared) or min((one.called for one in found), key=len)


def _over_all(found: Sequence[Judged]) -> list[str]:
    """What all verdicts on a treatment advise; treatments of which the same is said together."""
    same: dict[str, list[str]] = {}
    for mine in by_treatment(found).values():
        same.setdefault(advice_on(Record.of(mine)).says, []).append(called(mine))
    told = []
    for says, names in same.items():
        each = "each of " if len(names) > 1 else ""
        told.append(f"{each}{_named(names)}: {says[:1].lower()}{says[1:]}")
    return [f"{line[:1].upper()}{line[1:]}" for line in told]


def _named(names: Sequence[str]) -> str:
    """`listed`, of names that may hold commas themselves."""
    return "; ".join(names) if any("," in name for name in names) else listed(list(names))


def _instead(studies: Sequence[Material], found: Sequence[Judged]) -> list[str]:
    told = [*_of_tuning(studies), *_alternatives(found)]
    return told or ["No study here tried anything else."]


def _of_tuning(studies: Sequence[Material]) -> list[str]:
    """What tuning did to an effect that a fixed learning rate had, where all else is the same."""
    same: dict[tuple[str, str], list[str]] = {}
    for trend in trends(studies):
        if trend.axis is BY_TUNING:
            tuned = [_is_tuned(point.material) for point in trend.points]
            where = "with each arm at its best learning rate as at a fixed one"
            other = "with each arm at its best learning rate than at a fixed one: tune the "
            other += "learning rate of both before they are compared"
            if not any(tuned):
                where, other = "at all fixed learning rates tried", "at one fixed rate than another"
            said = f"is another {other}" if trend.changes else f"is the same {where}"
            labels = dict.fromkeys(one.one.contrast.declared.label for one in trend.points)
            same.setdefault((" or ".join(labels), said), []).append(trend.called)
    told = [f"The finding on {label} {said} ({listed(n)})." for (label, said), n in same.items()]
    return [*told, *_signs(studies)]


def _is_tuned(material: Material) -> bool:
    return material.study.tuning is not None


def _signs(studies: Sequence[Material]) -> list[str]:
    """That the sign of a change depends on the value that both arms share."""
    there: dict[str, list[tuple[Material, SharedContrast]]] = {}
    n, of = 0, 0
    for material in studies:
        tuned = material.analysis.tuned
        for arm, _ in material.study.contrasts if tuned else ():
            ends = tuned.extremes(arm) if tuned else None
            of += ends is not None
            if tuned is not None and ends is not None and ends[0].mean < 0 < ends[1].mean:
                n += 1
                there.setdefault(tuned.metric.label, []).extend((material, one) for one in ends)
    if not there:
        return []
    told = [_span_of_signs(label, found) for label, found in there.items()]
    return [
        "Where both arms share a value, the sign of the change, a mean over tuning seeds, depends "
        f"on it in {n} of {of} tuned contrasts ({'; '.join(told)}): a comparison at one value says "
        "little."
    ]


def _span_of_signs(label: str, found: Sequence[tuple[Material, SharedContrast]]) -> str:
    """`validation loss: from -0.1 in A to +0.3 in B`, and all studies where it is so."""
    studies = listed(list(dict.fromkeys(material.name for material, _ in found)))
    ordered = sorted(found, key=lambda pair: pair[1].mean)
    ends = [_shared_change(*pair) for pair in (ordered[0], ordered[-1])]
    return f"{label}, in {studies}, from {' to '.join(ends)}"


def _shared_change(material: Material, one: SharedContrast) -> str:
    tuned = material.analysis.tuned
    assert tuned is not None
    size = numbers.signed(one.mean, tuned.metric.change_digits)
    return f"{size} (at {in_words(tuned.values_of(one)).replace('_', ' ')})"


def _alternatives(found: Sequence[Judged]) -> list[str]:
    """What did without a norm, where others normalise embeddings."""
    others = by_treatment([one for one in found if not _has_norm(one)])
    if not any(_has_norm(one) for one in found):
        return []
    if not others:
        return ["No alternative to a norm was tried."]
    gains, turns, rest = [], [], []
    for mine in others.values():
        kind = advice_on(Record.of(mine)).kind
        (gains if kind == "use" else turns if kind == "depends" else rest).append(called(mine))
    told = []
    if turns:
        told.append(f"Without a norm, what {_named(turns)} does depends on the setting: see above.")
    if gains:
        told.append(f"Without a norm, {_named(gains)} can be used: see above.")
    if rest:
        none = "Nothing else" if gains or turns else "None"
        told.append(f"{none} of what does without a norm can be advised here: {_named(rest)}.")
    return told


def _has_norm(one: Judged) -> bool:
    """Whether the treatment is one of a norm: a constant factor is none."""
    stated = dict(one.treatment)
    if stated.get(NORM) == "fixed_scale":
        return False
    return any(key.startswith("model.embedding.") for key in stated)


def of_one(material: Material) -> list[Block]:
    """What the rows advise that fired for a study's verdicts."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in material.verdicts[:MOST_TOLD]:
        lead = clause(material.analysis, verdict).lead
        groups.setdefault((verdict.metric, lead, verdict.row), []).append(verdict)
    table = rule_of(material.analysis).all_rows
    blocks: list[Block] = [
        say(_advice(material, lead, table[row], members))
        for (_, lead, row), members in groups.items()
    ]
    rest = material.verdicts[MOST_TOLD:]
    if rest:
        fired = {verdict.row for verdict in rest}
        rows = [row for row in table if row in fired]
        blocks.append(
            say(
                f"For the other {len(rest)} verdicts rows {', '.join(rows)} of the "
                "decision table fired; verdict.json has each in words."
            )
        )
    return blocks


def _advice(material: Material, lead: str, row: Row, members: list[Verdict]) -> str:
    """What the row that fired advises on the arms that it fired for."""
    whys = "; ".join(clause(material.analysis, verdict).why for verdict in members)
    text = f"{lead}: {whys}. {row.advice}".rstrip()
    if len(material.study.judged) > 1:
        text = f"On {members[0].label}: {text}"
    if row.outcome in UNDECIDED:
        bases = {reference_name(material.study, verdict.reference) for verdict in members}
        text += f" Until then {' and '.join(sorted(bases))} stays."
    return text
