"""Measurement of the arms' throughput in training, prefill and token-by-token decoding.

Arms are timed alternately in one process, within seconds of each other, so that the comparison is
paired. The training time of a trial would also reflect other load on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch

from paribus.engine.data import Dataset, batch
from paribus.engine.machine.steps import timed, warm_up
from paribus.engine.model import GPT, KeyValueCache, build_model, load_parameters
from paribus.engine.training import Trainer
from paribus.metric import Metric
from paribus.results import ResultsFolder
from paribus.results.formats import COLUMNS
from paribus.results.store import THROUGHPUT
from paribus.study import Study
from paribus.study.trainer import Trial

LEAST_TURNS = 5  # per arm and kind, over all seeds; the fastest turn for a seed counts
LARGEST_STATE_BYTES = 4 * 2**30  # weights, gradients and moments of all arms together
PROMPT_SHARE, DECODED_SHARE = 0.5, 0.25  # of the window: prompt, then decoded token by token
MOST_DECODED = 64
Action = Callable[[], int]  # returns the number of tokens processed


def _speed(kind: str, label: str) -> Metric:
    name, key = f"{kind}_throughput", f"{kind}/tokens per second"
    return Metric(name, label, "tokens/s", "higher", "turns", 0, key, "log", of_tokens=True)


# Endpoints that are timed in turn, and compared as ratios.
METRICS = (
    _speed("training", "training speed"),
    _speed("prefill", "reading speed"),
    _speed("decoding", "writing speed"),
    Metric("training_memory", "memory of training", "MiB", "lower", "turns", 1, "training/MiB",
           "log"),
)  # fmt: skip


def time_in_turn(
    study: Study,
    results: ResultsFolder,
    datasets: Mapping[str, Dataset],
    device: torch.device,
    trials: Collection[Trial],
    *,
    graphs: bool,
) -> None:
    """Time every arm with the weights of each of its `trials`, and write throughput.parquet.

    The table has one row per arm, seed and kind, with the tokens and seconds of the fastest
    repetition and, for training on a GPU, the peak tensor memory in bytes. The order of the arms
    rotates over seeds. Kinds that an arm does not support have no row, and neither has training if
    the training states of all arms together exceed LARGEST_STATE_BYTES.

    Args:
        datasets: data sets, keyed by arm.
        graphs: whether to replay training steps as CUDA graphs.
    """
    models: dict[str, GPT] = {}
    for arm in study.arms:
        model = build_model(study.setting(arm), datasets[arm].vocab_size, study.folder)
        models[arm] = model.to(device).eval()
    n_bytes = 16 * sum(p.numel() for model in models.values() for p in model.parameters())
    training: dict[str, tuple[Action, int | None]] = {}
    if n_bytes <= LARGEST_STATE_BYTES:
        training = {arm: training_turn(study, arm, datasets[arm], device, graphs) for arm in models}
    seeds = [seed for seed in study.seeds if any((arm, seed) in trials for arm in study.arms)]
    rounds = math.ceil(LEAST_TURNS / len(seeds))
    rows: list[tuple[str, int, str, int, float, float | None]] = []
    for turn, seed in enumerate(seeds):
        arms = [arm for arm in study.arms if (arm, seed) in trials]
        first = turn % len(arms)
        kinds: dict[str, dict[str, Action]] = {}
        for arm in arms[first:] + arms[:first]:
            load_parameters(models[arm], results.trial(arm, seed).read_weights())
            setting, text = study.setting(arm), datasets[arm].validation
            tokens = batch(text, seed, 0, setting.training.largest_batch, setting.data.seq_len)
            actions = inference_turns(models[arm], torch.from_numpy(tokens[:, :-1]).to(device))
            if training:
                actions["training"] = training[arm][0]
            for kind, action in actions.items():
                kinds.setdefault(kind, {})[arm] = action
                warm_up(action, device)
        for kind, actions in kinds.items():
            turns = [{arm: timed(actions[arm], device) for arm in actions} for _ in range(rounds)]
            for arm in actions:
                n_tokens, seconds = min((times[arm] for times in turns), key=lambda time: time[1])
                n_held = training[arm][1] if kind == "training" else None
                rows.append((arm, seed, kind, n_tokens, seconds, n_held))
    names = COLUMNS[THROUGHPUT]
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    with results.sealing(THROUGHPUT):
        columns["bytes"] = columns["bytes"].astype(np.float64)
        results.write_columns(THROUGHPUT, columns)


def training_turn(
    study: Study, arm: str, dataset: Dataset, device: torch.device, graphs: bool
) -> tuple[Action, int | None]:
    """Return a function that trains for one step, and its peak memory in bytes (None on a CPU)."""
    setting, before, n_held = study.setting(arm), 0, None
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    stack = Trainer(
        setting, study.seeds[:1], dataset, folder=study.folder, device=device, graphs=graphs
    )
    stack.t = setting.iterations - 1  # the batch is at its largest
    stack.step()
    if device.type == "cuda":
        n_held = torch.cuda.max_memory_allocated(device) - before

    def train() -> int:
        stack.step()
        return setting.tokens_per_step

    return train, n_held


@torch.inference_mode()
def inference_turns(model: GPT, tokens_BT: torch.Tensor) -> dict[str, Action]:
    """Return functions that run inference, keyed by "prefill" and "decoding".

    "decoding" is missing if a custom module has no cache, or if the window is too short.
    """

    @torch.inference_mode()
    def prefill() -> int:
        model(tokens_BT)
        return tokens_BT.numel()

    B, T = tokens_BT.shape
    n_prompt, n_decoded = int(T * PROMPT_SHARE), min(int(T * DECODED_SHARE), MOST_DECODED)
    if not (model.can_cache and n_prompt and n_decoded):
        return {"prefill": prefill}
    cache = KeyValueCache(len(model.blocks))
    first = model(tokens_BT[:, :n_prompt], cache)[:, -1].argmax(dim=-1, keepdim=True)

    @torch.inference_mode()
    def decode() -> int:
        cache.length, token = n_prompt, first
        for _ in range(n_decoded):
            token = model(token, cache)[:, -1].argmax(dim=-1, keepdim=True)
        return n_decoded * B

    return {"prefill": prefill, "decoding": decode}
