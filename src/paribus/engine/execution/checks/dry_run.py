"""The dry run: each arm passes it before anything is trained.

Some steps and an evaluated window of it are computed and kept nowhere: what fails, fails now. It
must give equal bits when a step is made twice from one state, and read the past alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from paribus.engine.data import Dataset
from paribus.engine.evaluation import evaluate_on, own_measures, require_equal
from paribus.engine.execution.checks.causality import (
    FEW_ROWS,
    require_causal_reading,
    require_causal_training,
    seeded,
)
from paribus.engine.execution.workers.messages import DryPart
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.memory import free_memory, least_bytes, require_room
from paribus.engine.model import (
    GPT,
    build_model,
    initial_parameters,
    load_parameters,
    require_initializers,
    require_parts,
    undeclared_projections,
    unused_positions,
)
from paribus.engine.observation import is_there
from paribus.engine.probes import study_probes
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training import GRAPHED_STEPS, MEASURED, WEIGHTS, ReplicaState, Trainer
from paribus.engine.training.averages import tried
from paribus.engine.training.groups import parameter_groups
from paribus.engine.training.losses import find_loss
from paribus.engine.training.schedules import Schedules
from paribus.errors import ParibusError
from paribus.study import Study, step_code
from paribus.study.importing import same_settings

# The learning rate of a step, at most: one that throws the weights far shows nothing of the arm, as
# what they round is beyond bounds then. Whether an arm diverges at its rate, its training shows.
TAME_RATE = 1e-2
LOSSES = ("train_loss", "train_objective")
# Two stacks of two replicas, and the states that are compared: so many times what a replica takes.
TWO_TRIED = 8


def dry_run(
    study: Study,
    arm: str,
    dataset: Dataset,
    device: torch.device,
    stack_size: int,
    *,
    graphs: bool = True,
    part: DryPart = "whole",
) -> list[str]:
    """Make steps and evaluate a window of `arm`, in stacks as it will be trained in.

    On a GPU further steps follow, of which one is recorded and replayed. `part` is the steps or
    the reading alone: of an arm without own code, two processes may do them. Returns what the user
    is to be warned of, a line each. Raises ParibusError.
    """
    setting, where = study.setting(arm), f"arm '{arm}'"
    own = step_code(study, arm)
    try:
        if part == "shapes":
            return by_shapes(study, arm, dataset)
        require_room(study, arm, dataset.vocab_size, device)
        warned = _try_course(study, arm) if part != "reading" else []
        with same_settings(f"a step of {where}"):
            model = _built(study, setting, dataset, device)
            trained: Trainer | None = None
            # One replica goes a way of its own; two go the way of all other stacks.
            for R in {1, min(stack_size, 2)} if part != "reading" else ():
                trained = _try_steps(study, arm, dataset, device, R, graphs=graphs)
                warned += [line for line in _not_finite(arm, trained) if line not in warned]
                require_causal_training(
                    where, trained, dataset, gradients=True, brief=True, is_own=bool(own)
                )
            if part != "steps":
                start = initial_parameters(model, setting, seed=0)
                weights = {name: one.value for name, one in start.items()}
                if trained is not None:  # after a step no gain is zero any more
                    weights = trained.parameters(0)
                load_parameters(model, weights)
                require_causal_reading(where, model, setting, dataset, brief=True, is_own=bool(own))
                _try_evaluation(study, model, setting, dataset)
            warned += _try_two(study, arm, dataset, device) if stack_size == 1 else []
        if part == "steps":
            return warned
        return warned + undeclared_projections(model, setting) + unused_positions(model, setting)
    except ParibusError as error:
        raise _of(where, error) from error.__cause__
    except Exception as error:
        raise ParibusError(
            f"{where}{in_brackets(step_code(study, arm))} fails in a dry run of one step: "
            f"{type(error).__name__}: {error}"
        ) from error


def _of(where: str, error: ParibusError) -> ParibusError:
    """Return an error that names its arm."""
    if type(error) is not ParibusError or where in str(error):
        return error
    return ParibusError(f"{where}: {error}")


def by_shapes(study: Study, arm: str, dataset: Dataset) -> list[str]:
    """Try `arm` without computing anything: its parts, optimizer, loss and probes are found and fit
    each other's shapes. For models with which a dry run here would take minutes.

    Returns what the user is to be warned of. Raises ParibusError.
    """
    setting, where = study.setting(arm), f"arm '{arm}'"
    model = build_model(setting, dataset.vocab_size, study.folder, device="meta")
    tokens_BT = torch.zeros(FEW_ROWS, setting.data.seq_len, dtype=torch.int64, device="meta")
    logits = model(tokens_BT)
    expected = (*tokens_BT.shape, dataset.vocab_size)
    if logits.shape != expected:
        raise ParibusError(f"{where} gives logits {tuple(logits.shape)}, and not {expected}")
    parameter_groups([setting], model, study.folder)
    find_loss(setting.training.loss, study.folder)
    warned = _try_course(study, arm)
    for probe in study_probes(study):
        is_there(probe, model, setting)
    return [
        "arms were tried by their shapes alone, as a step here would take minutes: that they give "
        "equal bits when repeated and read the past alone is tried where they are trained",
        *warned,
        *undeclared_projections(model, setting),
        *unused_positions(model, setting),
    ]


def _built(study: Study, setting: Setting, dataset: Dataset, device: torch.device) -> GPT:
    """Return the arm's model, whose initial values do not hang on any generator."""
    model = build_model(setting, dataset.vocab_size, study.folder, constructor_seed=0)
    if setting.own_parts:
        again = build_model(setting, dataset.vocab_size, study.folder, constructor_seed=1)
        require_initializers(model, again, setting)
    model = model.to(device)
    require_parts(model, setting, dataset.vocab_size)
    return model


