"""A trial from start to seal. A trial is a pure function of (study, arm, seed).

Here the rooms meet that do not know each other: data, model, training, probes and evaluation.
Trials of one arm can share a stack; each still leaves a folder of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from paribus.data import Dataset, token_classes
from paribus.errors import ParibusError
from paribus.evaluation import Evaluation, evaluate_heldout
from paribus.execution.environment import environment
from paribus.model import build_model, load_parameters, require_initializers
from paribus.probes import all_probes
from paribus.results import ResultsFolder, TrialFolder
from paribus.study import Setting, Study, source_digests
from paribus.training import ReplicaState, Stack

PROGRESS_SECONDS = 0.5
UNITS = {"train_loss": "nats/token", "grad_norm": "L2", "learning_rate": "1", "step": "1"}


@dataclass(frozen=True)
class StackTask:
    """Trials of one arm to be trained side by side, all at the same step."""

    study: Study
    arm: str
    seeds: tuple[int, ...]
    results: ResultsFolder
    device: torch.device
    checkpoint_seconds: float

    @property
    def folders(self) -> list[TrialFolder]:
        return [self.results.trial(self.arm, seed) for seed in self.seeds]


def run_stack(
    task: StackTask,
    dataset: Dataset,
    *,
    on_progress: Callable[[int, list[float]], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Train, evaluate and record the task's trials; False where it was asked to stop before.

    `on_progress(t, losses)` hears of the steps done and each replica's training loss. A stopped
    stack leaves a checkpoint from which the next call goes on; with the seeds that it had, to the
    same bytes.
    """
    setting = task.study.setting(task.arm)
    stack = build_stack(task.study, setting, task.seeds, dataset, task.device)
    seconds = _restore(stack, task.folders)
    for folder, initial in zip(task.folders, stack.initial_records, strict=True):
        folder.write_json("initial.json", initial)

    began = last_checkpoint = last_progress = time.monotonic()
    while stack.t < setting.iterations:
        stack.step()
        now = time.monotonic()
        stopping = should_stop()
        if stopping or now - last_checkpoint >= task.checkpoint_seconds:
            _write_checkpoints(stack, task.folders, seconds + now - began)
            last_checkpoint = now
        if stopping:
            return False
        if now - last_progress >= PROGRESS_SECONDS:
            on_progress(stack.t, stack.last_losses)
            last_progress = now
    on_progress(stack.t, stack.last_losses)

    training_seconds = seconds + time.monotonic() - began
    for replica, folder in enumerate(task.folders):
        _record(task, folder, stack, replica, dataset, training_seconds)
    return True


def dry_run(
    study: Study, arm: str, dataset: Dataset, device: torch.device, stack_size: int
) -> None:
    """One step and one evaluated window of `arm`, recorded nowhere: what fails, fails now.

    Raises ParibusError.
    """
    setting = study.setting(arm)
    small = setting.training.model_copy(update={"batch_size": 1})
    tiny = setting.model_copy(update={"training": small})
    # Two replicas go the way of all stacks.
    seeds = range(min(stack_size, 2))
    try:
        model, again = (
            build_model(setting, dataset.vocab_size, study.folder, constructor_seed=seed)
            for seed in (0, 1)
        )
        require_initializers(model, again, setting)
        stack = build_stack(study, tiny, seeds, dataset, device)
        stack.step()
        load_parameters(model, stack.parameters(0))
        window = dataset.validation[: setting.data.seq_len + 1]
        evaluate_on(model.to(device), dataset, window, setting.data.seq_len)
    except ParibusError:
        raise
    except Exception as error:
        raise ParibusError(
            f"arm '{arm}' fails in a dry run of one step: {type(error).__name__}: {error}"
        ) from error


def build_stack(
    study: Study, setting: Setting, seeds: Sequence[int], dataset: Dataset, device: torch.device
) -> Stack:
    """A stack as every trial has it: all probes, the study's own modules."""
    probes = all_probes()
    return Stack(setting, seeds, dataset, folder=study.folder, device=device, probes=probes)


