"""Values that tuning chose for an arm and its reference, and that its seeds do not tell apart."""

from __future__ import annotations

from dataclasses import dataclass

from paribus.analysis import Tuned
from paribus.report.paper.material import Material
from paribus.study import in_words


@dataclass(frozen=True)
class Untold:
    """A contrast of two arms of different values; `caveat` is what its verdict says of it."""

    arm: str
    words: str
    caveat: str


def untold(material: Material) -> list[Untold]:
    """Every such contrast of a study, in its order; none of one that is not tuned."""
    tuned, found = material.analysis.tuned, []
    alpha = material.study.inference.alpha
    for arm, reference in material.study.contrasts if tuned else ():
        assert tuned is not None
        if not tuned.values_differ_untold(arm, reference, alpha):
            continue
        own, other = (f"{material.called[one]} {_chosen(tuned, one)}" for one in (arm, reference))
        why = tuned.why_values_differ(arm, reference, alpha)
        found.append(Untold(arm, f"{own}, {other}", why))
    return found


def _chosen(tuned: Tuned, arm: str) -> str:
    return in_words(tuned.values_of(tuned.best(arm))).replace("_", " ")
