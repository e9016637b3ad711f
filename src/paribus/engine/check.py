"""Dry run of every arm before training, and reproduction of a finished trial's first steps.

The dry run builds and calls custom code. It verifies that a repeated step is bitwise reproducible
and independent of other replicas, that no prediction depends on a later token, and that custom
metrics can be evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from paribus.engine.cost import is_large
from paribus.engine.data import Dataset
from paribus.engine.evaluation import evaluate_on, own_measures
from paribus.engine.evaluation.causality import require_causal, seeded
from paribus.engine.machine.environment import environment
from paribus.engine.machine.steps import build_stack
from paribus.engine.model import GPT, build_model, load_parameters, require_initializers
from paribus.engine.observation import capture
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training import GRAPHED_STEPS, MEASURED, WEIGHTS, ReplicaState, Trainer
from paribus.engine.training.groups import parameter_groups
from paribus.engine.training.losses import find_loss
from paribus.engine.training.schedules import LearningRates
from paribus.errors import ParibusError, blamed
from paribus.numbers import some
from paribus.results import TrialFolder
from paribus.results.software import SAME_BITS
from paribus.study import Study, step_code

ROWS = 2  # of the batches that are tried
LEAST_WINDOWS = 30  # of the held-out text
DRY_ROWS = ROWS * 6  # in each of six passes
TAME_RATE = 1e-2  # a larger learning rate amplifies rounding beyond any tolerance
REPEATED = ("train_loss", "grad_norm")  # columns that are compared


def check_arm(
    study: Study,
    arm: str,
    dataset: Dataset,
    device: torch.device,
    stack_size: int,
    *,
    graphs: bool = True,
) -> list[str]:
    """Run one training step and one evaluation of `arm`, and return a list of warnings.

    A large model on a CPU is built but not run, because a step would take minutes.

    Args:
        stack_size: number of replicas that are trained together.
        graphs: whether to capture and replay the step as a CUDA graph, as training does on a GPU.

    Raises ParibusError if the arm cannot be trained.
    """
    setting, where, V = study.setting(arm), f"arm '{arm}'", dataset.vocab_size
    own = _in_brackets(step_code(study, arm))
    try:
        with blamed(f"{where}{own} failed in a dry run of one step"):
            rows_of(setting, study.resources.devices)
            LearningRates([setting], study.folder).at(setting.iterations - 1)
            if device.type == "cpu" and is_large(setting, V, DRY_ROWS):
                model = build_model(setting, V, study.folder, device="meta")
                parameter_groups([setting], model, study.folder)
                find_loss(setting.training.loss, study.folder)
                return [
                    "models were built but not run, because a step would take minutes on this CPU"
                ]
            model = build_model(setting, V, study.folder).to(device)
            if setting.own_parts:
                again = build_model(setting, V, study.folder, constructor_seed=1)
                require_initializers(model, again, setting)
            _require_shapes(model, setting, V)
            weights, unchanged = _try_steps(study, arm, dataset, device, stack_size, graphs)
            load_parameters(model, weights)  # after a step no gain is zero any more
            require_causal(where, model, setting, dataset)
            seq_len, evaluation = setting.data.seq_len, study.evaluation
            window = dataset.validation[: seq_len + seq_len // 2 + 1]  # and a shorter one
            measures = own_measures(evaluation.own, study.folder)
            evaluate_on(
                model, dataset, window, seq_len, measures, evaluation.precision, strict=True
            )
    except ParibusError as error:
        if type(error) is not ParibusError or where in str(error):
            raise
        raise ParibusError(f"{where}{own}: {error}", code=error.code) from error.__cause__
    warnings, n_windows = list[str](), len(dataset.validation) // seq_len
    if n_windows < LEAST_WINDOWS:
        warnings.append(
            f"the held-out text has only {len(dataset.validation)} tokens ({n_windows} windows), "
            "so scores say little; add text, or increase data.validation_fraction"
        )
    if unchanged:
        names = some([f"'{name}'" for name in unchanged])
        warnings.append(f"{where}: optimizer {names} changed no weights in one step")
    return warnings


def _try_steps(
    study: Study, arm: str, dataset: Dataset, device: torch.device, R: int, graphs: bool
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Run a step of R replicas twice from the same state, and require bit-identical results.

    In the second run, all replicas but the first have NaN weights. Returns the first replica's
    weights after the step, and the names of optimizers that changed none of their weights.
    """
    setting, own = study.setting(arm), step_code(study, arm)
    rate = min(setting.training.optimizer.learning_rate, TAME_RATE)
    # Without decay, which changes weights whatever the optimizer does.
    changes = {"learning_rate": rate, "weight_decay": 0.0}
    optimizer = setting.training.optimizer.model_copy(update=changes)
    training = setting.training.model_copy(update={"batch_size": ROWS, "optimizer": optimizer})
    small = setting.model_copy(update={"training": training})
    stack = build_stack(study, small, range(R), dataset, device, graphs=graphs)
    model, dropouts = stack.replicas.model, stack.replicas.dropouts  # these keep keys of masks
    buffers = {name: x.clone() for name, x in model.named_buffers()}
    start = [stack.state(replica) for replica in range(R)]
    with seeded(0):
        stack.step()
    for name, x in model.named_buffers():
        before = buffers.get(name, x)
        is_written = before.shape == x.shape and not before.equal(x)
        if is_written and name.rpartition(".")[0] not in dropouts:
            raise ParibusError(
                f"a training step writes to the buffer '{name}', but buffers are not saved with "
                "the weights; register it as a parameter",
                code="own_code",
            )
    after, weights = stack.state(0), stack.parameters(0)
    unchanged = _check_update(study, small, stack, start[0], after)
    for neighbour in start[1:]:
        for name, x in neighbour.arrays.items():
            if name.startswith(f"{WEIGHTS}/"):
                x.fill(np.nan)
    stack.restore(start)
    with seeded(1):
        stack.step()
    first = {**after.arrays, **weights}
    again = {**stack.state(0).arrays, **stack.parameters(0)}
    if names := [name for name in first if first[name].tobytes() != again[name].tobytes()]:
        why = (
            f"possibly because custom code{_in_brackets(own)} uses random numbers, keeps state "
            "between calls or mixes replicas (first axis, R); remove this, and use "
            "paribus.extend.Dropout for dropout"
            if own
            else f"because a kernel on '{device}' is not deterministic; use another --device"
        )
        raise ParibusError(
            f"repeating a step from the same state gives different results ({some(names)}), {why}",
            code="own_code" if own else "system",
        )
    for _ in range(GRAPHED_STEPS if device.type == "cuda" and graphs else 0):
        stack.step()
    return weights, unchanged


