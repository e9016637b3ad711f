"""A model on the device "meta": the shapes of the real one, and no more work than shapes take."""

from __future__ import annotations

from paribus.engine.model import build_model

from ..conftest import Maker


def test_shapes_are_those_of_the_model(small_study: Maker) -> None:
    study = small_study()
    for arm in study.arms:
        real, shapes = (
            {
                name: (value.shape, value.dtype)
                for name, value in build_model(study.setting(arm), 50, device=device)
                .state_dict()
                .items()
            }
            for device in ("cpu", "meta")
        )
        assert real == shapes
