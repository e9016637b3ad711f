"""Cost of a study: parameters, FLOPs, memory, time, device-hours and price.

FLOPs and memory follow from formulas, which name their source; parameters are counted in the model,
built without values. The time comes from a rate in FLOPs per second, which `execution/start.py`
measures, or which the user states.

Axes: L layers, D channels, T window, V vocabulary, W inner width of an MLP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from paribus.engine.format import DOWNLOADED
from paribus.engine.setting import Data, Setting
from paribus.engine.setting.architecture import CAUSAL
from paribus.errors import ParibusError
from paribus.study import Study, tuning_study
from paribus.study.tuning_study import arm_of

UTILISATION = 0.4
"""Default share of a device's peak (46% in PaLM, Chowdhery et al. 2022, appendix B)."""
ASSUMED_VOCABULARY = 50_257
"""GPT-2's vocabulary (Radford et al. 2019), used if the tokenizer's is not known yet."""

FLOAT32 = 4  # bytes of a weight, a gradient, an optimizer slot and a number of the residual stream

LARGE_FLOPS = 2e11  # ten seconds of a slow core


def has_formula(setting: Setting) -> bool:
    """Return whether every part of the model is built in, so that formulas hold."""
    return not setting.model.modules.named and setting.model.attention.kind == CAUSAL


def flops_per_token(setting: Setting, vocab_size: int) -> int:
    """Return the FLOPs of training per token: 6 N + 12 L D T.

    N counts the weights that a token is multiplied with: one multiplication and one addition each,
    once forward and twice backward (Kaplan et al. 2020, section 2.1). The second term is attention
    over the whole square of positions (Chowdhery et al. 2022, appendix B). Recomputation by
    activation checkpointing is not counted.
    """
    model = setting.model
    D, L, heads = model.d_model, model.n_layer, model.n_head + 2 * model.n_kv_head
    W, maps = model.mlp_shape
    N = L * (D * heads * model.head_width + D * D + maps * D * W) + vocab_size * D
    return 6 * N + 12 * L * D * setting.data.seq_len


def is_large(setting: Setting, vocab_size: int, windows: int) -> bool:
    """Return True if training on `windows` takes one core more than ten seconds; False for
    user-defined parts."""
    flops = flops_per_token(setting, vocab_size) * windows * setting.data.seq_len
    return has_formula(setting) and flops > LARGE_FLOPS


def trial_bytes(
    setting: Setting, vocab_size: int, *, devices: int = 1, checkpointing: bool = False
) -> int:
    """Estimate the bytes that a device needs to train one of `devices` equal parts of a batch, for
    a model of shipped parts with AdamW.

    20 bytes a weight: itself, two moments, and its gradient twice while it is clipped (Rajbhandari
    et al. 2020, section 3.1). For the backward pass a block keeps the inputs of both norms in
    float32, and in the type of products the outputs of both norms, queries, keys, values, attention
    and both sides of the MLP's activation (Korthikanti et al. 2022, section 4.1); with
    `checkpointing` its input alone (Chen et al. 2016). A logit comes with its log-probability and
    the gradients of both. The driver, kernels and gaps of the allocator come on top.
    """
    training, model, T = setting.training, setting.model, setting.data.seq_len
    D, L, (W, maps) = model.d_model, model.n_layer, model.mlp_shape
    weights = (flops_per_token(setting, vocab_size) - 12 * L * D * T) // 6
    sequences = math.ceil(training.largest_batch / devices)
    tokens = min(sequences, training.micro_batch or sequences) * T
    e = FLOAT32 if training.precision == "float32" else 2  # bytes of a product
    block = 2 * FLOAT32 * D + e * (6 * D + (2 * W if maps == 2 else 4 * W))
    if training.dropout or model.attention.softcap or model.attention.window:
        block += model.n_head * T * (4 + 2 * e)  # attention scores are written out
    kept = L * FLOAT32 * D + block if checkpointing else L * block
    kept += vocab_size * (e + 3 * FLOAT32)
    return 5 * FLOAT32 * weights + tokens * kept


@dataclass(frozen=True)
class ArmCost:
    """Cost of a trial of an arm; `memory` (bytes) is None for user-defined parts."""

    tokens: int
    parameters: int
    flops: int
    memory: int | None


@dataclass(frozen=True)
class Rate:
    """Training speed.

    Attributes:
        flops_per_second: the rate that one device achieves, not its peak.
        workers: trials, or stacks of them, that are trained at the same time.
        step_seconds: the measured training step of a stack of the baseline; None if the rate was
            stated.
    """

    flops_per_second: float
    workers: int = 1
    step_seconds: float | None = None


