"""Weights with which every path of a model carries something, for those who look what it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from paribus.engine.model import GPT, initial_parameters, initial_rules
from paribus.rng import stream
from paribus.study import Setting

OWN_NOISE = 0.1  # added to a parameter that its module draws itself, relative to its largest value


def opened(model: GPT, setting: Setting) -> Iterator[dict[str, np.ndarray]]:
    """Two sets of weights of which none is zero, each the other's mirror image about the start.

    At its start a path may lie behind a gain of zero, and show nothing. Parameters that a module
    draws or constructs itself stay near their start, where it knows that they make sense.
    """
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}

    def draw(name: str) -> np.ndarray:
        rng = stream(0, "causality", "weights", name)
        return rng.standard_normal(shapes[name], dtype=np.float32)

    kept = {name for name, rule in initial_rules(model, setting).items() if rule.std is None}
    start = initial_parameters(model, setting, seed=0, only=kept)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a billion numbers take one core a minute
        noise = dict(zip(shapes, pool.map(draw, shapes), strict=True))
    for sign in (1, -1):
        weights = {}
        for name, shape in shapes.items():
            if name in start:
                value = start[name].value
                size = OWN_NOISE * max(float(np.abs(value).max(initial=0)), 1.0)
                values = value + sign * size * noise[name]
            else:
                size = shape[-1] ** -0.5 if len(shape) >= 2 else 0.5
                values = sign * size * noise[name]
            weights[name] = np.asarray(values, np.float32)
        yield weights
