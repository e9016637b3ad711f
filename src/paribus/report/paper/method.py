"""The paper's method: architecture, arms, protocol, controls, registration, inference."""

from __future__ import annotations

from paribus.report import tables
from paribus.report.figures import names
from paribus.report.paper.document import Block, Cite, Grid, Paragraph, Part, Ref, say
from paribus.report.paper.material import Material
from paribus.report.words import plural
from paribus.study import METRICS

CORPORA = {
    "shakespeare": "the collected Shakespeare text, by character",
    "pydoc": "the language reference that comes with Python, by character",
    "text": "a text of the user's own, by character",
}


def method(material: Material) -> Part:
    """Every paragraph is built from the study and the records of its trials."""
    blocks: list[Block] = [
        _architecture(material),
        say("The arms are differences from one shared setting: ", Ref("arms"), "."),
        Grid(tables.arms(material.study)),
        _protocol(material),
        _controls(material),
        _registration(material),
        _inference(material),
    ]
    return Part("Method", blocks)


def _architecture(material: Material) -> Paragraph:
    model, data = material.setting.model, material.setting.data
    size = material.parameters
    parameters = f" ({size:,} parameters)" if size else ""
    bias = "with biases" if model.bias else "without biases"
    return say(
        f"The model is a decoder-only Transformer{parameters} in the Pre-LayerNorm form ",
        Cite("Xiong2020"),
        ", with LayerNorm ",
        Cite("LayerNorm"),
        f" before each sub-layer and after the last block, {bias}. It has {model.n_layer} blocks "
        f"of width {model.d_model} with {model.n_head} heads each, an inner layer of "
        f"{model.mlp_ratio} times the width with GELU, learned absolute positions, and one matrix "
        f"for input and output embeddings. It reads windows of {data.seq_len} tokens. Weights "
        f"start from normal distributions with standard deviation {model.init.std:g}, tokens "
        f"{model.init.token_std:g} and positions {model.init.position_std:g}"
        + (
            "; projections into the residual stream are scaled down by the square root of twice "
            "the number of blocks."
            if model.init.scale_residual
            else "."
        ),
    )


def _protocol(material: Material) -> Paragraph:
    study, training = material.study, material.setting.training
    optimizer, schedule = training.optimizer, training.schedule
    data = material.trial.get("data", {})
    split = ""
    if data:
        split = (
            f": {data['train_tokens']:,} tokens for training and the last "
            f"{data['validation_tokens']:,} for validation, with a vocabulary of "
            f"{data['vocab_size']:,}"
        )
    corpus = CORPORA.get(study.data.corpus, f"the corpus “{study.data.corpus}”")
    clipping = (
        f", with gradients clipped to a total norm of {training.grad_clip:g}"
        if training.grad_clip
        else ", without clipping of gradients"
    )
    decay = f"a {schedule.kind} schedule"
    if schedule.kind == "cosine":
        decay += f" down to {schedule.final_fraction:g} of the peak"
    if schedule.warmup:
        decay += f" after {schedule.warmup:,} iterations of warmup"
    return say(
        f"Models are trained on {corpus}{split}. Every arm is trained with the same "
        f"{plural(len(study.seeds), 'seed')}, {plural(len(study.trials), 'trial')} in all, for "
        f"{material.setting.iterations:,} iterations of {training.batch_size} windows, which is "
        f"{material.setting.tokens:,} tokens a trial; there is no early stopping. The optimizer is "
        f"AdamW with a learning rate of {optimizer.learning_rate:g}, β of "
        f"{optimizer.betas[0]:g} and {optimizer.betas[1]:g}, ε of {optimizer.eps:g} and a weight "
        f"decay of {optimizer.weight_decay:g}, under {decay}{clipping}. Precision is "
        f"{training.precision}; dropout is {training.dropout:g}. Where an arm sets one of these "
        "keys itself, ",
        Ref("arms"),
        " says so.",
    )


def _controls(material: Material) -> Paragraph:
    controls = material.analysis.controls
    states = {s: sum(c.state == s for c in controls) for s in ("held", "declared", "broken")}
    found = (
        f"Of {len(controls)} controls, {states['held']} held in every seed, "
        f"{states['declared']} differ because the arm declares it, and {states['broken']} are "
        "broken"
        if controls
        else "No arm has a finished seed in common with its reference yet, so that no control "
        "could be compared"
    )
    return say(
        "All else is meant to be equal, and the record shows whether it is. Each parameter is "
        "drawn from a random stream of its own, keyed by the seed and the parameter's name, and "
        "each batch from the seed and its place, so that arms start bit-equal wherever they share "
        "a parameter and see the same tokens in the same order. Text, batches, initial values, "
        "software and settings are recorded as digests and compared before any statistics. "
        f"{found}. The evidence is in the appendix. A contrast with a broken control is not "
        "analysed.",
    )


def _registration(material: Material) -> Paragraph:
    study = material.study
    primary, rule = METRICS[study.primary.metric], study.stability
    others = [METRICS[e.metric].label for e in study.endpoints if not e.primary]
    called = names(study)
    contrasts = len(study.contrasts)
    against = sorted({called[reference] for _, reference in study.contrasts})
    text = (
        f"Before the first run the study was registered: its digest, endpoints, margins, "
        f"families and thresholds. The primary endpoint is {primary.label}, with a margin of "
        f"±{study.primary.margin:g} within which a difference is too small to matter. "
    )
    if others:
        text += f"Secondary endpoints are {_listed(others)}. "
    if contrasts:
        text += f"The family is {plural(contrasts, 'contrast')} against {_listed(against)}. "
    text += (
        f"A trial has diverged where a loss is not finite, or where the mean of the last "
        f"{rule.smoothing_steps} losses is above the first; it has a spike where "
        f"{rule.spike_steps} steps in a row lie more than {rule.mad_multiplier:g} median absolute "
        f"deviations above the median of the {rule.median_steps} steps before. The baseline is "
        f"unstable where more than {rule.unstable_above:g} of its trials had an event. An arm is "
        "adopted only where it cures instability, raises the expected calibration error by at most "
        f"{study.decision.calibration_budget:g} and loses at most a share of "
        f"{study.decision.throughput_budget:g} of the training throughput."
    )
    if material.analysis.late_seeds:
        text += (
            " Seeds were added after results had been seen "
            f"({_listed([str(s) for s in material.analysis.late_seeds])}); the error rates below "
            "are not guaranteed."
        )
    return say(text)


def _inference(material: Material) -> Paragraph:
    inference = material.study.inference
    return say(
        "The unit is the seed pair: treatment minus reference at the same seed. The p-value is the "
        "larger of the paired t and the studentized paired bootstrap, because percentile "
        "intervals are too narrow for few pairs and interval estimates from few runs are easily "
        "overread ",
        Cite("Agarwal2021"),
        f". Holm's method holds the family at {inference.alpha:g}. That there is no effect is "
        "never read off a large p-value: it takes two one-sided tests, an interval of level "
        f"{1 - 2 * inference.alpha:g} inside the margin. Fewer than five pairs are described and "
        "not tested. Rates of events are compared by McNemar's exact test. A diverged trial is "
        "data: it leaves the comparison of quality by name and counts as an event. The verdict is "
        "a total function of these results, fixed beforehand.",
    )


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
