"""Cost of a study: parameters, FLOPs, memory, time, device-hours and price.

FLOPs and memory are computed with formulas from cited sources. Parameters are counted in a model
built on the "meta" device. Time is computed from a rate in FLOPs per second, which is measured by
`execution/start.py` or given by the user.

Symbols: L layers, D channels, T window length, V vocabulary size, W inner width of an MLP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from paribus.engine.format import DOWNLOADED
from paribus.engine.setting import Data, Setting
from paribus.errors import ParibusError
from paribus.study import Study, tuning_study
from paribus.study.tuning_study import arm_of

UTILISATION = 0.4
"""Default utilization, as a fraction of peak FLOP/s (PaLM: 46%, Chowdhery et al. 2022, app. B)."""
ASSUMED_VOCABULARY = 50_257
"""GPT-2's vocabulary size (Radford et al. 2019), assumed if the tokenizer does not exist yet."""

FLOAT32 = 4  # bytes of a weight, a gradient, an optimizer slot and a number of the residual stream

LARGE_FLOPS = 2e11  # ten seconds of a slow core


def has_formula(setting: Setting) -> bool:
    """Return whether the cost formulas support all parts of the model."""
    return not (setting.model.modules.named or setting.model.unsupported_kinds)


def flops_per_token(setting: Setting, vocab_size: int) -> int:
    """Return the training FLOPs per token, 6 N + 12 L D T.

    N is the number of weights in matrix products. Each takes a multiplication and an addition per
    token, once in the forward and twice in the backward pass (Kaplan et al. 2020, section 2.1). The
    second term is attention over all T x T positions (Chowdhery et al. 2022, appendix B).
    Recomputation in activation checkpointing is not counted.
    """
    model = setting.model
    D, L, heads = model.d_model, model.n_layer, model.n_head + 2 * model.n_kv_head
    W, maps = model.mlp_shape
    N = L * (D * heads * model.head_width + D * D + maps * D * W) + vocab_size * D
    return 6 * N + 12 * L * D * setting.data.seq_len


def is_large(setting: Setting, vocab_size: int, windows: int) -> bool:
    """Return whether training on `windows` windows takes over ten seconds on one CPU core.

    Always False for models with parts that the FLOP formula does not support.
    """
    flops = flops_per_token(setting, vocab_size) * windows * setting.data.seq_len
    return has_formula(setting) and flops > LARGE_FLOPS


def trial_bytes(
    setting: Setting, vocab_size: int, *, devices: int = 1, checkpointing: bool = False
) -> int:
    """Estimate the bytes of memory per device for training a model with only built-in parts.

    The optimizer is assumed to be AdamW, with 20 bytes per weight: the weight, two moments, and two
    copies of the gradient during clipping (Rajbhandari et al. 2020, section 3.1). For the backward
    pass, a block stores the inputs of both norms in float32; in the compute precision, it stores
    the outputs of both norms, the queries, keys, values, attention output, and the inputs and
    outputs of the MLP's activation (Korthikanti et al. 2022, section 4.1). With checkpointing, it
    stores only its input (Chen et al. 2016). Each logit also needs memory for its log-probability
    and two gradients. The driver, kernels and allocator fragmentation are not included.

    Args:
        devices: number of devices that share a batch equally.
        checkpointing: whether activations are recomputed in the backward pass.
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
    """Cost of one trial in an arm.

    Attributes:
        tokens: number of training tokens.
        parameters: number of model parameters.
        flops: number of training FLOPs.
        memory: bytes per device, or None if the formula does not support the model.
    """

    tokens: int
    parameters: int
    flops: int
    memory: int | None


@dataclass(frozen=True)
class Rate:
    """Training speed of a study's trials.

    Attributes:
        flops_per_second: achieved FLOPs per second of one device.
        workers: number of workers that train concurrently.
        step_seconds: measured duration of a training step in the baseline arm, or None if the rate
            was not measured.
    """

    flops_per_second: float
    workers: int = 1
    step_seconds: float | None = None


def stated_rate(study: Study, tflops: float, *, utilisation: float, count: int | None) -> Rate:
    """Return the training speed of devices with a known peak performance.

    Args:
        tflops: peak performance of one device, in 10^12 FLOPs per second.
        utilisation: achieved fraction of the peak.
        count: number of devices, or None for as many as one trial uses.

    Raises ParibusError if a trial needs more than `count` devices.
    """
    devices = study.resources.devices
    workers = 1 if count is None else count // devices
    if not workers:
        raise ParibusError(
            f"--count {count} is too small, because a trial in '{study.name}' uses {devices} "
            f"devices; set --count {devices} or more, or reduce resources.devices_per_trial"
        )
    return Rate(tflops * 1e12 * utilisation, workers)


@dataclass(frozen=True)
class Cost:
    """Cost of a study.

    Attributes:
        arms: cost of one trial, keyed by arm.
        tokens: number of training tokens in all trials, including tuning trials.
        flops: number of training FLOPs in all trials, including tuning trials.
        vocabulary: largest vocabulary size of all arms, or None if a tokenizer does not exist yet.
        rate: training speed, or None if unknown.
        device_hours: training time summed over devices, or None if `rate` is None.
        hours: wall-clock training time, or None if `rate` is None.
        price: price of all device-hours, or None if the rate or the hourly price is unknown.
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
    """Estimate the cost of all trials in a study.

    Args:
        study: study whose budgets are resolved (see `settled_budgets`).
        vocabularies: vocabulary size, keyed by arm, or None if the tokenizer does not exist yet.
        rate: training speed, or None if unknown.
        price: price per device-hour, or None if unknown.
    """
    arms = {arm: _arm_cost(study, arm, vocabularies[arm]) for arm in study.arms}
    # All tuning trials are trained before the others.
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
    """Return a model's number of parameters and its training FLOPs per token.

    For a model that the formula does not support, FLOPs are counted on the "meta" device, and are
    None if its code fails there.
    """
    from paribus.engine.model import count_parameters, counted_flops_per_token

    parameters = count_parameters(setting, vocab_size, folder)
    if has_formula(setting):
        return parameters, flops_per_token(setting, vocab_size)
    return parameters, counted_flops_per_token(setting, vocab_size, folder)


def vocabularies_of(study: Study, is_prepared: bool = False) -> dict[str, int | None]:
    """Return the vocabulary size of each arm's tokenizer, keyed by arm.

    Unless the texts were prepared before, a size is None if it depends on a download, a missing
    file or a custom corpus.
    """
    known = cache(partial(_vocabulary, folder=study.folder, is_prepared=is_prepared))
    return {arm: known(study.setting(arm).data) for arm in study.arms}


def _vocabulary(data: Data, folder: Path, is_prepared: bool) -> int | None:
    from paribus.engine.data.split import Texts
    from paribus.engine.data.tokenizer import tokenizer_of

    corpora = [source.corpus for source in (data, *map(data.for_source, data.other_sources))]
    try:
        if data.tokenizer != "character":
            return tokenizer_of(data, "", False, folder).vocab_size
        if not is_prepared and any(c in DOWNLOADED or ":" in c for c in corpora):
            return None
        return Texts.read(data, folder).tokenizer.vocab_size
    except (ParibusError, OSError):
        return data.vocab_size  # of a tokenizer that the run trains
