"""What a training step does, in the order of doing: names for whoever asks where the time goes."""

from __future__ import annotations

DATA = "data"  # the batch, its digest, its way to the device
FORWARD = "forward"
BACKWARD = "backward"
OPTIMIZER = "optimizer"  # the gradient's norm, clipping, the update
PROBES = "probes"
OTHER = "other"

PHASES: tuple[str, ...] = (DATA, FORWARD, BACKWARD, OPTIMIZER, PROBES, OTHER)
