"""One model over many devices, for a trainer that knows no difference (FSDP2, Zhao et al. 2023).

Each rank holds its slice of every parameter, gradient and slot of the optimizer, and learns from
its rows of every batch. PyTorch's `fully_shard` gathers a block's weights before it is computed and
adds up its gradients after. What a rank draws, updates and saves is the slice that a single device
would have at that place, so that any number of ranks trains the same model, up to rounding.

Products are in the precision of the study by autocast, from float32 weights, as one device computes
them: what is gathered is float32 too.

Axes: R replicas (one), B batch, T time, V vocabulary, S ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from paribus.engine.model import build_model, initial_parameters, parameter_uses
from paribus.engine.model.build import shapes_of
from paribus.engine.observation import capture
from paribus.engine.rows import Shards
from paribus.engine.setting import Setting, rows_of
from paribus.engine.training.averages import find_average
from paribus.engine.training.groups import (
    DECAY,
    MOMENTUM,
    ParameterGroup,
    optimizer_record,
    parameter_groups,
    step,
)
from paribus.engine.training.losses import find_loss
from paribus.engine.training.optimizers import Update
from paribus.engine.training.prefetch import Inputs
from paribus.engine.training.ranks import Ranks
from paribus.engine.training.replicas import (
    BACKWARD,
    FORWARD,
    ForwardBackward,
    OnPhase,
    TrainedModel,
    losses_of,
    lower_products,
    mean_of,
    require_auxiliaries,
)
from paribus.engine.training.schedules import scheduled_columns
from paribus.engine.training.state import WEIGHTS
from paribus.errors import ParibusError

# Logits of a compiled product are a view; nobody writes to them, which losses are held to.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module", category=UserWarning)

TRIED = 64  # numbers of a row that an optimizer is tried on
TOLERANCE = 1e-6


class ShardedReplica(TrainedModel):
    """One replica over the devices of `ranks`: what `Replicas` is to a stack, with R = 1.

    Args:
        setting: of the trial.
        folder: where import paths of the user's own parts start.
        ranks: who trains it.
        checkpointing: whether a block keeps what enters it alone, and is computed again in the
            backward pass (Chen et al. 2016).
        compiles: whether blocks are compiled by `torch.compile`; None is where ranks are GPUs.

    Attributes:
        those of `Replicas`; `weights` and `slots` are what this rank holds.

    Raises ParibusError for an optimizer that needs whole matrices, or whole rows of numbers.
    """

    def __init__(
        self,
        setting: Setting,
        seed: int,
        vocab_size: int,
        folder: Path | None,
        ranks: Ranks,
        *,
        checkpointing: bool = False,
        compiles: bool | None = None,
    ) -> None:
        self._ranks, self._device = ranks, ranks.device
        self._checkpointing = checkpointing
        self._rows = rows_of(setting, ranks.size)
        self._micro_batch = min(setting.training.micro_batch or self._rows, self._rows)
        self._lower = lower_products(setting.training.precision)
        self.loss = find_loss(setting.training.loss, folder)

        # A user's constructor and `init_parameter` may look at values, so these models have some.
        whole = build_model(setting, vocab_size, folder) if setting.model.modules.named else None
        model = shapes_of(setting, vocab_size, folder)
        if whole is not None:
            _take_buffers(model, whole)
        if model.shares or self.loss.takes_shared:
            raise ParibusError(
                "parts and losses that take `shared` are of trials on one device; leave "
                "resources.devices_per_trial out"
            )
        self.auxiliaries = model.auxiliaries
        require_auxiliaries(setting, self.auxiliaries)
        groups = parameter_groups([setting], model, folder)
        require_shardable(groups)
        if find_average(setting.training.average, folder):
            raise ParibusError(
                f"training.average.kind = '{setting.training.average.kind}' is of trials on one "
                "device; leave resources.devices_per_trial or training.average out"
            )
        self.optimizer_record = optimizer_record(groups, model)
        self._shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
        self.model = self._sharded(
            model.train(), device=self._device, compiles=compiles, checkpointing=checkpointing
        )
        self._parameters: dict[str, Any] = dict(self.model.named_parameters())
        self.initial_records = [self._draw(whole or model, setting, seed)]
        super().__init__(self.model, groups)
        self._scheduled = scheduled_columns(setting.training)
        self._slots = {
            slot: {
                name: torch.zeros_like(self._parameters[name].to_local()).detach()
                for group in groups
                if slot in group.optimizer.slots
                for name in group.names
            }
            for slot in dict.fromkeys(slot for group in groups for slot in group.optimizer.slots)
        }
        self.shapes = {
            f"{kind}/{name}": self._shapes[name]
            for kind, rows in {WEIGHTS: self._shapes, **self._slots}.items()
            for name in rows
        }

    def _sharded(
        self, model: nn.Module, *, device: torch.device, compiles: bool | None, checkpointing: bool
    ) -> Any:
        """Shard `model`, of which parameters have shapes alone, block by block."""
        about: dict[str, Any] = {
            "mesh": self._ranks.mesh,
            "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32),
            # Alone, nobody has what would be gathered again.
            "reshard_after_forward": self._ranks.size > 1,
        }
        blocks: Any = model.blocks
        for block in blocks:
            if checkpointing:
                again = {"use_reentrant": False, "preserve_rng_state": False}
                block.forward = partial(checkpoint, block.forward, **again)
            if compiles if compiles is not None else device.type == "cuda":
                block.forward = torch.compile(block.forward)
            fully_shard(block, **about)
        fully_shard(model, **about)
        buffers = {name: buffer.to(device) for name, buffer in model.named_buffers()}
        model.to_empty(device=device)
        for name, buffer in buffers.items():
            owner, _, local = name.rpartition(".")
            setattr(model.get_submodule(owner), local, buffer)
        return model

    @torch.no_grad()
    def _draw(self, whole: nn.Module, setting: Setting, seed: int) -> dict[str, dict[str, object]]:
        """Draw every parameter by its name, keep this rank's slice, and return the records of all;
        one at a time is whole, on the host. Rank 0 alone has the digests."""
        uses, records = parameter_uses(whole), {}
        for name in self._shapes:
            (drawn,) = initial_parameters(whole, setting, seed, [name], uses).values()
            self._write(name, torch.from_numpy(drawn.value), WEIGHTS)
            records[name] = drawn.record if self._ranks.is_first else {}
        return records

    def _write(self, name: str, whole: Tensor, kind: str) -> None:
        """Keep this rank's slice of a parameter, or of what an optimizer keeps for it."""
        here = self._local(name) if kind == WEIGHTS else self._slots[kind][name]
        here.copy_(whole[self.place(name)])

    def place(self, name: str) -> slice:
        """Return which rows of a parameter this rank holds: those of `torch.chunk`, as FSDP has
        them."""
        n, S = self._shapes[name][0], self._ranks.size
        each = -(-n // S)
        return slice(min(self._ranks.rank * each, n), min((self._ranks.rank + 1) * each, n))

    def _local(self, name: str) -> Tensor:
        return self._parameters[name].to_local().detach()

    @property
    def weights(self) -> Shards:
        """What this rank holds of them, by parameter name; views, which `update` writes to."""
        return Shards({name: self._local(name)[None] for name in self._parameters})

    @property
    def slots(self) -> dict[str, Shards]:
        """The same of what the optimizer keeps, by name."""
        return {
            slot: Shards({name: part[None] for name, part in parts.items()})
            for slot, parts in self._slots.items()
        }

    def own(self, windows: Tensor) -> Tensor:
        """Return this rank's rows of [R, B, ...]."""
        return windows[:, self._ranks.part(windows.shape[1])]

    def forward_backward(
        self,
        inputs: Inputs,
        tapped: Sequence[str],
        on_phase: OnPhase,
        scales_R: Tensor | None = None,
    ) -> ForwardBackward:
        """Return loss and gradient of the whole batch, and outputs of the modules at the `tapped`
        paths for this rank's rows.

        In parts of `micro_batch` sequences; each part's gradients are added up over all ranks, so
        that none ever holds a whole gradient.
        """
        on_phase(FORWARD)
        mine = self.own(inputs.windows).long()
        pieces = mine.split(self._micro_batch, dim=1)
        first = self._ranks.rank * self._rows
        losses, objectives, outputs = [], [], []
        self.model.zero_grad(set_to_none=True)
        for number, windows in enumerate(pieces):
            if number:
                on_phase(FORWARD)
            self._set_first(first + number * self._micro_batch)
            tokens_BT = windows[0, :, :-1].clone(memory_format=torch.contiguous_format)
            # A block that is computed again has to be looked at again.
            with capture(self.model, tapped) as seen:
                logits_RBTV = self._logits(inputs.dropout_keys, tokens_BT)[None]
                losses_R, objectives_R = losses_of(self.loss, logits_RBTV, windows[..., 1:])
                del logits_RBTV
                on_phase(BACKWARD)
                scaled_R = objectives_R if scales_R is None else objectives_R * scales_R
                scaled_R.sum().backward()
            losses.append(losses_R.detach())
            objectives.append(objectives_R.detach())
            outputs.append(dict(seen))
        self._set_first(0)
        divisor = torch.tensor(float(len(pieces)), device=self._device)
        if scales_R is not None:
            divisor = divisor * scales_R[0].double()
        gradients = Shards({n: self._gradient(n, divisor)[None] for n in self._parameters})
        both = self._ranks.mean(torch.stack([mean_of(losses), mean_of(objectives)]))
        return ForwardBackward(
            both[0],
            both[1],
            gradients,
            {path: torch.cat([part[path] for part in outputs])[None] for path in tapped},
        )

    def _gradient(self, name: str, divisor: Tensor) -> Tensor:
        """Return this rank's part; zero where nothing leads to the parameter."""
        found = self._parameters[name].grad
        if found is None:
            return torch.zeros_like(self._local(name))
        return found.to_local().detach().div_(divisor.to(torch.float32))

    def _logits(self, dropout_keys: Tensor, tokens_BT: Tensor, *, mixed: bool = True) -> Tensor:
        lower = self._lower if mixed else None
        keys = dict(zip(self.dropouts, dropout_keys.unbind(), strict=True))
        with torch.autocast(self._device.type, dtype=lower) if lower else nullcontext():
            for name, key_R in keys.items():
                self._dropouts[name].key = key_R[0]
            return self.model(tokens_BT)

    def logits(
        self,
        dropout_keys: Tensor,
        tokens_RBT: Tensor,
        tapped: Sequence[str] = (),
        *,
        mixed: bool = True,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (logits [R, B, T, V], tapped outputs) as a training step computes them; every rank
        reads the same tokens, and has all of it."""
        with capture(self.model, tapped) as seen:
            logits_BTV = self._logits(dropout_keys, tokens_RBT[0], mixed=mixed)
        forget_gathered(self.model)
        return logits_BTV[None], {path: output[None] for path, output in seen.items()}

    def norms(self, gradients: Shards) -> Tensor:
        """Return [R], the L2 norm over all ranks."""
        each = [torch.linalg.vector_norm(part) for part in gradients.values()]
        return self._ranks.sum(torch.stack(each).square().sum()[None]).sqrt()

    @torch.no_grad()
    def update(
        self,
        gradients: Shards,
        factors_R: Tensor,
        moves_R: Tensor,
        rates_R: Tensor,
        scheduled_SR: Tensor,
        t: Tensor,
    ) -> None:
        """Make one step of the optimizer, with gradients times `factors_R`, where it moves; see
        `Replicas.update`."""
        before = None
        if t.ndim:  # a step that overflowed in float16 leaves the slots as they are
            before = {s: {n: x.clone() for n, x in of.items()} for s, of in self._slots.items()}
        moves_R1 = moves_R[:, None]
        rates_R1 = torch.where(moves_R1, rates_R[:, None], 0.0)
        scheduled_SR1 = torch.where(moves_R1, scheduled_SR[..., None], 0.0)
        scheduled = dict(zip(self._scheduled, scheduled_SR1, strict=True))
        for group in self._groups:
            rates, decays, momentum = scheduled_of(group, rates_R1, scheduled)
            for number, name in enumerate(group.names):
                weights = self._local(name).view(1, -1)
                if not weights.numel():
                    continue
                given = gradients[name].reshape(1, -1) * factors_R[:, None]
                given.masked_fill_(~moves_R1, 0.0)
                if number < group.n_decayed and group.optimizer.decay == "coupled":
                    given.addcmul_(weights, decays.expand_as(weights))
                elif number < group.n_decayed and group.optimizer.decay == "decoupled":
                    weights.mul_(1 - rates * decays)
                slots = {s: self._slots[s][name].view(1, -1) for s in group.optimizer.slots}
                count = t[:, None] if t.ndim else t
                is_own = number < group.n_decayed and group.optimizer.decay == "own"
                about = (rates, count, group.options, momentum, decays if is_own else 0.0)
                step(group, Update(weights, given, slots, *about))
        if before is not None:
            for slot, parts in before.items():
                for name, old in parts.items():
                    now = self._slots[slot][name]
                    now.copy_(torch.where(moves_R[0], now, old))

    def evaluated(self, done: int) -> Shards:
        """Return what this rank holds of the weights that are evaluated: those that are trained."""
        return self.weights

    def afterwards(self, t: int) -> None:
        """Do nothing on the host after step t."""

    def tensors(self) -> dict[str, DTensor]:
        """Return all that a trial goes on from, as tensors over all ranks: what
        `torch.distributed.checkpoint` saves, and writes to when it loads."""
        found = {f"{WEIGHTS}/{n}": _over(p, p.to_local().detach()) for n, p in self._named()}
        for slot, parts in self._slots.items():
            found |= {f"{slot}/{n}": _over(p, parts[n]) for n, p in self._named() if n in parts}
        return found

    def _named(self) -> list[tuple[str, DTensor]]:
        return list(self._parameters.items())

    def whole(self, *, everywhere: bool = False) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every parameter whole, one after the other: on rank 0, or `everywhere`; on the
        others it is empty."""
        for name, parameter in self._parameters.items():
            full = parameter.full_tensor().detach()
            if self._ranks.is_first or everywhere:
                yield name, full.cpu().numpy().copy()
            del full

    @torch.no_grad()
    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Take this rank's slices of whole parameters, by name."""
        for name in self._parameters:
            self._write(name, torch.from_numpy(np.asarray(weights[name])), WEIGHTS)

    def arrays(self, replica: int) -> dict[str, np.ndarray]:
        """Copy what this rank holds, float32: `weights/<parameter>` and `<slot>/<parameter>`."""
        kinds = {WEIGHTS: {n: self._local(n) for n in self._parameters}, **self._slots}
        return {
            f"{kind}/{name}": part.cpu().numpy().copy()
            for kind, parts in kinds.items()
            for name, part in parts.items()
        }

    def reader(self, *, splits: bool = True) -> Reader:
        """Return the model as an evaluation reads it; see `Reader`."""
        return Reader(self.model, list(self._parameters.values()), self._ranks, splits=splits)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Let dropout drop nothing within."""
        try:
            self.model.eval()
            yield
        finally:
            self.model.train()


class Reader(nn.Module):
    """A model over many devices as it is evaluated: tokens [W, T] -> logits [W, T, V].

    Every rank is given the same tokens, and has all logits. With `splits` each reads its part of
    the rows; what rows do to each other is then not seen.
    """

    is_sharded = True
    can_cache = False

    def __init__(
        self, model: nn.Module, shards: Sequence[DTensor], ranks: Ranks, *, splits: bool
    ) -> None:
        super().__init__()
        self.model = model
        self._shards: Any = shards
        self._ranks, self._splits = ranks, splits and ranks.size > 1

    def forward(self, tokens_WT: Tensor) -> Tensor:
        """tokens_WT int64 -> logits [W, T, V]."""
        W, S = len(tokens_WT), self._ranks.size
        if self._splits:
            padded = torch.cat([tokens_WT, tokens_WT[-1:].expand(-W % S, -1)])
            tokens_WT = padded[self._ranks.part(len(padded))]
        mine = self.model(tokens_WT)
        forget_gathered(self.model)
        if not self._splits:
            return mine
        return self._ranks.together(mine, 0)[:W]

    @property
    def key(self) -> str:
        """What names a draw that nobody knows before these weights are there; of all ranks."""
        sums = [float(part.to_local().detach().double().sum()) for part in self._shards]
        return str(self._ranks.of_all(sums))


def forget_gathered(model: nn.Module) -> None:
    """Give back weights that a forward pass without a backward one has gathered: the next pass
    gathers what they are by then."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def require_shardable(groups: Sequence[ParameterGroup]) -> None:
    """Raise ParibusError for an optimizer that cannot be given a part of a parameter."""
    for group in groups:
        optimizer = group.optimizer
        why = ""
        if optimizer.whole:
            why = "is given whole parameters, of which each device has some rows"
        elif optimizer.slot_shapes or optimizer.evaluated or optimizer.afterwards:
            why = "keeps more than a number or two for each of a parameter"
        if why:
            raise ParibusError(
                f"optimizer '{optimizer.name}' {why}; leave resources.devices_per_trial out, or "
                "take an optimizer of single numbers, such as adamw, lion or sgd"
            )
        if not _is_elementwise(group):
            raise ParibusError(
                f"optimizer '{optimizer.name}' moves a number by what the others of a row are, and "
                "each device has a part of them; leave resources.devices_per_trial out"
            )


def _is_elementwise(group: ParameterGroup) -> bool:
    """Tell whether steps on two halves of a row are those on the whole row."""
    generator = torch.Generator("cpu").manual_seed(0)

    def drawn() -> Tensor:
        return torch.randn(1, TRIED, generator=generator)

    begun, gradients = drawn(), [drawn(), drawn()]

    def walked(part: slice) -> Tensor:
        weights = begun[:, part].clone()
        slots = {name: torch.zeros_like(weights) for name in group.optimizer.slots}
        for t, gradient in enumerate(gradients):
            rates = torch.full((1, 1), 1e-2)
            given = gradient[:, part].clone()
            momentum = getattr(group.options, group.optimizer.momentum, 0.0)
            about = (rates, torch.tensor(t), group.options, momentum)
            step(group, Update(weights, given, slots, *about))
        return weights

    half = TRIED // 3  # and not of a size that some mean would forgive
    parts = torch.cat([walked(slice(0, half)), walked(slice(half, TRIED))], dim=1)
    return torch.allclose(parts, walked(slice(0, TRIED)), rtol=TOLERANCE, atol=TOLERANCE)


def scheduled_of(
    group: ParameterGroup, rates_R1: Tensor, scheduled: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, float | Tensor]:
    """Return the learning rate, weight decay and momentum of a group at a step, [1, 1]."""
    rates = scheduled[group.schedule] if group.schedule else rates_R1 * group.factors[0]
    decays = torch.full_like(rates_R1, group.decays[0])
    if DECAY in scheduled:
        decays = decays * scheduled[DECAY]
    momentum = getattr(group.options, group.optimizer.momentum, 0.0)
    return rates, decays, scheduled[MOMENTUM] * momentum if MOMENTUM in scheduled else momentum


def _over(like: DTensor, local: Tensor) -> DTensor:
    """Return `local` as this rank's part of a tensor that lies as `like` does."""
    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _take_buffers(model: nn.Module, whole: nn.Module) -> None:
    """Give `model` the buffers of one that was built whole."""
    for name, buffer in whole.named_buffers():
        owner, _, local = name.rpartition(".")
        setattr(model.get_submodule(owner), local, buffer)
