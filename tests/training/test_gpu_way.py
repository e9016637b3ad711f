"""The way of a GPU, shown without one: nothing waits, and a replayed step is the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from paribus.data import Dataset
from paribus.probes import shipped_probes
from paribus.study import Study
from paribus.training import Stack, measured
from paribus.training.engine import _Kind
from paribus.training.feed import AHEAD, Inputs
from paribus.training.graphs import Graphs, Record

PROBES = list(shipped_probes().values())


@pytest.fixture
def stack_of(small_study: Callable[..., Study], small_dataset: Dataset) -> Callable[..., Stack]:
    def make(**options: Any) -> Stack:
        overrides = {
            "training.iterations": 40,
            "training.dropout": 0.1,
            "training.schedule.kind": "cosine",
        }
        setting = small_study(overrides).setting("layernorm")
        return Stack(setting, [1, 2, 3], small_dataset, probes=PROBES, **options)

    return make


def state(stack: Stack) -> list[bytes]:
    found = []
    for r in range(len(stack.seeds)):
        one = stack.state(r)
        found += [one.weights.tobytes(), one.mean.tobytes(), one.measured.tobytes()]
    return found


def test_a_step_never_asks_for_a_number_on_the_device(
    stack_of: Callable[..., Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device "meta" no tensor has values: whoever needed one, or mixed devices, fails."""
    monkeypatch.setattr(measured, "BLOCK", 100)  # on a GPU blocks are fetched without waiting
    stack = stack_of(device="meta")
    for _ in range(AHEAD + 2):
        stack.step()
    with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)meta"):
        stack.state(0)  # the test can fail: this does ask
    inputs = stack._feed.at(AHEAD + 1)._replace(rates=torch.ones(3))
    with pytest.raises(RuntimeError, match="meta"):
        stack._advance(inputs, _Kind((), seen=False))  # and this does mix


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
        tensors += list(part.values()) if isinstance(part, dict) else [part]
    return [tensor.detach() for tensor in tensors]


def test_replayed_steps_are_the_steps(stack_of: Callable[..., Stack]) -> None:
    plain, graphed = stack_of(), stack_of()
    log: list[str] = []
    graphed._graphs = Graphs(graphed._advance, replaying(log))
    for _ in range(40):
        plain.step()
        graphed.step()
    assert state(graphed) == state(plain)
    # Two kinds of steps: with the attention's queries and keys (every 25) and without. The first
    # of each is run as it is written; those with them are 0, 25 and 39.
    assert log.count("recorded") == 2
    assert log.count("replayed") == 40 - 2


def test_a_step_that_cannot_be_recorded_runs_as_it_is(stack_of: Callable[..., Stack]) -> None:
    def record(function: Callable[[Inputs], Any], inputs: Inputs) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore lines")

    plain, refused = stack_of(), stack_of()
    refused._graphs = Graphs(refused._advance, record)
    for t in range(6):
        plain.step()
        if t == 2:  # the second step of its kind
            with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
                refused.step()
        else:
            refused.step()
    assert state(refused) == state(plain)


def test_what_was_measured_arrives_in_order(stack_of: Callable[..., Stack]) -> None:
    stack = stack_of()
    losses = []
    for _ in range(20):
        stack.step()
        losses.append(stack.last_losses)
    np.testing.assert_array_equal(stack.state(1).measured[:, 0], np.array(losses, np.float32)[:, 1])
    stack.step()
    assert len(stack.state(0).measured) == 21


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_s_graphs_are_the_steps(stack_of: Callable[..., Stack]) -> None:
    graphed, plain = stack_of(device="cuda"), stack_of(device="cuda")
    plain._graphs = Graphs(plain._advance, None)
    for _ in range(40):
        plain.step()
        graphed.step()
    assert graphed._graphs._recorded and not graphed._graphs._plain
    np.testing.assert_allclose(graphed.state(1).measured, plain.state(1).measured, rtol=1e-4)
