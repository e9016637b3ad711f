"""The flagship's first losses: by PyTorch's kernels the same bits on the same platform, and close
on any other; by our own, which are compiled where they run, close everywhere.

The first 6 in the ordinary suite; all 50 that are kept with `-m slow`.

After a change that is meant to change them, and on a new platform, write them anew, and say why in
the commit: `OMP_NUM_THREADS=1 python tests/training/test_golden.py`.
"""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from paribus.engine.data import load_dataset
from paribus.engine.ops import library
from paribus.engine.probes import shipped_probes
from paribus.engine.training import Trainer
from paribus.errors import ParibusError
from paribus.study import load_study

from ..tools import disabled_kernels

FOLDER = Path(__file__).parent / "golden"
FEW, STEPS = 6, 50
ARM, SEED = "layernorm", 1
# Other processors sum in another order; this is what 50 steps make of it, with room.
ELSEWHERE_NATS = 2e-3
# Of our kernels against PyTorch's on one machine, in float32; 20 steps made 2.4e-7 of it.
COMPILED_NATS = 1e-5


def platform() -> dict[str, str]:
    """What decides the last bits: PyTorch, and the processor that its kernels are chosen for."""
    wanted = ("vendor_id", "cpu family", "model", "stepping")
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    named = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    found = {key: named.get(key, "").strip() for key in wanted}
    kernels = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__.partition("+")[0], "kernels": kernels} | found


def trained(steps: int) -> tuple[str, Trainer]:
    """(digest of the training text, a trainer after so many steps)."""
    study = load_study("embedding-norm", {"training.precision": "float32"})
    dataset = load_dataset(study.data, study.folder)
    probes = list(shipped_probes().values())
    stack = Trainer(study.setting(ARM), [SEED], dataset, probes=probes)
    for _ in range(steps):
        stack.step()
    return dataset.digests["train"], stack


def losses_of(stack: Trainer) -> list[float]:
    """In nats per token."""
    return stack.state(0).measured[:, 0].tolist()


@cache
def plain(steps: int) -> tuple[str, Trainer]:
    """`trained` by PyTorch's kernels, once."""
    with disabled_kernels():
        return trained(steps)


def curve(steps: int) -> tuple[str, list[float]]:
    """(digest of the training text, losses), by PyTorch's kernels."""
    text, stack = plain(steps)
    return text, losses_of(stack)


def place() -> Path:
    name = hashlib.sha256(json.dumps(platform()).encode()).hexdigest()[:8]
    return FOLDER / f"losses-{name}.json"


@pytest.mark.parametrize("steps", [FEW, pytest.param(STEPS, marks=pytest.mark.slow)])
def test_the_flagship_s_first_losses(steps):
    if not Path("/proc/cpuinfo").is_file():
        pytest.skip("the platforms of the golden curves are told apart by /proc/cpuinfo")
    known = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("losses-*.json"))]
    assert torch.get_num_threads() == 1
    try:
        text, losses = curve(steps)
    except ParibusError as error:
        pytest.skip(f"the flagship's text is not here: {error}")
    here = [one for one in known if one["platform"] == platform()]
    if here:
        assert losses == here[0]["losses"][:steps]
        return
    assert text == known[0]["text"]
    np.testing.assert_allclose(losses, known[0]["losses"][:steps], atol=ELSEWHERE_NATS, rtol=0)


@pytest.mark.skipif(library() is None, reason="no C++ compiler here")
def test_compiled_kernels_give_the_same_losses():
    try:
        by_torch = plain(FEW)[1]
    except ParibusError as error:
        pytest.skip(f"the flagship's text is not here: {error}")
    compiled = trained(FEW)[1]
    weights = [stack.replicas.weights["blocks.0.mlp.down.weight"] for stack in (compiled, by_torch)]
    assert not torch.equal(*weights)  # they did go another way
    losses = losses_of(compiled), losses_of(by_torch)
    np.testing.assert_allclose(*losses, atol=COMPILED_NATS, rtol=0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    text, losses = curve(STEPS)
    content = {"platform": platform(), "text": text, "losses": losses}
    place().write_text(json.dumps(content, indent=1) + "\n")
    print(place().name)
