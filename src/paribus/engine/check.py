"""The one place that looks for mistakes in a user's own parts, before anything is trained.

1. Every part of every arm is built, called and refused if it fails or gives another shape or type.
2. Schedules and averages are asked for every step of the run.
3. Each arm makes a step: weights that become NaN are refused, weights that stay are warned of.
4. The step is repeated from the same state, by the same stack and by a second one: equal bits.
5. A replica must not depend on its neighbours.
6. Losses, probes, averages and parts must not write to what they are given.
7. A later token or another row must not change a prediction: in training, evaluation and decoding.
8. A window is evaluated twice with the user's measures: equal numbers.
9. Trained models are tested as in 7 before they are recorded.
10. The first steps of one trial are repeated in a new process: equal records.

It looks for mistakes, not for intent. Sources are recorded at registration and with every trial.

Axes: R replicas, B batch, T time, D model, V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paribus.engine.data import Dataset, batch
from paribus.engine.evaluation import causality, evaluate_on, own_measures
from paribus.engine.evaluation.causality import seeded
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.environment import environment
from paribus.engine.machine.memory import require_room
from paribus.engine.model import (
    GPT,
    build_model,
    load_parameters,
    require_initializers,
    undeclared_projections,
)
from paribus.engine.model.uses import PLACES as STANDS
from paribus.engine.observation import has_modules
from paribus.engine.probes import study_probes
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training import GRAPHED_STEPS, MEASURED, WEIGHTS, ReplicaState, Trainer
from paribus.engine.training.averages import Averaging, find_average
from paribus.engine.training.groups import parameter_groups
from paribus.engine.training.losses import find_loss
from paribus.engine.training.schedules import Schedules
from paribus.errors import ParibusError
from paribus.numbers import some
from paribus.results import TrialFolder
from paribus.results.software import SAME_BITS
from paribus.study import Study, step_code
from paribus.study.importing import same_settings

ROWS = 2  # of the batches that are tried
TAME_RATE = 1e-2  # a larger learning rate amplifies rounding beyond any tolerance
MOST_AVERAGED = 100_000  # steps at which an average is tried; they take two seconds
BLOCK_SITES = {"block_norm": "attention_norm", "attention": "attention", "mlp": "mlp"}
REPEATED = ("train_loss", "grad_norm")  # columns that are compared


def check_arm(
    study: Study,
    arm: str,
    dataset: Dataset,
    device: torch.device,
    stack_size: int,
    *,
    graphs: bool = True,
    by_shapes: bool = False,
) -> list[str]:
    """Try a step and an evaluated window of `arm`, in stacks like those that it is trained in.

    Args:
        graphs: whether a GPU's steps are recorded; then one is recorded and replayed here.
        by_shapes: compute nothing, for models with which a step here would take minutes.

    Returns warnings, a line each. Raises ParibusError for what cannot be trained.
    """
    tried = _Arm(study, study.setting(arm), f"arm '{arm}'", step_code(study, arm), dataset, device)
    setting = tried.setting
    try:
        tried.check_course()
        if by_shapes:
            model, warnings = tried.check_shapes()
        else:
            require_room(study, arm, dataset.vocab_size, device)
            with same_settings(f"a step of {tried.where}"):
                model, warnings = tried.check_steps(stack_size, graphs)
        return [*warnings, *undeclared_projections(model, setting)]
    except ParibusError as error:
        if type(error) is not ParibusError or tried.where in str(error):
            raise
        own = _in_brackets([path for path in tried.own if path not in str(error)])
        raise ParibusError(f"{tried.where}{own}: {error}", code=error.code) from error.__cause__
    except Exception as error:
        raise ParibusError(
            f"{tried.where}{_in_brackets(tried.own)} fails in a dry run of one step: "
            f"{type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True)
class _Arm:
    """An arm that is checked; `own` are the import paths of the user's code that a step runs."""

    study: Study
    setting: Setting
    where: str
    own: Sequence[str]
    dataset: Dataset
    device: torch.device

    def check_course(self) -> None:
        """Evaluate the schedules and the weight average at every step, without training."""
        setting, folder = self.setting, self.study.folder
        rows_of(setting, self.study.resources.devices)
        Schedules.require(setting, folder)
        average, steps = find_average(setting.training.average, folder), setting.iterations
        if average is None or steps > MOST_AVERAGED:
            return
        weights = Rows(torch.zeros(1, 2), {"tried": torch.Size([2])})
        averaging = Averaging(average, steps, weights)
        for done in range(1, steps + 1):
            weights.flat.fill_(done)
            with _unchanged([weights.flat], f"training.average: average '{average[0].name}'"):
                averaging.take(done, weights)
        averaging.evaluated(steps, weights)

    def check_shapes(self) -> tuple[GPT, list[str]]:
        """Find all parts and fit their shapes together. Returns (the model, warnings)."""
        setting, study, vocab_size = self.setting, self.study, self.dataset.vocab_size
        model = build_model(setting, vocab_size, study.folder, device="meta")
        tokens_BT = torch.zeros(ROWS, setting.data.seq_len, dtype=torch.int64, device="meta")
        shape, expected = model(tokens_BT).shape, (*tokens_BT.shape, vocab_size)
        if shape != expected:
            raise ParibusError(f"{self.where} gives logits {tuple(shape)}, and not {expected}")
        parameter_groups([setting], model, study.folder)
        find_loss(setting.training.loss, study.folder)
        for probe in study_probes(study):
            has_modules(probe, model, setting)
        return model, [
            "arms were tried by their shapes alone, as a step here would take minutes: that they "
            "give equal bits when repeated and read the past alone is tried where they are trained"
        ]

    def check_steps(self, stack_size: int, graphs: bool) -> tuple[GPT, list[str]]:
        """Make steps and evaluate a window. Returns (the model, warnings)."""
        setting, folder, vocab_size = self.setting, self.study.folder, self.dataset.vocab_size
        model = build_model(setting, vocab_size, folder, constructor_seed=0)
        if setting.own_parts:
            again = build_model(setting, vocab_size, folder, constructor_seed=1)
            require_initializers(model, again, setting)
        _check_parts(model.to(self.device), setting, vocab_size)
        stack, warnings = self.check_stack(1, graphs)
        modules = setting.model.modules.named.values()
        beside = [path for path in self.own if path not in modules]
        if stack_size > 1:
            stack, warnings_of_two = self.check_stack(2, graphs)
            warnings += warnings_of_two
        elif beside:
            # These are given the axis R: whether they pass must not depend on the stack's size.
            try:
                self.check_stack(2, graphs=False)
            except ParibusError:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}".partition("\n")[0]
                warnings.append(
                    f"{self.where}: two replicas could not be tried side by side ({why}); that "
                    f"own code{_in_brackets(beside)} does not mix them is not shown"
                )
        load_parameters(model, stack.parameters(0))  # after a step no gain is zero any more
        rows = causality.dry_rows(setting.data.seq_len)
        causality.require_causal(self.where, model, setting, self.dataset, rows=rows)
        self.check_evaluation(model)
        return model, list(dict.fromkeys(warnings))

    def check_stack(self, R: int, graphs: bool) -> tuple[Trainer, list[str]]:
        """Make a step of R replicas and check it. Returns (the stack after it, warnings)."""
        setting, study, device = self.setting, self.study, self.device
        rate = min(setting.training.optimizer.learning_rate, TAME_RATE)
        optimizer = setting.training.optimizer.model_copy(update={"learning_rate": rate})
        training = setting.training.model_copy(update={"batch_size": ROWS, "optimizer": optimizer})
        small = setting.model_copy(update={"training": training})

        probes = [
            replace(probe, measure=_unwriting(probe.measure, f"probe '{probe.name}'"))
            for probe in study_probes(study)
        ]
        stack, *copies = (
            build_stack(study, small, range(R), self.dataset, device, graphs=graphs, probes=probes)
            for _ in range(2 if self.own else 1)
        )
        loss = stack.replicas.loss
        measure = _unwriting(loss.declared.measure, f"loss '{loss.declared.name}'")
        stack.replicas.loss = replace(loss, declared=loss.declared(measure))
        start = _states(stack)
        after = self.repeated_step([stack, *copies], start)
        warnings = self.check_update(small, stack, start[0], after[0])
        if R > 1:
            self.require_apart(stack, start, after)
        for _ in range(GRAPHED_STEPS if device.type == "cuda" and graphs else 0):
            stack.step()
        self.require_causal_training(stack)
        return stack, warnings

    def repeated_step(
        self, stacks: Sequence[Trainer], start: list[ReplicaState]
    ) -> list[ReplicaState]:
        """Return the states after a step that every stack makes, and the first one makes again.

        Global generators start elsewhere each time. The first stack is left after the step.
        """
        first, after = stacks[0], list[ReplicaState]()
        buffers = {name: x.clone() for name, x in first.replicas.model.named_buffers()}
        for seed, stack in enumerate((*stacks, first)):
            if after:
                stack.restore(start)
            with seeded(seed):
                stack.step()
            states = _states(stack)
            for name, x in stack.replicas.model.named_buffers():
                before = buffers.get(name, x)
                if before.shape == x.shape and not before.equal(x):
                    raise ParibusError(
                        f"{self.where}: a step of training writes the buffer {name}; buffers are "
                        "not kept with the weights, so an evaluation would not see what is in it: "
                        "state that training changes must be a parameter"
                    )
            if after and (names := _differing(after, states)):
                why = (
                    f"own code{_in_brackets(self.own)} draws random numbers, or keeps something "
                    "between calls; for dropout use paribus.extend.Dropout"
                    if self.own
                    else f"no code of yours runs in it, so a kernel of this device ({self.device}) "
                    "adds up in no fixed order, and no trial could be repeated: train on another "
                    "device"
                )
                raise ParibusError(
                    f"{self.where}: a step made twice from the same state gives other bits "
                    f"({some(names)}); {why}"
                )
            after = after or states
        return after

    def check_update(
        self, setting: Setting, stack: Trainer, before: ReplicaState, after: ReplicaState
    ) -> list[str]:
        """Raise ParibusError if an optimizer makes weights NaN. Warn of one that changes no weight,
        and of a loss that is not finite."""
        row = dict(zip(stack.columns, after.arrays[MEASURED][0], strict=False))
        if not np.isfinite([row["train_loss"], row.get("train_objective", 0.0)]).all():
            return [f"{self.where}: the loss of its first step is not finite; its trials diverge"]
        if after.diverged_at is not None or row.get("skipped_steps") or not row["learning_rate"]:
            return []
        warnings = []
        for group in parameter_groups([setting], stack.replicas.model, self.study.folder):
            keys = [f"{WEIGHTS}/{name}" for name in group.names]
            subject = f"{self.where}: the first step of optimizer '{group.optimizer.name}'"
            if broken := [key for key in keys if not np.isfinite(after.arrays[key]).all()]:
                raise ParibusError(
                    f"{subject} makes {some(broken)} not finite, though loss and gradient are: "
                    "look for a division by zero or a root of a negative number",
                    code="own_code",
                )
            is_still = all((after.arrays[key] == before.arrays[key]).all() for key in keys)
            if is_still and all(group.factors) and not group.schedule:
                warnings.append(f"{subject} changes no weight; let it write to update.weights")
        return warnings

    def require_apart(
        self, stack: Trainer, start: list[ReplicaState], after: list[ReplicaState]
    ) -> None:
        """Raise ParibusError if the first replica's step, or the weights that are evaluated after
        it, change when its neighbours' weights are NaN. The stack is left as `after` says."""
        stack.restore(after)
        evaluated = stack.parameters(0)
        neighbours = []
        for state in start[1:]:
            weights = [(n, x) for n, x in state.arrays.items() if n.startswith(f"{WEIGHTS}/")]
            broken = {name: np.full_like(x, np.nan) for name, x in weights}
            neighbours.append(replace(state, arrays={**state.arrays, **broken}))
        stack.restore([start[0], *neighbours])
        stack.step()
        names, now = _differing(after[:1], [stack.state(0)]), stack.parameters(0)
        names += [name for name in now if evaluated[name].tobytes() != now[name].tobytes()]
        if names:
            raise ParibusError(
                f"{self.where}: what one replica of a stack computes follows its neighbours "
                f"({some(names)}); own code{_in_brackets(self.own)} works over the first axis, R, "
                "of which every row is a trial of its own: let it work within each row, whatever "
                "--stack is"
            )
        stack.restore(after)

    def require_causal_training(self, stack: Trainer) -> None:
        """Raise NotCausalError if logits in training follow a later token or another row."""
        setting, dataset, R = self.setting, self.dataset, len(stack.seeds)

        def read(tokens_BT: Tensor) -> Tensor:
            with torch.enable_grad():
                tokens_RBT = tokens_BT.reshape(R, -1, tokens_BT.shape[1])
                return stack.logits(tokens_RBT, mixed=False)[0].detach().flatten(0, 1)

        shape = (causality.dry_rows(setting.data.seq_len), setting.data.seq_len, dataset.windows)
        batches = [batch(dataset.train, seed, stack.t, *shape) for seed in stack.seeds]
        tokens_BT = torch.from_numpy(np.concatenate(batches)[:, :-1].copy()).to(self.device)
        causality.require_no_leak(
            read, tokens_BT, setting, dataset.vocab_size, self.where, "training"
        )

    def check_evaluation(self, model: GPT) -> None:
        """Evaluate a full window and a shorter one, twice if the user has measures of their own."""
        evaluation, seq_len = self.study.evaluation, self.setting.data.seq_len
        window = self.dataset.validation[: seq_len + seq_len // 2 + 1]
        own, values = own_measures(evaluation.own, self.study.folder), dict[Any, str]()
        for _ in range(2 if own else 1):
            result = evaluate_on(
                model, self.dataset, window, seq_len, own, evaluation.precision, strict=True
            )
            for row in result.rows:
                value = repr(row.value)
                if values.setdefault((row.measure, row.part), value) != value:
                    raise ParibusError(
                        f"measure '{row.measure}' gives other numbers when it is called again: it "
                        "draws random numbers, or keeps something between calls"
                    )


def _states(stack: Trainer) -> list[ReplicaState]:
    return [stack.state(replica) for replica in range(len(stack.seeds))]


def _differing(ours: list[ReplicaState], theirs: list[ReplicaState]) -> list[str]:
    """Return the names of the arrays that differ in some replica."""
    pairs = list(zip(ours, theirs, strict=True))
    return [
        name
        for name in ours[0].arrays
        if any(a.arrays[name].tobytes() != b.arrays[name].tobytes() for a, b in pairs)
    ]


def _in_brackets(own: Sequence[str]) -> str:
    return f" ({', '.join(own)})" if own else ""


@contextmanager
def _unchanged(values: object, owner: str) -> Iterator[None]:
    """Raise ParibusError if a tensor among `values` was written to inside."""
    tensors = list(_tensors(values))
    versions = [tensor._version for tensor in tensors]
    yield
    if versions != [tensor._version for tensor in tensors]:
        raise ParibusError(
            f"{owner} writes to what it is given; let it write to a copy", code="own_code"
        )


def _unwriting(function: Callable[..., Any], owner: str) -> Callable[..., Any]:
    """Wrap `function` to raise ParibusError if it writes to a tensor among its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with _unchanged((args, options), owner):
            return function(*args, **options)

    return call


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in arguments of a part."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Rows):
        yield from value.tensors
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value):
        yield from _tensors(tuple(getattr(value, field.name) for field in fields(value)))


@torch.no_grad()
def _check_parts(model: GPT, setting: Setting, vocab_size: int) -> None:
    """Read a window and raise ParibusError for a custom module that gives another shape or type, or
    writes to a parameter or its input. The model is left as it was."""
    T, D, mode = setting.data.seq_len, setting.model.d_model, model.training
    shapes = {"head": (ROWS, T, vocab_size), "positions": (T, D)}
    tokens_BT = torch.zeros(ROWS, T, dtype=torch.long, device=next(model.parameters()).device)

    def check(
        site: str, where: str, forward: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        with _unchanged([*args, *model.parameters()], where):
            result = forward(*args, **options)
        wanted: Any = torch.empty(shapes.get(site, (ROWS, T, D)), device="meta")
        if site == "positions" and len(args) > 1:  # queries and keys as they were
            wanted = args[:2]
        elif site == "head" and isinstance(result, Tensor) and result.is_floating_point():
            wanted = wanted.to(result.dtype)
        if _described(result) != _described(wanted):
            raise ParibusError(
                f"{where} gives {_described(result)} and must give {_described(wanted)}",
                code="own_code",
            )
        return result

    with ExitStack() as undo:
        undo.callback(model.train, mode)
        for site, path in setting.model.modules.named.items():
            if site == "positions":
                part = next((m for m in model.modules() if getattr(m, "stands", 0) in STANDS), None)
            else:
                at = f"blocks.0.{BLOCK_SITES[site]}" if site in BLOCK_SITES else site
                part = model.get_submodule(at)
            if part is not None:
                where = f"model.modules.{site} = '{path}'"
                part.forward = functools.partial(check, site, where, part.forward)
                undo.callback(part.__dict__.pop, "forward")
        model.eval()(tokens_BT)


def _described(value: object) -> str:
    """Return shape and type of a tensor, or of several."""
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_described, value))})"
    return type(value).__name__


def repeat_steps(
    study: Study,
    trial: TrialFolder,
    dataset: Dataset,
    device: torch.device,
    steps: int,
    *,
    graphs: bool = True,
) -> tuple[list[str], int | None, str]:
    """Train the first steps of a finished trial again, in the stack that it was trained in.

    Returns (what of the machine is another, so that nothing was compared; the first step that
    differs from the record, from 1; what differs there).
    """
    recorded, present = trial.read_json("environment.json"), environment(device, 1)
    elsewhere = [key for key in ("code", *SAME_BITS) if recorded.get(key) != present[key]]
    if elsewhere:
        return elsewhere, None, ""
    trials = [(arm, seed) for arm, seed in trial.read_json("trial.json")["stack"]]
    settings, seeds = [study.setting(arm) for arm, _ in trials], [seed for _, seed in trials]
    stack = build_stack(study, settings, seeds, dataset, device, strict=False, graphs=graphs)
    for _ in range(steps):
        stack.step()
    measured = stack.history(trials.index((trial.arm, trial.seed))).measured
    ours = measured[:, [list(stack.columns).index(name) for name in REPEATED]]
    table = trial.read_columns("steps.parquet", list(REPEATED))
    columns = [table[name].to_numpy()[: len(ours)] for name in REPEATED]
    theirs = np.stack(columns, axis=1).astype(ours.dtype)
    differs = np.argwhere((ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs)))
    for step, column in differs[:1].tolist():
        name, again, first = REPEATED[column], ours[step, column], theirs[step, column]
        return [], step + 1, f"{name} {again:.9g}, and {first:.9g} is recorded"
    return [], None, ""