def _check_update(
    study: Study, setting: Setting, stack: Trainer, before: ReplicaState, after: ReplicaState
) -> list[str]:
    """Return the names of optimizers that changed none of their weights in a step.

    Raises ParibusError if weights are not finite, although the loss and gradient are.
    """
    row = dict(zip(stack.columns, after.arrays[MEASURED][0], strict=False))
    if after.diverged_at is not None:
        return []
    broken = [name for name, x in after.arrays.items() if not np.isfinite(x).all()]
    if weights := [name for name in broken if name.startswith(f"{WEIGHTS}/")]:
        raise ParibusError(
            f"the optimizer's update of {some(weights)} is not finite, although the loss and "
            "gradient are finite; check the update for a division by zero",
            code="own_code",
        )
    unchanged = []
    for group in parameter_groups([setting], stack.replicas.model, study.folder):
        keys = [f"{WEIGHTS}/{name}" for name in group.names]
        is_same = all(np.array_equal(after.arrays[key], before.arrays[key]) for key in keys)
        if is_same and row["learning_rate"] and all(group.factors):
            unchanged.append(group.optimizer.name)
    return unchanged


def _require_shapes(model: GPT, setting: Setting, vocab_size: int) -> None:
    """Raise ParibusError if a module returns a wrong shape, which might broadcast."""
    B, T = ROWS, setting.data.seq_len
    paths = [name for name, _ in model.named_children()]
    paths += [f"blocks.0.{name}" for name, _ in model.blocks[0].named_children()]
    # The next part may fail on a wrong shape. A later step raises any other error again.
    with torch.no_grad(), capture(model, paths) as outputs, suppress(Exception):
        model(torch.zeros(B, T, dtype=torch.long, device=next(model.parameters()).device))
    for path, output in outputs.items():
        wanted = (B, T, vocab_size if path == "head" else setting.model.d_model)
        if (shape := tuple(output.shape)) != wanted:
            raise ParibusError(
                f"the module '{path}' returned shape {shape}, but must return {wanted}; correct "
                "its forward method",
                code="own_code",
            )


def _in_brackets(own: Sequence[str]) -> str:
    return f" ({', '.join(own)})" if own else ""


def repeat_steps(
    study: Study,
    trial: TrialFolder,
    dataset: Dataset,
    device: torch.device,
    steps: int,
    *,
    graphs: bool = True,
) -> dict[str, Any]:
    """Train the first steps of a finished trial again, and compare them with its record.

    Returns a dict. If the machine differs, it contains `elsewhere`, the names of the properties
    that differ, and nothing is compared. Otherwise, it contains `differs_at`, the first step
    (1-based) that differs or None, and `differs`, a description of the difference or "".
    """
    recorded, present = trial.read_json("environment.json"), environment(device, 1)
    elsewhere = [key for key in ("code", *SAME_BITS) if recorded.get(key) != present[key]]
    if elsewhere:
        return {"elsewhere": elsewhere}
    trials = [(arm, seed) for arm, seed in trial.read_json("trial.json")["stack"]]
    settings, seeds = [study.setting(arm) for arm, _ in trials], [seed for _, seed in trials]
    stack = build_stack(study, settings, seeds, dataset, device, strict=False, graphs=graphs)
    for _ in range(steps):
        stack.step()
    columns = trial.read_columns("steps.parquet", list(REPEATED))
    theirs = np.stack([columns[name].to_numpy()[:steps] for name in REPEATED], axis=1)
    measured = stack.history(trials.index((trial.arm, trial.seed))).measured
    ours = measured[:, [list(stack.columns).index(name) for name in REPEATED]]
    for step, pair in enumerate(zip(ours, theirs, strict=False), start=1):
        if not np.array_equal(*pair, equal_nan=True):
            words = f"{' and '.join(REPEATED)} are {pair[0]} now, but {pair[1]} in the record"
            return {"differs_at": step, "differs": words}
    return {"differs_at": None, "differs": ""}
