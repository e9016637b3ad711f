"""The paper's method: architecture, arms, protocol, controls, registration, inference."""

from __future__ import annotations

from collections.abc import Sequence

from paribus.decision import rule_of
from paribus.numbers import plural
from paribus.report import tables
from paribus.report.paper.designs import designs
from paribus.report.paper.document import Cite, Grid, Paragraph, Part, Ref, Run, say
from paribus.report.paper.material import Material
from paribus.report.paper.said_once import said_once
from paribus.report.section_tables import sampling_method, tasks_in_words
from paribus.report.words import listed, margin_in_words, names
from paribus.study import SMALLEST_SCALE, Study

# How p-values come about, by the registered `inference.test`.
MOST_SEEDS = 12  # are named one by one


def method(studies: Sequence[Material]) -> tuple[Part, dict[str, Paragraph]]:
    """(the section, by study what is its own and stands in the appendix).

    Every paragraph is built from a study and the records of its trials.
    """
    once = said_once({one.name: _topics(one) for one in studies})
    if len(studies) == 1:
        opening = say("The arms are differences from one shared setting: ", Ref("arms"), ".")
        table = tables.arms(studies[0].study)
    else:
        opening = say(
            "What the studies share is said once; what sets them apart is in ",
            Ref("designs"),
            ", and in words in the appendix of each. Within a study the arms are differences from "
            "one shared setting.",
        )
        table = designs(studies)
    first, *rest = once.common
    return Part("Method", [first, opening, Grid(table), *rest]), once.own


def _topics(material: Material) -> list[Paragraph]:
    """Model, protocol, tasks, controls, registration and inference."""
    return [
        _architecture(material),
        _protocol(material),
        say(tasks_in_words(material.results)),
        _controls(material),
        _registration(material),
        _inference(material),
    ]


def _architecture(material: Material) -> Paragraph:
    facts, model = material.facts, material.facts.model
    runs: list[Run] = ["The model is a decoder-only Transformer"]
    if model.is_pre_layernorm:
        runs += [" in the Pre-LayerNorm form ", Cite("Xiong2020")]
    if model.norms:
        runs.append(f", with {model.norms}")
        if model.has_layernorm:
            runs += [" ", Cite("LayerNorm")]
    bias = "with biases" if model.setting["bias"] else "without biases"
    size = f"The model has {facts.parameters:,} parameters." if facts.parameters else ""
    told = [size, model.shape, model.embedding, model.replaced, model.initial, facts.further]
    windows = f"The model reads windows of {facts.data['seq_len']} tokens."
    runs.append(f", {bias}. {' '.join(filter(None, [*told, windows]))}")
    return say(*runs)


# How held-out text is read, where it is not in float32 throughout.
_EVALUATED = {
    "float32": "",
    "bfloat16": (
        "Held-out text is read with bfloat16 matrix products in every arm, and losses are made of "
        "its logits in float32. "
    ),
}


def _protocol(material: Material) -> Paragraph:
    study, facts = material.study, material.facts
    seeds = plural(len(study.seeds), "seed")
    if len(study.seeds) <= MOST_SEEDS:
        seeds += f" ({', '.join(map(str, study.seeds))})"
    seeds += " at most" if study.plan else ""
    return say(
        f"Models are trained on {facts.text}{facts.split}. Every arm is trained with the same "
        f"{seeds}, {plural(material.analysis.n_trials, 'trial')} in all, for {facts.iterations:,} "
        f"iterations of {facts.training['batch_size']} windows, which is {facts.tokens:,} tokens a "
        f"trial{facts.budget}; there is no early stopping. The optimizer is {facts.optimizer}, "
        f"under {facts.schedule}; {facts.clipping}. "
        + (f"{facts.loss} " if facts.loss else "")
        + f"Precision is {facts.precision}; {facts.dropout}. ",
        *_scaling(study),
        _EVALUATED[study.evaluation.precision] + "Where an arm sets one of these keys itself, ",
        Ref("arms"),
        " says so.",
    )


def _scaling(study: Study) -> list[Run]:
    """How the loss is scaled, where an arm trains in float16."""
    trained = [study.setting(arm).training for arm in study.arms]
    scales = [one.loss_scale for one in trained if one.precision == "float16"]
    if not scales:
        return []
    scale = scales[0]
    return [
        "In float16 the loss is scaled dynamically ",
        Cite("Micikevicius2018"),
        f": the scale of a trial begins at {scale.initial:,.0f}, is halved by a step whose "
        "gradient overflows, which is skipped, and is doubled after "
        f"{plural(scale.growth_interval, 'step')} in a row without one. Where it would be halved "
        f"below {SMALLEST_SCALE:g} the trial has diverged. ",
    ]


def _controls(material: Material) -> Paragraph:
    controls = material.analysis.controls
    states = {s: sum(c.state == s for c in controls) for s in ("held", "declared", "broken")}
    text = (
        "All else is meant to be equal, and the record shows whether it is. Each parameter is "
        "drawn from a random stream of its own, keyed by the seed and the parameter's name, and "
        "each batch from the seed and its place. "
    )
    if controls:
        others = len(controls) - sum(states.values())
        text += (
            f"Compared before any statistics were {listed(list(material.control_states))}. Of "
            f"{len(controls)} controls, {states['held']} held in every seed, {states['declared']} "
            f"differ because the arm declares it, and {states['broken']} are broken"
            + (f"; {others} are not proven. " if others else ". ")
            + "The evidence is in the appendix. A contrast with a broken control is not analysed."
        )
    else:
        text += (
            "No arm has a finished seed in common with its reference yet, so that no control could "
            "be compared."
        )
    return say(text)


