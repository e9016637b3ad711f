"""What to do where: a row for all arms and settings that fared alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from paribus import numbers
from paribus.analysis import Contrast
from paribus.report.paper.advice_rules import KINDS, Advice, Record, advice_on
from paribus.report.paper.designs import millions
from paribus.report.paper.judged import IN_WORDS, Judged, judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.tables import change_of
from paribus.report.words import listed
from paribus.study import LEARNING_RATE

MOST_CHANGES = 2  # of one cell that stand one by one
MOST_SETTINGS = 2  # of one cell that are told; of more the studies are named
Found = tuple[Material, Judged]
LEFT = ("described", "invalid")  # states on which nobody can act


def advice_table(studies: Sequence[Material]) -> Table | None:
    """The table, its rows by kind of advice; None where nothing could be judged."""
    found = [
        (material, one) for material in studies for one in judged(material) if one.state not in LEFT
    ]
    metrics = list(dict.fromkeys(one.metric for _, one in found))
    told: dict[str, list[tuple[str, ...]]] = {kind: [] for kind in KINDS}
    groups = _alike(found, metrics)
    for group in groups:
        advice = advice_on(Record.of([one for _, one in group]))
        told[advice.kind].append(_row(studies, group, metrics, advice))
    blank = ("",) * (len(metrics) + 2)
    rows = [
        row for kind, title in KINDS.items() if told[kind] for row in ((title, *blank), *told[kind])
    ]
    if not rows:
        return None
    heads = (_head([one for _, one in found], metric) for metric in metrics)
    head = ("setting", "what was tried", *heads, "what to do")
    caption = (
        "Recommendations: what was found, with intervals that are not adjusted, and what to do in "
        "a setting like it. Arms that fared alike share a row, and the setting of each study is in "
        "its design."
    )
    if len({one.facts.text for one in studies}) > 1:
        caption += f" Where no text is named it is {_usual_text(studies)}."
    acted_on = {material.name for material, _ in found}
    left = [one.name for one in studies if judged(one) and one.name not in acted_on]
    if left:
        caption += f" What is described only advises nothing ({listed(left)})."
    return Table("advice", caption, head, tuple(rows), frozenset(head), wide=True)


def _alike(found: Sequence[Found], metrics: Sequence[str]) -> list[list[Found]]:
    """The verdicts on arms that fared alike on every endpoint."""
    arms: dict[tuple[str, str], list[Found]] = {}
    for material, one in found:
        arms.setdefault((material.name, one.verdict.arm), []).append((material, one))
    groups: dict[tuple[object, ...], list[Found]] = {}
    for mine in arms.values():
        states = {one.metric: (one.state, one.stability) for _, one in mine}
        key = (bool(mine[0][1].against), *(states.get(metric) for metric in metrics))
        groups.setdefault(key, []).extend(mine)
    return list(groups.values())


def _head(found: Iterable[Judged], metric: str) -> str:
    """`test loss (nats/token)`: of what a column is."""
    declared = [one.contrast.declared for one in judged_on(found, metric)]
    labels = " or ".join(dict.fromkeys(one.label for one in declared))
    unit = declared[0].change_unit
    return f"{labels} ({unit})" if unit else labels


def _row(
    studies: Sequence[Material], found: Sequence[Found], metrics: Sequence[str], advice: Advice
) -> tuple[str, ...]:
    group = [one for _, one in found]
    first = judged_on(group, group[0].metric)
    cells = [_finding(judged_on(group, metric)) for metric in metrics]
    if (events := _events([(m, one) for m, one in found if one in first])) and cells:
        cells[0] = f"{cells[0]}; {events}" if cells[0] else events
    does = advice.does
    if first[0].against and advice.kind == "leave out":
        does = "prefer what it is compared with"
    pairs = [n for one in group if (n := one.verdict.pairs_needed) is not None]
    if pairs and advice.kind == "undecided":
        does += f"; about {max(pairs):,} seed pairs would tell"
    arms = _arms([(m, one) for m, one in found if one in first])
    return (_settings(studies, found), arms, *cells, f"{does[:1].upper()}{does[1:]}.")


def _settings(studies: Sequence[Material], found: Sequence[Found]) -> str:
    """Each study with what sets its setting apart; of many their names."""
    mine: dict[str, list[Found]] = {}
    for material, one in found:
        mine.setdefault(material.name, []).append((material, one))
    if len(mine) > MOST_SETTINGS:
        return ", ".join(mine)
    return "; ".join(
        f"{name}: {setting_in_words(studies, of[0][0], [one for _, one in of])}"
        for name, of in mine.items()
    )


def setting_in_words(
    studies: Sequence[Material], material: Material, group: Sequence[Judged]
) -> str:
    """What sets these verdicts apart from others of the paper: size, output matrix, steps,
    text, learning rate."""
    study = material.study
    references = list(dict.fromkeys(one.contrast.reference for one in group))
    settings = [study.setting(arm) for arm in references]
    sizes = sorted({material.parameters_of.get(arm, 0) for arm in references} - {0})
    told = [f"{millions(sizes)} parameters"] if sizes else []
    own = {one.model.head.tied for one in settings}
    if own == {False} and any(_has_shared_matrix(one) for one in studies):
        told.append("an output matrix of its own")
    steps = sorted({one.iterations for one in settings})
    told.append(f"{listed([f'{n:,}' for n in steps])} iterations")
    if material.facts.text != _usual_text(studies):
        told.append(f"on {material.facts.text}")
    if study.tuning and LEARNING_RATE in study.tuning.keys:
        told.append("each arm tuned")
    else:
        rates = sorted({one.training.optimizer.learning_rate for one in settings})
        told.append(f"learning rate {listed([numbers.compact(rate) for rate in rates])}")
    return ", ".join(told)


def _has_shared_matrix(material: Material) -> bool:
    study = material.study
    return any(study.setting(arm).model.head.tied for arm in study.arms)


def _usual_text(studies: Sequence[Material]) -> str:
    """The text that most studies train on."""
    return Counter(one.facts.text for one in studies).most_common(1)[0][0]


def _arms(found: Sequence[Found]) -> str:
    """By name; each once."""
    counts = Counter(_name(*one) for one in found)
    return "; ".join(f"{name} ({n} arms)" if n > 1 else name for name, n in counts.items())


def _name(material: Material, one: Judged) -> str:
    """An arm's name up to a comma, after which a title says what the setting has; where that is its
    reference's too, what its title has besides."""
    if one.against:
        return one.called
    ours, theirs = (
        name.split(", ") for name in (one.called, material.called[one.contrast.reference])
    )
    besides = [part for part in ours if part not in theirs]
    return ours[0] if ours[0] != theirs[0] or not besides else ", ".join(besides)