def _try_course(study: Study, arm: str) -> list[str]:
    """Ask schedules and an average for the whole run. Returns what the user is to be warned of;
    raises ParibusError for a step at which one fails, and for a batch that devices cannot share."""
    setting = study.setting(arm)
    rows_of(setting, study.resources.devices_per_trial or 1)
    Schedules.require(setting, study.folder)
    if tried(setting.training.average, setting.iterations, study.folder):
        return []
    return [
        f"arm '{arm}': training.average = '{setting.training.average.kind}' gives the last weights "
        f"after {setting.iterations:,} steps: it changes nothing of what is evaluated at the end"
    ]


def _not_finite(arm: str, stack: Trainer) -> list[str]:
    """Return a warning of an arm whose first step has no finite objective."""
    losses = [c for c, name in enumerate(stack.columns) if name in LOSSES]
    if np.isfinite(stack.history(0).measured[:1, losses]).all():
        return []
    return [f"arm '{arm}': the loss of its first step is not finite; its trials would diverge"]


def _try_steps(
    study: Study, arm: str, dataset: Dataset, device: torch.device, R: int, *, graphs: bool
) -> Trainer:
    """R replicas of `arm` after some steps of few rows, which gave equal bits when repeated."""
    setting = study.setting(arm)
    tame = min(setting.training.optimizer.learning_rate, TAME_RATE)
    optimizer = setting.training.optimizer.model_copy(update={"learning_rate": tame})
    small = setting.training.model_copy(update={"batch_size": FEW_ROWS, "optimizer": optimizer})
    tiny = setting.model_copy(update={"training": small})
    stack = build_stack(study, tiny, range(R), dataset, device, graphs=graphs)
    other = stack
    if R > 1 or step_code(study, arm):
        other = build_stack(study, tiny, range(R), dataset, device, graphs=graphs)
    start = states(stack)
    after = _require_repeatable(study, arm, stack, other, device)
    if R > 1:
        require_apart(f"arm '{arm}'", step_code(study, arm), other, start, after)
    if study.probes.own:
        bare = Trainer(tiny, range(R), dataset, folder=study.folder, device=device)
        _require_untouched(study, stack, bare)
    if device.type == "cuda" and graphs:
        for _ in range(GRAPHED_STEPS):
            stack.step()
    return stack


def _try_two(study: Study, arm: str, dataset: Dataset, device: torch.device) -> list[str]:
    """Two replicas beside each other, of an arm with own code that is given an axis of them.

    Alone, a replica is all there is to normalise over: with it the same code would pass, or not, by
    the size of the stack. Modules are not given that axis; one that works alone and cannot be
    mapped over it is no fault of a stack of one. Raises ParibusError where replicas are mixed;
    returns what could not be tried, a line or none.
    """
    setting = study.setting(arm)
    modules = setting.model.modules.named.values()
    own = [path for path in step_code(study, arm) if path not in modules]
    if not own:
        return []
    try:
        needed = TWO_TRIED * least_bytes(setting, dataset.vocab_size, study.folder)
        free = free_memory(device)
        if free is not None and needed > free:
            raise MemoryError(f"they take {needed / 2**30:.1f} GiB")
        _try_steps(study, arm, dataset, device, 2, graphs=False)
    except ParibusError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        return [
            f"arm '{arm}': two replicas could not be tried side by side ({why}); that own code"
            f"{in_brackets(own)} does not mix them is not shown"
        ]
    return []