def _registration(material: Material) -> Paragraph:
    study = material.study
    rule = study.stability
    others = [material.analysis.metrics[e.metric].label for e in study.endpoints if not e.primary]
    called = names(study)
    contrasts = len(study.contrasts)
    against = sorted({called[reference] for _, reference in study.contrasts})
    unregistered = material.analysis.unregistered
    text = (
        f"The registration does not hold: {unregistered}. "
        if unregistered
        else "Before its first run the study was registered: its digest, endpoints, margins, "
        "families and thresholds. "
    )
    text += (
        "The root digest over registration and sealed records, which paribus verify computes "
        f"again, is {material.results.root}. "
    )
    text += _primary(material)
    if others:
        text += f"Secondary endpoints are {listed(others)}. "
    if contrasts:
        text += f"The family is {plural(contrasts, 'contrast')} against {listed(against)}"
        several = len(study.judged) > 1
        text += f" on {len(study.judged)} primary endpoints. " if several else ". "
    text += (
        f"A trial has diverged where a loss is not finite, or where the mean of the last "
        f"{rule.smoothing_steps} losses is above the first; it has a spike where "
        f"{rule.spike_steps} steps in a row lie more than {rule.mad_multiplier:g} median absolute "
        f"deviations above the median of the {rule.median_steps} steps before. The baseline is "
        f"unstable where more than {rule.unstable_above:g} of its trials had an event. "
        + _decision(material)
    )
    if material.analysis.late_seeds:
        text += (
            " Seeds were added after results had been seen "
            f"({listed([str(s) for s in material.analysis.late_seeds])}); the error rates below "
            "are not guaranteed."
        )
    return say(text)


def _primary(material: Material) -> str:
    """The primary endpoints with their margins, and the smallest effects worth detecting."""
    told = []
    for endpoint in material.study.judged:
        contrast = next(
            (c for c in material.analysis.contrasts if c.metric == endpoint.metric), None
        )
        margin = margin_in_words(material.study, contrast) if contrast else f"±{endpoint.margin:g}"
        worth = endpoint.smallest_effect
        told.append(
            f"{material.analysis.metrics[endpoint.metric].label}, with a margin of {margin}"
            + (f" and a smallest effect worth detecting of {worth:g}" if worth else "")
        )
    are = "The primary endpoint is" if len(told) == 1 else "The primary endpoints are"
    return f"{are} {listed(told)}; within its margin a difference is too small to matter. "


def _decision(material: Material) -> str:
    """The registered rule, and when it adopts."""
    decision, rule = material.study.decision, rule_of(material.analysis)
    benefit = material.analysis.metrics[decision.benefit].label if decision.benefit else "nothing"
    adopts = rule.adopts.format(
        calibration=f"{decision.calibration_budget:g}",
        throughput=f"{decision.throughput_budget:g}",
        benefit=benefit,
        least=f"{decision.least_benefit:g}",
    )
    return f"The decision rule is {rule.title}. {adopts}"


# What the paper says of the registered test, and of what stands beside it.
DECIDES = {
    "paired_t": (
        "The p-value is of the paired t test",
        "The exact sign flip (from six pairs) and the studentized paired bootstrap stand beside "
        "it, and where one of them disagrees this is said.",
    ),
    "gate": (
        "The p-value is the larger of the paired t and the studentized paired bootstrap",
        "The exact sign flip (from six pairs) stands beside it, and where one of the tests "
        "disagrees this is said.",
    ),
}


# What it says of claims about new items, by the registered target.
_CROSSED = "the crossed bootstrap of seeds and {} with Student's t on its standard error"
_RESAMPLED = {
    "this item set": "; claims are about these questions and this held-out text",
    "new questions": (
        "; of claims from accuracy on tasks, over all or one, "
        + _CROSSED.format("questions")
        + ". "
        "Claims from the held-out text are about this text"
    ),
    "new items": (
        "; of claims from accuracy on tasks and from ratios of sums over the held-out text, "
        + _CROSSED.format("items")
    ),
}


def _inference(material: Material) -> Paragraph:
    inference = material.study.inference
    decides, beside = DECIDES[inference.test]
    decides += _RESAMPLED[inference.target]
    return say(
        f"The unit is the seed pair: treatment minus reference at the same seed. {decides}; the "
        "interval inverts the same test. Percentile bootstrap intervals are too narrow for few "
        "pairs, and interval estimates from few runs are easily overread ",
        Cite("Agarwal2021"),
        f". Holm's method holds the family of the primary endpoint at {inference.alpha:g}, and "
        "that of the secondary endpoints by itself. That there is no effect is never read off a "
        "large p-value: it takes two one-sided tests against the margin, an interval of level "
        f"{1 - 2 * inference.alpha:g} inside it, adjusted over the contrasts by the same method. "
        f"{beside} Fewer than five pairs are described and "
        "not tested. Rates of events are compared by McNemar's exact test. A diverged trial is "
        "data: it leaves the comparison of quality by name and counts as an event. The verdict is "
        "a total function of these results, fixed beforehand."
        + (f" {sampled}" if (sampled := sampling_method(material.analysis)) else ""),
    )
