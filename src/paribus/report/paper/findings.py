"""The paper's results and analysis: sentences with their numbers, tables and figures."""

from __future__ import annotations

from paribus import numbers
from paribus.analysis import Contrast
from paribus.analysis.schema import Summary
from paribus.decision import disagreements, fixed_items, missed
from paribus.report import tables
from paribus.report.figures.contrasts import forest_name, pairs_name
from paribus.report.paper.document import Block, Grid, Paragraph, Part, Picture, Ref, say
from paribus.report.paper.material import Material
from paribus.report.section_tables import along_table, note, told_along
from paribus.report.words import (
    changed,
    holm_in_words,
    margin_in_words,
    missing_in_words,
    ratio_in_words,
    state_of,
)
from paribus.study import Endpoint, Study

WHILE_TRAINING = ("steps", "probes")  # records of diagnostics
MOST_TOLD = 6  # contrasts told one by one; more are left to the tables


def results(material: Material) -> Part:
    """The registered comparison first, then the other endpoints."""
    analysis, study = material.analysis, material.study
    blocks: list[Block] = []
    missing = missing_in_words(analysis)
    if missing:
        blocks.append(say(f"The study is in progress. {missing} What follows is what is there."))
    for endpoint, table in zip(study.judged, tables.primary(analysis), strict=True):
        blocks += _judged(material, endpoint, table)
    others = [e.metric for e in study.endpoints if not e.primary]
    if others:
        told = [_secondary(material, m) for m in others if _has_contrast(material, m)]
        opening = "The other endpoints, a Holm family of their own, are in the appendix."
        blocks.append(say(" ".join([opening, *told])))
    left = tables.left_out(analysis)
    if left:
        blocks.append(say(f"Left out of the comparison: {' '.join(left[:MOST_TOLD])}"))
    claims = tables.claims(analysis)
    if claims is not None and claims.rows:
        blocks += [say("Claimed and measured values stand in ", Ref("claims"), "."), Grid(claims)]
    return Part("Results", blocks)


def _judged(material: Material, endpoint: Endpoint, table: tables.Table) -> list[Block]:
    """One primary endpoint: its table, its figures, and its contrasts one by one."""
    study, analysis = material.study, material.analysis
    label = analysis.metrics[endpoint.metric].label
    opening = "The primary endpoint"
    if len(study.judged) > 1:
        opening = f"The primary endpoint {label}"
    blocks: list[Block] = [say(f"{opening} is in ", Ref(table.name), "."), Grid(table)]
    blocks += _pictures(material, _figures(study, endpoint))
    contrasts = [c for c in analysis.contrasts if c.metric == endpoint.metric]
    for contrast in contrasts[:MOST_TOLD]:
        blocks.append(_told(material, contrast))
    if len(contrasts) > MOST_TOLD:
        blocks.append(say("The other contrasts are in the table and in the appendix."))
    return blocks


def _figures(study: Study, endpoint: Endpoint) -> tuple[str, ...]:
    """The names of what is drawn of a primary endpoint."""
    return forest_name(study, endpoint), pairs_name(endpoint.metric)


def analysis_part(material: Material) -> Part:
    """Stability, mechanism, calibration and speed."""
    blocks: list[Block] = [*_stability(material)]
    blocks += _declared(material, "stability")
    blocks += _along(material)
    blocks += _declared(material, "along")
    blocks += _mechanism(material)
    blocks += _declared(material, "diagnostics")
    blocks += _costs(material)
    blocks += _declared(material, "evaluation")
    return Part("Analysis", blocks)


def in_the_text(material: Material) -> set[str]:
    """Names of the figures that stand in the text, so that the appendix has the others."""
    study = material.study
    wanted = {name for endpoint in study.judged for name in _figures(study, endpoint)}
    return wanted | {one.name for one in material.figures if one.in_text}


def _declared(material: Material, section: str) -> list[Block]:
    """The figures of a section that are declared to stand in the text."""
    there = [one.name for one in material.figures if one.in_text and one.section == section]
    return _pictures(material, tuple(there))


def _pictures(material: Material, wanted: tuple[str, ...]) -> list[Block]:
    found = [material.drawn[name] for name in wanted if name in material.drawn]
    return [Picture(figure.name, figure.caption, figure.wide) for figure in found]


