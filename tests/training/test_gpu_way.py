"""The way of a GPU, shown without one: nothing waits, and a replayed step is the step."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from paribus.engine.model.side_by_side import SideBySide
from paribus.engine.ops.kernels import causal_attention
from paribus.engine.ops.kernels.calling import kernels
from paribus.engine.probes import shipped_probes
from paribus.engine.rows import Rows
from paribus.engine.training import Trainer
from paribus.engine.training.graphs import Graphs, Record
from paribus.engine.training.prefetch import Inputs
from paribus.engine.training.probing import Kind

PROBES = list(shipped_probes().values())


@pytest.fixture
def stack_of(small_study, small_dataset):
    def make(more: dict[str, Any] | None = None, **options: Any) -> Trainer:
        overrides = {
            "training.iterations": 28,
            "training.dropout": 0.1,
            "training.schedule.kind": "cosine",
        } | (more or {})
        setting = small_study(overrides).setting("layernorm")
        return Trainer(setting, [1, 2, 3], small_dataset, probes=PROBES, **options)

    return make


def state(stack: Trainer) -> list[bytes]:
    found = []
    for r in range(len(stack.seeds)):
        one = stack.state(r)
        found += [values.tobytes() for values in one.arrays.values()]
    return found


FROM_THE_HOST = {
    torch.tensor,
    torch.as_tensor,
    torch.from_numpy,
    torch.Tensor.new_tensor,
    torch.Tensor.to,
    torch.Tensor.copy_,
}


class NoCopiesFromTheHost(TorchFunctionMode):
    """Fails where a tensor comes from the host, for which a GPU's queue is waited for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in FROM_THE_HOST and not result.is_cpu:
            of_values = func is torch.Tensor.new_tensor or not isinstance(args[0], torch.Tensor)
            if of_values or any(isinstance(x, torch.Tensor) and x.is_cpu for x in args):
                raise AssertionError(f"{func} from the host")
        return result


def test_no_step_waits(stack_of, monkeypatch):
    """On the device "meta" no tensor has values: whoever needed one, or mixed devices, fails."""
    stack = stack_of(device="meta")
    stack.step()  # constants are brought to the device once
    monkeypatch.setattr(stack._feed, "_to_device", on_meta)
    with NoCopiesFromTheHost():
        stack.step()
        stack.t = 24
        for _ in range(3):
            stack.step()
        for copies in (lambda x: x.new_tensor([1.0]), lambda x: torch.ones(2).to(x.device)):
            with pytest.raises(AssertionError, match="the host"):
                copies(torch.empty(2, device="meta"))  # it can fail
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)meta"):
        stack.state(0)  # this does ask
    inputs = stack._feed.at(stack.t)._replace(rates=torch.ones(3))
    with pytest.raises(RuntimeError, match="meta"):
        stack._advance(inputs, Kind((), seen=False))  # and this does mix


def on_meta(values: np.ndarray) -> torch.Tensor:
    """The feed's copies are made from pinned memory, and do not wait."""
    return torch.empty(values.shape, dtype=torch.from_numpy(values).dtype, device="meta")


def replaying(log: list[str]) -> Record:
    """What a CUDA graph does: the function is called once, and later repeated on the same places.

    As when recording on a GPU, the call itself must leave no trace; so it works on inputs of which
    nothing is kept until `replay`.
    """

    def record(function: Callable[[Inputs], Any], inputs: Inputs) -> tuple[Callable[[], None], Any]:
        log.append("recorded")
        outputs: dict[str, Any] = {}

        def replay() -> None:
            log.append("replayed")
            done = function(inputs)
            if not outputs:
                outputs["done"] = done
                return
            for place, value in zip(flat(outputs["done"]), flat(done), strict=True):
                place.copy_(value)

        return replay, Later(outputs)

    return record


class Later:
    """The outputs of a recorded step: their places are known before their values are."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self._outputs = outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outputs["done"], name)


def flat(done: Any) -> list[torch.Tensor]:
    tensors = []
    for part in done:
        part = part.flat if isinstance(part, Rows) else part
        tensors += list(part.values()) if isinstance(part, dict) else [part]
    return [tensor.detach() for tensor in tensors]


MUON = {
    "training.optimizer.name": "muon",
    "training.loss.label_smoothing": 0.1,
    "training.micro_batch": 2,
}


@pytest.mark.parametrize("more", [{}, MUON], ids=["adamw", "muon in parts"])
def test_replayed_steps_are_steps(more, stack_of):
    plain, graphed = stack_of(more), stack_of(more)
    log: list[str] = []
    graphed._graphs = Graphs(replaying(log))
    for t in (0, 1, 2, 24, 25, 26, 27):
        for stack in (plain, graphed):
            stack.t = t
            stack.step()
    assert state(graphed) == state(plain)
    # Two kinds of steps: with the attention's queries and keys (every 25) and without. The first
    # of each is run as it is written; those with them are 0, 25 and 27.
    assert log.count("recorded") == 2
    assert log.count("replayed") == 7 - 2


@pytest.mark.parametrize("lower", [None, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 2, 16, 8), (2, 16, 8), (2, 2, 2, 16, 8)])
def test_an_own_module_s_attention_is_pytorch_s_in_values_type_and_gradient(
    lower, shape, monkeypatch
):
    calls = []
    kernel = causal_attention._CausalAttention.apply
    monkeypatch.setattr(
        causal_attention._CausalAttention, "apply", lambda *given: calls.append(1) or kernel(*given)
    )
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, *shape, generator=generator, requires_grad=True)

    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x.flip(-1), x.roll(1, -1), is_causal=True)

    def with_gradient(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return y, torch.autograd.grad(y.float().square().sum(), x)[0]

    with torch.autocast("cpu", dtype=lower) if lower else nullcontext():
        expected = with_gradient(torch.stack([attention(one) for one in x]))
        assert not calls
        with SideBySide(None):
            alone = with_gradient(torch.stack([attention(one) for one in x]))
        with SideBySide(lower):
            mapped = with_gradient(torch.func.vmap(attention)(x))
    assert len(calls) == (4 if kernels() and len(shape) == 4 else 0)
    tolerance = {"rtol": 0.05, "atol": 0.05} if lower else {}
    torch.testing.assert_close(alone, expected, **tolerance)
    torch.testing.assert_close(mapped, expected, **tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_s_graphs_are_the_steps(stack_of):
    graphed, plain = stack_of(device="cuda"), stack_of(device="cuda", graphs=False)
    for _ in range(28):
        plain.step()
        graphed.step()
    assert len(graphed._graphs._recorded) == 2 and not plain._graphs._recorded
    np.testing.assert_allclose(graphed.state(1).measured, plain.state(1).measured, rtol=1e-4)
