"""One process's part in timing the arms in turn (`interleaved_timing.py`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paribus.engine.data import Dataset, batch
from paribus.engine.execution.workers.messages import Timed
from paribus.engine.machine.memory import most_held
from paribus.engine.machine.speed import timed
from paribus.engine.model import GPT, KeyValueCache, build_model, load_parameters
from paribus.engine.setting import Data, Ramp
from paribus.engine.training import GRAPHED_STEPS, Trainer
from paribus.metric import Metric
from paribus.results import ResultsFolder
from paribus.study import Study

PROMPT_SHARE = 0.5  # of the window is read before decoding begins
DECODED_SHARE = 0.25  # of the window is then written token by token
MOST_DECODED = 64
PARTS = 8  # of a run whose batches grow
Action = Callable[[], int]  # does something, and says how many tokens it was


def _speed(name: str, label: str) -> Metric:
    column = f"{name}/tokens per second"
    about = (f"{name}_throughput", label, "tokens/s", "higher", "turns", 0, column, "log")
    return Metric(*about, of_tokens=True)


# What is measured in turn, and can be an endpoint: compared as ratios.
METRICS = (
    _speed("training", "training speed"),
    _speed("prefill", "reading speed"),
    _speed("decoding", "writing speed"),
    Metric(
        *("training_memory", "memory of training", "MiB", "lower", "turns", 1),
        column="training/MiB",
        scale="log",
    ),
)


class Turns:
    """The arms that this process times; each is built when it is first asked for."""

    def __init__(
        self,
        results: ResultsFolder,
        dataset_of: Callable[[Data], Dataset],
        device: torch.device,
        *,
        graphs: bool,
    ) -> None:
        self._results, self._dataset_of = results, dataset_of
        self._device, self._graphs = device, graphs
        self._models: dict[str, GPT] = {}
        self._trainers: dict[str, Action] = {}
        self._bytes: dict[str, int | None] = {}  # the most that training an arm holds
        self._actions: dict[str, dict[str, Action]] = {}

    def prepare(self, study: Study, arm: str, seed: int, trains: bool) -> list[str]:
        """Load the weights of (arm, seed); returns the kinds of turns that the arm can take."""
        setting = study.setting(arm)
        dataset = self._dataset_of(setting.data)
        is_new = arm not in self._models
        if is_new:
            model = build_model(setting, dataset.vocab_size, study.folder)
            self._models[arm] = model.to(self._device).eval()
            if trains:
                self._trainers[arm] = self._trainer(study, arm, seed, dataset)
        model = self._models[arm]
        load_parameters(model, self._results.trial(arm, seed).read_weights())
        self._actions[arm] = _actions(model, study, arm, seed, dataset, self._device)
        if arm in self._trainers:
            self._actions[arm]["training"] = self._trainers[arm]
        for action in self._actions[arm].values() if is_new else ():
            _warm_up(action, self._device)
        return list(self._actions[arm])

    def take(self, arm: str, kind: str) -> Timed:
        """One turn of an arm that is prepared."""
        tokens, seconds = timed(self._actions[arm][kind], self._device)
        return Timed(tokens, seconds, self._bytes.get(arm) if kind == "training" else None)

    def _trainer(self, study: Study, arm: str, seed: int, dataset: Dataset) -> Action:
        setting = study.setting(arm, seed)

        def begin() -> Trainer:
            stack = Trainer(
                setting,
                study.seeds[:1],
                dataset,
                folder=study.folder,
                device=self._device,
                graphs=self._graphs,
            )
            stack.go_to_largest_batch()
            stack.step()
            return stack

        # Weights, optimizer state, and what a step holds besides: all from nothing.
        stack, self._bytes[arm] = most_held(begin, self._device)

        def train() -> int:
            stack.step()
            return setting.tokens_per_step

        def train_parts() -> int:
            windows = 0
            for t in evenly(setting.iterations):
                stack.go_to(t, ahead=1)
                windows += setting.windows_in(t)
                stack.step()
            return windows * setting.data.seq_len

        # Alike for all arms: the first step of a turn is slower than those that follow.
        sizes = [study.setting(one).training.batch_size for one in study.arms]
        return train_parts if any(isinstance(size, Ramp) for size in sizes) else train


def evenly(steps: int) -> tuple[int, ...]:
    """Return the steps that a turn of training is of, where batches of some arm grow: in the middle
    of equal parts of the run, so that they have its mix of sizes."""
    return tuple(int((part + 0.5) / PARTS * steps) for part in range(PARTS))


def _warm_up(action: Action, device: torch.device) -> None:
    """Do it first, which is slow; on a GPU, training is then recorded, and replayed."""
    for _ in range(GRAPHED_STEPS if device.type == "cuda" else 1):
        action()


def _actions(
    model: GPT, study: Study, arm: str, seed: int, dataset: Dataset, device: torch.device
) -> dict[str, Action]:
    setting = study.setting(arm)
    seq_len, size = setting.data.seq_len, setting.training.largest_batch
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
