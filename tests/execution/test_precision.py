"""A precision left open is settled once, by the device that registers, and kept on every other."""

import shutil

import pytest
import torch

import paribus
from paribus.engine.machine import environment
from paribus.engine.machine.environment import native_precision
from paribus.results import ResultsFolder
from paribus.results.registration import read_registration
from paribus.study import Study

from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def tiny(small_study):
    """A study of two trials, without tasks."""

    def make(precision: str) -> Study:
        overrides = {"training.precision": precision, "seeds": (1,), "tasks.names": ()}
        return small_study(overrides, arms=ARMS)

    return make


ARMS = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}


@pytest.fixture
def on_a_machine(monkeypatch):
    """`on_a_machine("bfloat16")`: from here on, this is what the device has."""
    return lambda precision: monkeypatch.setattr(
        environment, "native_precision", lambda _: precision
    )


def test_auto_is_settled_at_registration_and_kept_elsewhere(tiny, tmp_path, on_a_machine):
    on_a_machine("bfloat16")
    first = paribus.run(tiny("auto"), tmp_path / "r", workers=2)
    assert first.study.digest == tiny("bfloat16").digest
    registered = read_registration(ResultsFolder(tmp_path / "r"))
    assert registered["study_digest"] == first.study.digest
    stated = paribus.run(tiny("bfloat16"), tmp_path / "stated", workers=1)
    for ours, theirs in zip(first.finished, stated.finished, strict=True):
        for record in ("trial.json", "steps.parquet", "weights.safetensors"):
            assert (ours.path / record).read_bytes() == (theirs.path / record).read_bytes()
    # Another machine goes on in what was registered.
    on_a_machine("float32")
    shutil.rmtree(first.finished[-1].path)
    again = paribus.run(tiny("auto"), tmp_path / "r", workers=2)
    assert again.study.digest == tiny("bfloat16").digest
    assert again.trials["layernorm", 1]["setting"]["training"]["precision"] == "bfloat16"
    assert {control.state for control in again.controls} == {"held"}

    # Stated in full it is the same study; another precision is another.
    assert len(paribus.run(tiny("bfloat16"), tmp_path / "r", workers=1).finished) == 2
    with refused("different", match="precision = bfloat16"):
        paribus.run(tiny("float32"), tmp_path / "r", workers=1)


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False}, "float32"),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": True}, "bfloat16"),
        ({"architecture": "arm64", "neon": True, "bf16": True}, "bfloat16"),
        ({}, "float32"),
    ],
)
def test_what_is_native_to_a_processor(monkeypatch, capabilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert native_precision(torch.device("cpu")) == precision
    # Without oneDNN nothing uses the instructions.
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert native_precision(torch.device("cpu")) == "float32"


@pytest.mark.parametrize("supported", [True, False])
def test_what_is_native_to_a_gpu(monkeypatch, supported):
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return supported or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    expected = "bfloat16" if supported else "float32"
    assert native_precision(torch.device("cuda")) == expected
    assert native_precision(torch.device("mps")) == "float32"