def _restore(stack: Stack, folders: list[TrialFolder]) -> float:
    """Go on from the folders' checkpoints, if all have one; returns the seconds already spent."""
    found = [folder.read_checkpoint() for folder in folders]
    loaded = [checkpoint for checkpoint in found if checkpoint is not None]
    if len(loaded) < len(folders) or len({about["t"] for _, about in loaded}) != 1:
        return 0.0
    stack.restore(
        [
            ReplicaState(
                t=about["t"],
                weights=arrays["weights"],
                mean=arrays["mean"],
                square=arrays["square"],
                measured=arrays["measured"],
                batch_digest=about["batch_digest"],
                diverged_at=about["diverged_at"],
            )
            for arrays, about in loaded
        ]
    )
    return max(about["seconds"] for _, about in loaded)


def _write_checkpoints(stack: Stack, folders: list[TrialFolder], seconds: float) -> None:
    for replica, folder in enumerate(folders):
        state = stack.state(replica)
        arrays = {
            "weights": state.weights,
            "mean": state.mean,
            "square": state.square,
            "measured": state.measured,
        }
        about = {
            "t": state.t,
            "batch_digest": state.batch_digest,
            "diverged_at": state.diverged_at,
            "seconds": seconds,
        }
        folder.write_checkpoint(arrays, about)


def _record(
    task: StackTask,
    folder: TrialFolder,
    stack: Stack,
    replica: int,
    dataset: Dataset,
    training_seconds: float,
) -> None:
    """Write everything of one finished trial; the manifest comes last."""
    setting = stack.setting
    state = stack.state(replica)
    weights = stack.parameters(replica)

    began = time.monotonic()
    model = build_model(setting, dataset.vocab_size, task.study.folder)
    load_parameters(model, weights)
    model = model.to(task.device)
    heldout = evaluate_on(model, dataset, dataset.validation, setting.data.seq_len)
    evaluation_seconds = time.monotonic() - began

    columns = {"step": np.arange(1, state.t + 1, dtype=np.int32)}
    columns |= {name: state.measured[:, c] for c, name in enumerate(stack.columns)}
    units = UNITS | {probe.name: probe.unit for probe in stack.probes}
    folder.write_columns("steps.parquet", columns, units)
    folder.write_columns(
        "windows.parquet",
        {
            "loss_sum_nats": heldout.windows.loss_sum_nats,
            "correct": heldout.windows.correct,
            "predicted": heldout.windows.predicted,
        },
        {"loss_sum_nats": "nats", "correct": "tokens", "predicted": "tokens"},
    )
    folder.write_weights(weights)
    scores = dict(zip(heldout.scores, finite(heldout.scores.values()), strict=True))
    folder.write_json("evaluation.json", scores)
    folder.write_json(
        "trial.json",
        {
            "arm": task.arm,
            "seed": folder.seed,
            "setting": setting.model_dump(mode="json"),
            "own_modules": source_digests(setting.model.modules, task.study.folder),
            "data": dataset.record,
            "parameters": sum(value.size for value in weights.values()),
            "iterations": state.t,
            "tokens": state.t * setting.tokens_per_step,
            "batch_digest": state.batch_digest,
            "diverged_at": state.diverged_at,
        },
    )
    folder.write_json("environment.json", environment(task.device, len(task.seeds)))
    folder.write_json(
        "timing.json",
        {
            # Replicas of a stack share its time: each is charged its part.
            "training_seconds": training_seconds / len(task.seeds),
            "evaluation_seconds": evaluation_seconds,
        },
    )
    folder.finish()


def evaluate_on(
    model: torch.nn.Module, dataset: Dataset, tokens: np.ndarray, seq_len: int
) -> Evaluation:
    """`evaluate_heldout` of `tokens` [n], with what the dataset's tokenizer knows of them."""
    vocabulary, end = dataset.tokenizer.vocabulary, dataset.tokenizer.end_of_document
    characters = [0 if token == end else len(text) for token, text in enumerate(vocabulary)]
    return evaluate_heldout(
        model,
        tokens,
        seq_len,
        token_classes=token_classes(vocabulary, end),
        characters=np.array(characters),
    )


def finite(values: Iterable[float]) -> list[float | None]:
    """Non-finite numbers become null: JSON has no word for them."""
    return [value if math.isfinite(value) else None for value in values]