def _told(material: Material, contrast: Contrast) -> Paragraph:
    """One primary contrast: what was measured, and what the test allows to say."""
    arm, reference = material.called[contrast.arm], material.called[contrast.reference]
    opening = f"{arm} against {reference}: {changed(contrast)}"
    paired = contrast.paired
    if paired is None:
        return say(f"{opening}.")
    ratio = ratio_in_words(contrast)
    text = opening + (f", {ratio}." if ratio else ".")
    margin = margin_in_words(material.study, contrast)
    finding = {
        "significant": "The difference is significant after Holm's adjustment.",
        "within the margin": f"The change lies within the margin of {margin}.",
        "unresolved": (
            "The difference is not significant, nor is it shown to lie within the margin of "
            f"{margin}."
        ),
        "described only": "With so few pairs this is a description and no test.",
    }
    text += f" {finding[state_of(contrast, material.study.inference.alpha)]}"
    if paired.g_z is not None and not paired.descriptive_only:
        text += f" Hedges g_z is {numbers.signed(paired.g_z, 2)}"
        if paired.g_z_interval is not None:
            low, high = paired.g_z_interval.low, paired.g_z_interval.high
            text += f" [{numbers.signed(low, 2)}, {numbers.signed(high, 2)}]"
        text += f", the exact sign-flip p is {numbers.fixed(paired.sign_flip_p, 4)}"
        text += f" (the least possible is {numbers.fixed(paired.sign_flip_floor, 4)})."
    notes = fixed_items(contrast) + disagreements(contrast) + missed(material.analysis, contrast)
    text += "".join(f" {line}" for line in notes)
    return say(text)


def _has_contrast(material: Material, metric: str) -> bool:
    found = [c for c in material.analysis.contrasts if c.metric == metric and c.paired]
    return bool(found) and len(found) <= MOST_TOLD


def _secondary(material: Material, metric: str) -> str:
    info, parts = material.analysis.metrics[metric], []
    for contrast in material.analysis.contrasts:
        if contrast.metric == metric and contrast.decided is not None:
            change = tables.change_of(contrast)
            parts.append(f"{change} in {material.called[contrast.arm]}")
    unit = f", in {info.change_unit}" if info.change_unit else ""
    label = info.label[0].upper() + info.label[1:]
    return f"{label} changed by {', by '.join(parts)}{unit}."


def _stability(material: Material) -> list[Block]:
    if not material.analysis.stabilities:
        return [say("No arm has a finished seed in common with its reference: stability is open.")]
    told = []
    for stability in material.analysis.stabilities[:MOST_TOLD]:
        rates = stability.any_event
        base, own = rates.both + rates.only_baseline, rates.both + rates.only_treatment
        told.append(
            f"Of {rates.n} pairs, {base} had a divergence or a spike in "
            f"{material.called[stability.reference]} and {own} in {material.called[stability.arm]} "
            f"({holm_in_words(stability)})."
        )
    table = Grid(tables.stability(material.analysis))
    return [say("Events are counted in ", Ref("stability"), f". {' '.join(told)}"), table]


def _along(material: Material) -> list[Block]:
    """The way there: speed-ups and crossings."""
    table = along_table(material.analysis)
    if table is None:
        return []
    told = [note(material.analysis.study), *told_along(material.analysis, MOST_TOLD)]
    return [say("Arms along training are in ", Ref(table.name), f". {' '.join(told)}"), Grid(table)]


def _mechanism(material: Material) -> list[Block]:
    """What the diagnostics say, and that they do not say why."""
    told = []
    for endpoint in material.study.endpoints:
        metric = material.analysis.metrics[endpoint.metric]
        if endpoint.primary or metric.record not in WHILE_TRAINING:
            continue
        unit = f" ({metric.unit})" if metric.unit else ""
        what = f"At the last step that has it, {metric.label}{unit}"
        summaries = [material.analysis.summary(arm, endpoint.metric) for arm in material.study.arms]
        known = [summary for summary in summaries if summary.n]
        if known:
            values = ", ".join(_value(material, s) for s in known[: MOST_TOLD + 1])
            told.append(f"{what} was {values}.")
    if not told:
        return []
    return [
        say(
            *(" ".join(told),),
            " Figures of norms, similarities and moments, here and in the appendix, describe what "
            "went with the change; the arms differ by design in nothing else, but the diagnostics "
            "do not show by themselves which of these quantities the change of the endpoint is "
            "due to.",
        )
    ]


def _value(material: Material, summary: Summary) -> str:
    digits = material.analysis.metrics[summary.metric].digits
    value = numbers.mean_sd(summary.mean, summary.sd, digits)
    return f"{value} in {material.called[summary.arm]}"


def _costs(material: Material) -> list[Block]:
    table = tables.costs(material.analysis)
    if not table.rows:
        return []
    how = "measured in turn on one machine"
    if not all(cost.in_turn for cost in material.analysis.costs):
        how = "as timed while training, with whatever else the machine did in it"
    return [
        say("Calibration and speed are in ", Ref("costs"), f". Training speed is {how}."),
        Grid(table),
    ]
