"""How fast each arm is, measured in turn so that the comparison is paired.

Trials are trained at different times, and what else the machine does is in their clock. Here one
worker alone lets all arms take turns within seconds: reading a batch of full windows (prefill),
writing token by token with a key-value cache (decoding), and a training step without probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from paribus.data import Dataset, batch
from paribus.execution.dry_run import GRAPHED_STEPS
from paribus.execution.memory import BYTES_PER_PARAMETER
from paribus.execution.meters import timed
from paribus.execution.warm_up import LARGEST_STATE_BYTES
from paribus.model import GPT, KeyValueCache, build_model, load_parameters
from paribus.results import ResultsFolder
from paribus.study import Data, Study
from paribus.training import Trainer

PROMPT_SHARE = 0.5  # of the window is read before decoding begins
DECODED_SHARE = 0.25  # of the window is then written token by token
MOST_DECODED = 64
# Of each arm and kind, over all seeds. Where a seed has several the fastest counts: what else the
# machine does only ever slows down.
LEAST_TURNS = 5
UNITS = {"arm": "1", "seed": "1", "kind": "1", "tokens": "tokens", "seconds": "s"}

Action = Callable[[], int]  # does something, and says how many tokens it was


def time_arms(
    study: Study,
    results: ResultsFolder,
    dataset_of: Callable[[Data], Dataset],
    device: torch.device,
    *,
    graphs: bool = True,
) -> None:
    """Time every arm with the weights of every seed, and write `throughput.parquet`.

    One row per (arm, seed, kind): tokens and seconds, of the fastest of its turns. Arms go in
    another order for every seed. A kind that an arm cannot do (decoding, with a module of one's
    own) has no row; nor has training where the optimizer states of all arms do not fit into
    LARGEST_STATE_BYTES.
    """
    arms = list(study.arms)
    datasets = {arm: dataset_of(study.setting(arm).data) for arm in arms}
    models = {
        arm: build_model(study.setting(arm), datasets[arm].vocab_size, study.folder).to(device)
        for arm in arms
    }
    trainers = _trainers(study, datasets, models, device, graphs)
    turns = math.ceil(LEAST_TURNS / len(study.seeds))
    rows: list[tuple[str, int, str, int, float]] = []
    for turn, seed in enumerate(study.seeds):
        for arm in arms:
            load_parameters(models[arm], results.trial(arm, seed).read_weights())
        actions = {
            arm: _actions(models[arm].eval(), study, arm, seed, datasets[arm], device)
            | trainers[arm]
            for arm in arms
        }
        for kind in dict.fromkeys(kind for of_arm in actions.values() for kind in of_arm):
            able = [arm for arm in arms if kind in actions[arm]]
            for arm in able if turn == 0 else ():
                _warm_up(actions[arm][kind], device)
            order = able[turn % len(able) :] + able[: turn % len(able)]
            rounds = [[timed(actions[arm][kind], device) for arm in order] for _ in range(turns)]
            for arm, times in zip(order, zip(*rounds, strict=True), strict=True):
                rows.append((arm, seed, kind, *min(times, key=lambda turn: turn[1])))
    columns = dict(
        zip(UNITS, (np.array(column) for column in zip(*rows, strict=True)), strict=True)
    )
    results.write_throughput(columns, UNITS)


def _warm_up(action: Action, device: torch.device) -> None:
    """The first time of anything is slow; on a GPU, training is then recorded, and replayed."""
    for _ in range(GRAPHED_STEPS if device.type == "cuda" else 1):
        action()


def _trainers(
    study: Study,
    datasets: dict[str, Dataset],
    models: dict[str, GPT],
    device: torch.device,
    graphs: bool,
) -> dict[str, dict[str, Action]]:
    """By arm, the action "training", where there is room for it."""
    parameters = sum(p.numel() for model in models.values() for p in model.parameters())
    if BYTES_PER_PARAMETER * parameters > LARGEST_STATE_BYTES:
        return {arm: {} for arm in models}

    def trainer(arm: str) -> dict[str, Action]:
        setting = study.setting(arm)
        stack = Trainer(
            setting,
            study.seeds[:1],
            datasets[arm],
            folder=study.folder,
            device=device,
            graphs=graphs,
        )

        def train() -> int:
            stack.step()
            return setting.tokens_per_step

        return {"training": train}

    return {arm: trainer(arm) for arm in models}


def _actions(
    model: GPT, study: Study, arm: str, seed: int, dataset: Dataset, device: torch.device
) -> dict[str, Action]:
    setting = study.setting(arm)
    seq_len, size = setting.data.seq_len, setting.training.batch_size
    windows = batch(dataset.validation, seed, 0, size, seq_len)[:, :-1]
    tokens = torch.from_numpy(windows).to(device)

    def prefill() -> int:
        with torch.inference_mode():
            model(tokens)
        return tokens.numel()

    actions: dict[str, Action] = {"prefill": prefill}
    n_prompt = int(seq_len * PROMPT_SHARE)
    n_decoded = min(int(seq_len * DECODED_SHARE), MOST_DECODED)
    if model.can_cache and n_prompt and n_decoded:
        actions["decoding"] = _decoding(model, tokens[:, :n_prompt], n_decoded)
    return actions


def _decoding(model: GPT, prompt: Tensor, n_decoded: int) -> Action:
    """Greedy decoding after a prompt that has been read already."""
    cache = KeyValueCache(len(model.blocks), room=prompt.shape[1] + n_decoded)
    with torch.inference_mode():
        first = model(prompt, cache)[:, -1].argmax(dim=-1, keepdim=True)

    def decode() -> int:
        cache.length = prompt.shape[1]
        token = first
        with torch.inference_mode():
            for _ in range(n_decoded):
                token = model(token, cache)[:, -1].argmax(dim=-1, keepdim=True)
        return n_decoded * len(prompt)

    return decode
