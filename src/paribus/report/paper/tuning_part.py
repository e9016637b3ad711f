"""The paper's section on tuning: what was chosen, and what each contrast depends on."""

from __future__ import annotations

from paribus.report.figures.tuning_curves import SHARED, curve_name
from paribus.report.paper.document import Block, Grid, Part, Picture, Ref, say
from paribus.report.paper.material import Material
from paribus.report.section_tables import sensitivity_table, tuning_in_words, tuning_table


def tuning_part(material: Material) -> list[Part]:
    """The section; none where nothing was tuned, or the tuning is not finished."""
    table = tuning_table(material.analysis)
    if table is None:
        return []
    how, *found = tuning_in_words(material.analysis)
    blocks: list[Block] = [say(f"{how} What was chosen is in ", Ref(table.name), "."), Grid(table)]
    figures = [material.drawn[name] for name in _figures(material) if name in material.drawn]
    blocks += [Picture(figure.name, figure.caption, figure.wide) for figure in figures]
    if found:
        shared = "; every value is in the appendix" if SHARED in material.drawn else ""
        blocks.append(say(f"{' '.join(found)[:-1]}{shared}."))
    sensitivity = sensitivity_table(material.analysis)
    if sensitivity is not None:
        blocks.append(say("Sensitivity to the learning rate is in ", Ref(sensitivity.name), "."))
        blocks.append(Grid(sensitivity))
    return [Part("Tuning", blocks)]


def in_the_tuning(material: Material) -> set[str]:
    """Names of the figures that stand there, so that the appendix has the others."""
    return set(_figures(material)) if material.analysis.tuned else set()


def _figures(material: Material) -> tuple[str, ...]:
    plan = material.study.tuning
    return (*map(curve_name, plan.keys), SHARED) if plan else ()
