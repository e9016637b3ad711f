"""What `paribus.bench` says adds up, is of the machine it ran on, and costs a study nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from io import StringIO

import pytest
import torch
from rich.console import Console

import paribus
from paribus.cli import printed
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution.timing.bench import Bench, StackSpeed
from paribus.engine.machine.speed import PhaseClock, product_speed, timed
from paribus.engine.model import training_flops_per_token
from paribus.engine.probes import study_probes
from paribus.engine.training import OTHER, PHASES, Trainer
from paribus.errors import ParibusError
from paribus.study import Study

Maker = Callable[..., Study]
STEADY = {"smoothing_steps": 1, "median_steps": 1, "spike_steps": 1}
CPU = torch.device("cpu")


def test_figures_add_up(small_study: Maker) -> None:
    study = small_study({"training.iterations": 40})
    found = paribus.bench(study, "layernorm", workers=1, stacks=[2, 1, 2], steps=6)
    assert [speed.stack for speed in found.speeds] == [2, 1]  # as asked, each once
    assert (found.study, found.arm, found.precision) == ("small", "layernorm", "float32")
    assert (found.workers, found.steps, found.tokens_per_step) == (1, 6, 4 * 16)
    setting = study.setting("layernorm")
    flops = training_flops_per_token(setting, load_dataset(study.data, study.folder).vocab_size)
    for speed in found.speeds:
        assert speed.phase_seconds.keys() == set(PHASES)
        assert min(speed.phase_seconds.values()) >= 0
        assert min(speed.phase_seconds[p] for p in PHASES if p != OTHER) > 0
        assert math.isclose(speed.phased_seconds, speed.step_seconds)
        assert math.isclose(speed.tokens_per_second, speed.stack * 64 / speed.step_seconds)
        assert math.isclose(speed.flops_per_second, flops * speed.tokens_per_second)
        assert 0 < speed.share <= 1.2
        assert speed.processor_share is not None
        assert 0 < speed.processor_share <= 1.1
        assert 50 * 2**20 < speed.memory_bytes < 2**31
        assert speed.device_memory_bytes is None
    assert found.evaluation_seconds > 0
    assert found.machine["cores"] >= 1
    assert found.machine["packages"]["torch"] == torch.__version__
    _require_plain(found)


def _require_plain(found: Bench) -> None:
    read = json.loads(json.dumps(found.to_dict()))
    assert read["arm"] == found.arm
    assert read["machine"]["processor"]
    for row, speed in zip(read["speeds"], found.speeds, strict=True):
        assert row["share"] == speed.share
        assert row["phase_seconds"] == speed.phase_seconds


def test_on_a_gpu_shares_are_of_the_step_whose_phases_were_timed() -> None:
    """As an H100 gave them: kernels launched one by one take longer than the step in one launch."""
    ms = {"data": 0.39, "forward": 17.0, "backward": 16.8, "optimizer": 0.94, "probes": 4.62}
    ms[OTHER] = 0.15
    speed = StackSpeed(
        stack=4,
        tokens_per_second=1_016_694.0,
        step_seconds=8.06e-3,
        phase_seconds={phase: value / 1e3 for phase, value in ms.items()},
        processor_share=None,
        flops_per_second=11_276e9,
        ceiling_flops_per_second=140_077e9,
        memory_bytes=2_118 * 2**20,
        device_memory_bytes=1_395 * 2**20,
    )
    assert math.isclose(speed.phased_seconds, 39.9e-3)
    machine = {"device": "a GPU", "processor": "some", "cores": 16, "packages": {"torch": "2"}}
    about = ("s", "baseline", "bfloat16", 1_616_256, 2_048, 25, 1, 0.6, machine, "2026-11-22")
    console = Console(width=80, file=StringIO())
    for part in printed.bench(Bench(*about, speeds=(speed,))):
        console.print(part)
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any("kernel launched alone" in row for row in rows)
    at = next(n for n, row in enumerate(rows) if row.split()[-2:] == ["step", "one"])
    values, shares = (row.split() for row in rows[at + 2 : at + 4])
    assert values == ["4", "0.39", "17.0", "16.8", "0.94", "4.62", "0.15", "39.9", "8.06"]
    assert shares == ["1%", "43%", "42%", "2%", "12%", "0%", "100%"]


@pytest.mark.slow
def test_workers_are_added_up(small_study: Maker) -> None:
    found = paribus.bench(small_study(), workers=2)
    assert (found.workers, found.arm) == (2, "baseline")
    assert found.steps == 8 - 3  # all but those to warm up
    (speed,) = found.speeds
    assert speed.stack == 1
    assert math.isclose(speed.tokens_per_second, 2 * 64 / speed.step_seconds)
    assert 0 < speed.share <= 1.2


def test_steps_stay_within_the_study(small_study: Maker) -> None:
    for wrong in (0, 6):
        with pytest.raises(ParibusError, match=f"steps = {wrong} must be from 1 to 5"):
            paribus.bench(small_study(), steps=wrong)
    with pytest.raises(ParibusError, match="3 iterations are too few to time"):
        paribus.bench(small_study({"training.iterations": 3}, stability=STEADY))


def test_bad_input_is_refused(small_study: Maker) -> None:
    study = small_study()
    with pytest.raises(ParibusError, match=r"'layrnorm' is unknown: did you mean 'layernorm'"):
        paribus.bench(study, "layrnorm")
    with pytest.raises(ParibusError, match="stack = 0 must be at least 1"):
        paribus.bench(study, stacks=[1, 0])
    with pytest.raises(ParibusError, match="workers = 0 must be at least 1"):
        paribus.bench(study, workers=0)
    broken = small_study(arms={"baseline": {"set": {"model.modules.mlp": "ideas.py:Fails"}}})
    (study.folder / "ideas.py").write_text(
        "from torch import nn\n"
        "class Fails(nn.Identity):\n"
        "    def __init__(self, model): super().__init__()\n"
        "    def forward(self, x): raise RuntimeError('no')\n"
    )
    with pytest.raises(ParibusError, match=r"'ideas\.py:Fails' fails where it is given"):
        paribus.bench(broken, workers=1)


def test_the_clock_charges_what_is_begun() -> None:
    clock = PhaseClock(CPU)
    began = time.perf_counter()
    for phase, seconds in (("data", 0.02), ("forward", 0.05), ("data", 0.02), ("probes", 0.0)):
        clock.begin(phase)
        time.sleep(seconds)
    clock.begin(OTHER)
    elapsed = time.perf_counter() - began
    time.sleep(0.01)  # after the last mark: nobody's
    charged = clock.seconds()
    assert charged["data"] >= 0.04
    assert charged["forward"] >= 0.05
    assert charged["backward"] == charged["other"] == 0
    assert charged["probes"] < 0.02
    assert sum(charged.values()) <= elapsed


@pytest.mark.parametrize("with_probes", [True, False])
def test_a_step_begins_every_phase(
    small_study: Maker, small_dataset: Dataset, with_probes: bool
) -> None:
    study = small_study()
    probes = study_probes(study) if with_probes else ()
    stack = Trainer(study.setting("baseline"), (1, 2), small_dataset, probes=probes)
    silent = Trainer(study.setting("baseline"), (1, 2), small_dataset, probes=probes)
    begun: list[str] = []
    stack.on_phase = begun.append
    stack.step()
    silent.step()
    assert list(dict.fromkeys(begun)) == [
        "data",
        "forward",
        "backward",
        "probes",
        "optimizer",
        "other",
    ]
    assert set(begun) == set(PHASES)
    ours, theirs = stack.parameters(1), silent.parameters(1)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


@pytest.mark.parametrize("R", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_ceiling_is_that_of_the_products_alone(
    R: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a second for every product, FLOPs are 2 R M N K by the number of products."""
    shapes = [(8, 4), (8, 4), (5, 6)]
    results: list[torch.Size] = []

    def a_second(product: Callable[[], torch.Tensor], device: torch.device) -> float:
        result = product()
        assert result.dtype == dtype
        results.append(result.shape)
        return 1.0

    monkeypatch.setattr("paribus.engine.machine.speed._fastest", a_second)
    speed = product_speed(shapes, 7, R=R, dtype=dtype, device=CPU)
    assert speed == 3 * 2 * R * 7 * (2 * 8 * 4 + 5 * 6) / 9
    lead = () if R == 1 else (R,)
    assert results == [
        (*lead, *shape) for shape in [(7, 8), (7, 4), (8, 4), (7, 5), (7, 6), (5, 6)]
    ]


