"""Caveats that several studies have: said once, and not in the section of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from paribus.report.paper.alike import NUMBER, merged, skeleton
from paribus.report.paper.material import Material
from paribus.report.paper.untold_rates import untold
from paribus.report.words import listed

OFTEN = 3  # studies with the same caveat
MOST_PAIRS = 6  # whose values are told one by one
MOST_NUMBERS = 3  # of a caveat that is merged with others of its kind
# Of one study each, and in units of one endpoint each: in the appendix, and the power of the tests
# that speak to hypotheses beside these.
OF_ONE_STUDY = re.compile(r"this study detects|^Tests disagree")
DATED = re.compile(r"\d{4}-\d{2}-\d{2}T")  # when something happened: the appendix has it


def often_said(studies: Sequence[Material]) -> set[str]:
    """Caveats of several studies, without their numbers: limits and appendix have them."""
    counts: Counter[str] = Counter()
    for one in studies:
        counts.update({skeleton(line) for verdict in one.verdicts for line in verdict.caveats})
    often = {line for line, n in counts.items() if n >= OFTEN}
    return often | {skeleton(line) for one in studies for line in _untold(one)}


def shared_caveats(studies: Sequence[Material]) -> list[str]:
    """Each of those once, with the names of the studies that have it."""
    often, told = often_said(studies), {}
    for one in studies:
        untold = _untold(one)
        for line in (line for verdict in one.verdicts for line in verdict.caveats):
            if line not in untold and skeleton(line) in often and _can_be_merged(line):
                told.setdefault(skeleton(line), []).append((one.name, line))
    return [
        f"In {listed(list(dict.fromkeys(name for name, _ in of)))}: "
        f"{merged([line for _, line in of])}"
        for of in told.values()
    ]


def rates_untold(studies: Sequence[Material]) -> list[str]:
    """A sentence on all arms whose values tuning did not tell from those of their references."""
    told = [
        f"{one.name} ({'; '.join(pair.words for pair in pairs)})"
        for one in studies
        if (pairs := untold(one))
    ]
    if not told:
        return []
    n = sum(len(untold(one)) for one in studies)
    if n > MOST_PAIRS:
        names = listed([f"{one.name} ({len(untold(one))})" for one in studies if untold(one)])
        told = [f"{n} comparisons of {names}, whose values are in the appendix"]
    return [
        "Tuning chose other values for an arm than for its reference, and its seeds do not tell "
        f"the two apart, in {listed(told)}: part of these changes may be of the values, and not "
        "of the arms."
    ]


def _untold(material: Material) -> set[str]:
    """What verdicts say of these."""
    return {f"{one.caveat}." for one in untold(material)}


def _can_be_merged(line: str) -> bool:
    if OF_ONE_STUDY.search(line):
        return False
    return not DATED.search(line) and len(NUMBER.findall(line)) <= MOST_NUMBERS