def stated_rate(study: Study, tflops: float, *, utilisation: float, count: int | None) -> Rate:
    """Return the speed of `count` devices (None: those of one trial) with a peak of `tflops` 10^12
    FLOPs per second each. Raises ParibusError if a trial takes more devices."""
    devices = study.resources.devices
    workers = 1 if count is None else count // devices
    if not workers:
        raise ParibusError(
            f"--count {count}: a trial of '{study.name}' takes {devices} devices; state as many, "
            "or set resources.devices_per_trial"
        )
    return Rate(tflops * 1e12 * utilisation, workers)


@dataclass(frozen=True)
class Cost:
    """Cost of a whole study.

    Attributes:
        arms: cost of one trial, by arm.
        tokens, flops: of the training of all trials, including those that tune.
        vocabulary: the largest vocabulary of the arms; None if a tokenizer does not exist yet.
        device_hours, hours: training time summed over devices, and elapsed; None without a rate.
        price: of all device-hours; None without a price per hour.
    """

    arms: dict[str, ArmCost]
    tokens: int
    flops: int
    vocabulary: int | None
    rate: Rate | None
    device_hours: float | None
    hours: float | None
    price: float | None


def study_cost(
    study: Study,
    vocabularies: Mapping[str, int | None],
    *,
    rate: Rate | None = None,
    price: float | None = None,
) -> Cost:
    """Add up the cost of all trials of `study`, whose budgets are settled.

    Args:
        vocabularies: vocabulary size by arm; None for a tokenizer that does not exist yet.
        rate: speed of training; None if unknown, which leaves the time unknown.
        price: price of one device for an hour.
    """
    arms = {arm: _arm_cost(study, arm, vocabularies[arm]) for arm in study.arms}
    # Those that tune are all trained before the others.
    phases = [[(arm, arms[arm].tokens) for arm, _ in study.trials]]
    if study.tuning is not None:
        tuned = tuning_study(study)
        phases += [[(arm_of(name), tuned.setting(name).tokens) for name, _ in tuned.trials]]
    flops = [[arms[arm].flops / arms[arm].tokens * n for arm, n in phase] for phase in phases]
    sizes = [size or 0 for size in vocabularies.values()]
    total, device_hours, hours = round(sum(map(sum, flops))), None, None
    if rate is not None:
        per_hour = 3600 * rate.flops_per_second
        rounds = (math.ceil(len(phase) / rate.workers) * max(phase) for phase in flops if phase)
        device_hours = total / per_hour
        hours = sum(rounds) / per_hour / study.resources.devices
    return Cost(
        arms=arms,
        tokens=sum(n for phase in phases for _, n in phase),
        flops=total,
        vocabulary=max(sizes) if all(sizes) else None,
        rate=rate,
        device_hours=device_hours,
        hours=hours,
        price=None if price is None or device_hours is None else price * device_hours,
    )


def _arm_cost(study: Study, arm: str, vocab_size: int | None) -> ArmCost:
    setting, resources, memory = study.setting(arm), study.resources, None
    V = vocab_size or ASSUMED_VOCABULARY
    parameters, flops = model_size(setting, V, study.folder)
    if has_formula(setting):
        checkpointing = resources.checkpoint_activations
        memory = trial_bytes(setting, V, devices=resources.devices, checkpointing=checkpointing)
    per_token = 6 * parameters if flops is None else flops  # each is used once
    return ArmCost(setting.tokens, parameters, per_token * setting.tokens, memory)


def model_size(setting: Setting, vocab_size: int, folder: Path) -> tuple[int, int | None]:
    """Return the parameters of a model and the FLOPs of training it per token.

    The operations of a model with user-defined parts are counted; FLOPs are None if its code needs
    values.
    """
    from paribus.engine.model import count_parameters, counted_flops_per_token

    parameters = count_parameters(setting, vocab_size, folder)
    if has_formula(setting):
        return parameters, flops_per_token(setting, vocab_size)
    return parameters, counted_flops_per_token(setting, vocab_size, folder)


def vocabularies_of(study: Study) -> dict[str, int | None]:
    """Read the vocabulary size of every arm's tokenizer; None if that would need a download, a
    missing file or a user-defined corpus."""
    known = cache(partial(_vocabulary, folder=study.folder))
    return {arm: known(study.setting(arm).data) for arm in study.arms}


def _vocabulary(data: Data, folder: Path) -> int | None:
    from paribus.engine.data.split import Texts
    from paribus.engine.data.tokenizer import tokenizer_of

    corpora = [source.corpus for source in (data, *map(data.for_source, data.other_sources))]
    try:
        if data.tokenizer != "character":
            return tokenizer_of(data, "", False, folder).vocab_size
        if any(corpus in DOWNLOADED or ":" in corpus for corpus in corpora):
            return None
        return Texts.read(data, folder).tokenizer.vocab_size
    except (ParibusError, OSError):
        return data.vocab_size  # of a tokenizer that the run trains