def test_a_ceiling_is_near_what_one_product_reaches() -> None:
    """Alone, the largest product of a shape cannot be much slower than all three on average."""
    torch.set_num_threads(1)
    x, w = torch.randn(512, 256), torch.randn(512, 256)
    seconds = min(timed(lambda: x @ w.T, CPU)[1] for _ in range(30))
    alone = 2 * 512 * 512 * 256 / seconds
    assert 0.3 < product_speed([(512, 256)], 512, device=CPU) / alone < 3


def test_on_a_gpu_the_device_marks_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events stand for the device's clock, in milliseconds; the host's clock has no say."""
    moments = iter([0.0, 2.0, 7.0, 7.5])

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            self.moment = next(moments)

        def elapsed_time(self, until: Event) -> float:
            return until.moment - self.moment

    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    clock = PhaseClock(torch.device("cuda"))
    for phase in ("data", "forward", "data", OTHER):
        clock.begin(phase)
    assert not waited  # a mark holds nothing up
    charged = clock.seconds()
    assert waited == [torch.device("cuda")]
    assert {p: s for p, s in charged.items() if s} == {"data": 0.0025, "forward": 0.005}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_measured(small_study: Maker) -> None:
    found = paribus.bench(small_study(), device="cuda", stacks=[1, 4])
    assert found.workers == 1
    assert found.machine["device"] == torch.cuda.get_device_name()
    for speed in found.speeds:
        assert 0 < speed.share <= 1.2
        assert speed.processor_share is None
        assert speed.device_memory_bytes
        # Small models wait for their launches: one launch of all is never slower but by noise.
        assert 0 < speed.step_seconds < 1.2 * speed.phased_seconds
        assert speed.phase_seconds.keys() == set(PHASES)
    assert found.speeds[1].device_memory_bytes > found.speeds[0].device_memory_bytes
