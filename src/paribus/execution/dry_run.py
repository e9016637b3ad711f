"""What an arm must pass before anything is trained: a step and an evaluated window of it."""

from __future__ import annotations

import torch

from paribus.data import Dataset
from paribus.errors import ParibusError
from paribus.execution.memory import require_room
from paribus.execution.record import predict_on
from paribus.execution.trial import build_stack
from paribus.model import (
    build_model,
    load_parameters,
    require_initializers,
    undeclared_projections,
)
from paribus.study import Study
from paribus.training import MEASURED, Stack

GRAPHED_STEPS = 3  # the first of a kind of steps runs as it is written, the second is recorded


def dry_run(
    study: Study,
    arm: str,
    dataset: Dataset,
    device: torch.device,
    stack_size: int,
    *,
    graphs: bool = True,
) -> list[str]:
    """A step and an evaluated window of `arm`, kept nowhere: what fails, fails now.

    On a GPU further steps follow, of which one is recorded and replayed. Returns what the user is
    to be warned of, a line each. Raises ParibusError.
    """
    setting = study.setting(arm)
    require_room(setting, dataset.vocab_size, device, arm)
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
        stack = build_stack(study, tiny, seeds, dataset, device, graphs=graphs)
        stack.step()
        if study.probes.own:
            bare = Stack(tiny, seeds, dataset, folder=study.folder, device=device)
            _require_untouched(study, stack, bare)
        if device.type == "cuda" and graphs:
            for _ in range(GRAPHED_STEPS):
                stack.step()
        load_parameters(model, stack.parameters(0))
        # A full window and a shorter one, which the end of a text and short questions are.
        window = dataset.validation[: setting.data.seq_len + setting.data.seq_len // 2 + 1]
        predict_on(model.to(device), dataset, window, setting.data.seq_len)
        return undeclared_projections(model, setting)
    except ParibusError:
        raise
    except Exception as error:
        raise ParibusError(
            f"arm '{arm}' fails in a dry run of one step: {type(error).__name__}: {error}"
        ) from error


def _require_untouched(study: Study, probed: Stack, bare: Stack) -> None:
    """Raise ParibusError where a step with probes gave other bits than one without."""
    bare.step()
    for replica in range(len(bare.seeds)):
        ours, theirs = probed.state(replica), bare.state(replica)
        for name, values in ours.arrays.items():
            if name != MEASURED and values.tobytes() != theirs.arrays[name].tobytes():
                raise ParibusError(
                    f"a probe of probes.own = {list(study.probes.own)} changes the "
                    f"training ({name}); a probe must not write to what it sees"
                )