def _finding(group: Sequence[Judged]) -> str:
    """`worse: +0.12 [+0.10, +0.14] and +0.11 [+0.09, +0.13]`; of many their span and that of all
    intervals."""
    if not group:
        return ""
    known = [one.contrast for one in group if one.contrast.decided is not None]
    state = IN_WORDS[group[0].state]
    if not known:
        return f"{state}: {group[0].contrast.why_not or 'not compared'}"
    if len(known) <= MOST_CHANGES:
        return f"{state}: {listed([change_of(one) for one in known])}"
    return f"{state}: {_span(known)}"


def _span(known: Sequence[Contrast]) -> str:
    says = [one.decided for one in known if one.decided is not None]
    digits = known[0].declared.change_digits
    ends = [numbers.signed(f(one.mean for one in says), digits) for f in (min, max)]
    low = min(one.interval.low for one in says)
    high = max(one.interval.high for one in says)
    return f"{' to '.join(ends)}, intervals within {numbers.interval(low, high, digits)}"


def _events(found: Sequence[Found]) -> str:
    """How many trials had an event, where training is not stable."""
    told = []
    for material, one in found:
        stability = material.analysis.stability(one.verdict.arm)
        if one.stability == "stable" or stability is None:
            continue
        rates = stability.any_event
        own, base = rates.both + rates.only_treatment, rates.both + rates.only_baseline
        told.append(f"{own} of {rates.n} trials diverged or had a spike, without it {base}")
    return "; ".join(dict.fromkeys(told))
