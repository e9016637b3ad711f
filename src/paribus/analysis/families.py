"""Families of hypotheses, fixed at registration, each adjusted by Holm.

The primary endpoints in every contrast are one family; that they lie inside their margins, another;
that they are no worse, a third; the secondary endpoints x contrasts a fourth. A contrast that could
not be analysed stays in its family as p = 1, so that losing one never makes the others easier. One
of fewer than five pairs counts in its family, and has no adjusted p: it is only described.
"""

from __future__ import annotations

from dataclasses import replace

from paribus.analysis.schema import Check, Contrast
from paribus.statistics import holm


def adjusted(contrasts: list[Contrast], alpha: float) -> list[Contrast]:
    """The same contrasts with their p adjusted in their families."""
    found = []
    for primary in (True, False):
        family = [c for c in contrasts if c.primary == primary and c.counted]
        if family:
            found += _adjusted(family, alpha)
    by_name = {(c.arm, c.metric): c for c in found}
    return [by_name.get((c.arm, c.metric), c) for c in contrasts]


def _adjusted(family: list[Contrast], alpha: float) -> list[Contrast]:
    says = [c.decided for c in family]
    # Of a trial that was censored nobody knows how far it is from the other: no equality is shown.
    known = [not any(c.censored) for c in family]
    tested = holm([d.p_value if d else 1.0 for d in says])
    equal = _with_margin(
        family, [d.equivalence_p if d and ok else None for d, ok in zip(says, known, strict=True)]
    )
    not_worse = _with_margin(
        family, [c.not_worse_p if ok else None for c, ok in zip(family, known, strict=True)]
    )
    checks = _checks(family, [float(p) for p in tested], alpha)
    found = []
    for c, p, checked in zip(family, tested, checks, strict=True):
        if c.decided is None:
            found.append(c)
        elif c.decided.descriptive_only:
            found.append(replace(c, checks=tuple(replace(one, holm_p=None) for one in checked)))
        else:
            about = {"equivalence_holm_p": equal.get(c), "not_worse_holm_p": not_worse.get(c)}
            found.append(replace(c, holm_p=float(p), checks=checked, **about))
    return found


def _with_margin(family: list[Contrast], p_values: list[float | None]) -> dict[Contrast, float]:
    """p against the margins, adjusted over the contrasts of the family that have one."""
    named = {c: p for c, p in zip(family, p_values, strict=True) if c.margin is not None}
    if not named:
        return {}
    adjusted = holm([1.0 if p is None else p for p in named.values()])
    return dict(zip(named, map(float, adjusted), strict=True))


def _checks(family: list[Contrast], decided: list[float], alpha: float) -> list[tuple[Check, ...]]:
    """What other tests say of each contrast, each adjusted over the family in the same way.

    A test that could not have rejected at this number of pairs is shown, and is no disagreement.
    """
    names = dict.fromkeys(name for c in family for name in c.others)
    found: list[list[Check]] = [[] for _ in family]
    for name in names:
        p_values = [c.others.get(name, 1.0) for c in family]
        for i, p in enumerate(holm(p_values).tolist()):
            if name not in family[i].others:
                continue
            says = family[i].decided
            able = says is not None and not says.descriptive_only
            able = able and family[i].floor(name) * len(family) <= alpha
            disagrees = able and (p <= alpha) != (decided[i] <= alpha)
            found[i].append(Check(name, p_values[i], p, disagrees))
    return [tuple(checks) for checks in found]