def _try_evaluation(study: Study, model: GPT, setting: Setting, dataset: Dataset) -> None:
    """Evaluate a full window and a shorter one, such as the end of a text and short questions."""
    seq_len = setting.data.seq_len
    window = dataset.validation[: seq_len + seq_len // 2 + 1]
    precision = study.evaluation.precision
    evaluate_on(model, dataset, window, seq_len, precision=precision)
    if study.evaluation.own:
        own = own_measures(study.evaluation.own, study.folder)
        first, again = (
            evaluate_on(model, dataset, window, seq_len, own, precision) for _ in range(2)
        )
        require_equal(own, first, again)
        for measure in own:
            measure.drawn(seq_len)  # raises for what cannot be drawn


def _require_repeatable(
    study: Study, arm: str, stack: Trainer, other: Trainer, device: torch.device
) -> list[ReplicaState]:
    """Return the states of a stack after a step.

    Two fresh stacks make it, where there is an `other`, then the first makes it again from its
    state; the generators that a module could draw from start elsewhere each time. `stack` has made
    one step at the end. Raises ParibusError where the bits are not the same each time.
    """
    start, buffers = states(stack), _buffers(stack)
    first: list[ReplicaState] = []
    other_bits: list[str] = []
    for seed, one in enumerate((stack, other, stack) if other is not stack else (stack, stack)):
        if first:
            one.restore(start)
        with seeded(seed):
            one.step()
        # Of a large model a state takes gigabytes: no more than three are held.
        if first:
            other_bits = other_bits or differing(first, states(one))
        else:
            first = states(one)
    written = [n for n, value in _buffers(stack).items() if not _same(buffers.get(n), value)]
    if written:
        raise ParibusError(
            f"arm '{arm}': a step of training writes the buffer {some(written)}; buffers are not "
            "kept with the weights, so an evaluation would not see what is in them: state that "
            "training changes must be a parameter"
        )
    if other_bits:
        own = in_brackets(step_code(study, arm))
        why = (
            f"own code{own} draws random numbers, or keeps something between calls; for "
            "dropout take paribus.extend.Dropout"
            if own
            else f"no code of yours runs in it, so a kernel of this device ({device}) adds up "
            "in no fixed order, and no trial could be repeated: train on another device"
        )
        raise ParibusError(
            f"arm '{arm}': a step made twice from the same state gives other bits "
            f"({some(other_bits)}); {why}"
        )
    return first


def _require_untouched(study: Study, probed: Trainer, bare: Trainer) -> None:
    """Raise ParibusError where a step with probes gave other bits than one without."""
    bare.step()
    changed = [n for n in differing(states(probed), states(bare)) if n != MEASURED]
    if changed:
        raise ParibusError(
            f"a probe of probes.own = {list(study.probes.own)} changes the training "
            f"({some(changed)}); a probe must not write to what it sees"
        )


def _buffers(stack: Trainer) -> dict[str, torch.Tensor]:
    named = stack.replicas.model.named_buffers()
    return {name: buffer.detach().clone() for name, buffer in named}


def _same(before: torch.Tensor | None, after: torch.Tensor) -> bool:
    """Tell whether a buffer was left as it was; a table may grow with the text."""
    return before is None or before.shape != after.shape or before.equal(after)


AT_ONCE = 2**24  # bytes that are compared


def require_apart(
    where: str,
    own: Sequence[str],
    stack: Trainer,
    start: list[ReplicaState],
    after: list[ReplicaState],
) -> None:
    """Raise ParibusError where a step of the first replica follows what the others are, or the
    weights that are evaluated of it afterwards.

    Those have their weights turned round, and then none that is finite. `after` is where a step
    from `start` led; `own` is the code that a step runs, for the error.
    """
    stack.restore(after)
    evaluated = stack.parameters(0)
    for factor in (-1, np.nan):
        others = [replace(one, arrays=_scaled(one, factor)) for one in start[1:]]
        stack.restore([start[0], *others])
        stack.step()
        found = differing(after[:1], [stack.state(0)])
        now = stack.parameters(0)
        found += [name for name in now if not _same_bits(evaluated[name], now[name])]
        if found:
            raise ParibusError(
                f"{where}: what one replica of a stack computes follows its neighbours "
                f"({some(found)}); own code{in_brackets(own)} works over the first axis, "
                "R, of which every row is a trial of its own: let it work within each row, "
                "whatever --stack is"
            )


def states(stack: Trainer) -> list[ReplicaState]:
    """Return what each replica goes on from."""
    return [stack.state(replica) for replica in range(len(stack.seeds))]


def differing(ours: list[ReplicaState], theirs: list[ReplicaState]) -> list[str]:
    """Names of the arrays that differ in some replica."""
    return [
        name
        for name in ours[0].arrays
        if any(
            not _same_bits(a.arrays[name], b.arrays[name])
            for a, b in zip(ours, theirs, strict=True)
        )
    ]


def _same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Also of numbers that are not equal to themselves."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    one, other = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (ours, theirs))
    return all(
        np.array_equal(one[start : start + AT_ONCE], other[start : start + AT_ONCE])
        for start in range(0, len(one), AT_ONCE)
    )


def some(names: list[str]) -> str:
    """Return the first of them, and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def in_brackets(own: Sequence[str]) -> str:
    """Import paths of own code, where there is any."""
    return f" ({', '.join(own)})" if own else ""


def _scaled(state: ReplicaState, factor: float) -> dict[str, np.ndarray]:
    """Its arrays, with other weights."""
    return {
        name: np.asarray(np.float32(factor) * values) if name.startswith(f"{WEIGHTS}/") else values
        for name, values in state.arrays.items()
    }
