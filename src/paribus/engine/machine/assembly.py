"""A study's trainer, put together: its probes and custom parts, on a device of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from paribus.engine.data import Dataset
from paribus.engine.observation import Probe
from paribus.engine.probes import study_probes
from paribus.engine.setting import Setting
from paribus.engine.training import Trainer
from paribus.study import Study

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks


def build_stack(
    study: Study,
    setting: Setting | Sequence[Setting],
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    *,
    strict: bool = True,
    graphs: bool = True,
    ranks: Ranks | None = None,
    probes: Sequence[Probe] | None = None,
) -> Trainer:
    """Return a stack as every trial has it: the study's custom parts and probes (or `probes`); with
    `ranks`, one trial over several devices."""
    return Trainer(
        setting,
        seeds,
        dataset,
        folder=study.folder,
        device=device,
        probes=study_probes(study) if probes is None else probes,
        strict=strict,
        graphs=graphs,
        ranks=ranks,
        devices=study.resources.devices,
        checkpointing=study.resources.checkpoint_activations,
    )
