"""Blocks have what tuning has sealed, once each, and give it back without weights."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.study import Study, load_study, parse_study

from ..tuned_results import surface, tables, tuned_and_trained
from .scripts import HOME, script, study_of

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


def test_what_was_sealed_comes_back(
    small_study: Callable[..., Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(**tables([1e-3, 1e-2]))
    tuned_and_trained(study, tmp_path / "r", surface)
    blocks, results = script("blocks"), tmp_path / "r"
    monkeypatch.setattr(blocks, "HOME", tmp_path / "blocks")
    sealed = sorted(results.glob("tuning/*/trials/*/*/manifest.json"))
    late = [file.parent for file in sealed[:2]]
    for folder in late:  # sealed after the first block
        shutil.move(folder, tmp_path / folder.name)
    assert f": {len(sealed) - 2} trials in" in blocks.save(results)
    for folder in late:
        shutil.move(tmp_path / folder.name, folder)
    assert ": 2 trials in" in blocks.save(results) and "no new" in blocks.save(results)
    back = tmp_path / "back"
    blocks.restore(study.name, back)
    for file in sealed:
        assert (back / file.relative_to(results)).read_bytes() == file.read_bytes()
    assert not list(back.rglob("*.safetensors"))
    assert all(not one.unfinished for one in paribus.load_results(back).tuning_rounds)
    with pytest.raises(ParibusError, match="is there already"):
        blocks.restore(study.name, back)


def test_the_ladder_chooses_where_some_seeds_fail() -> None:
    stability = script("stability")
    ladder = load_study(study_of("embedding-norm-ladder"))
    assert (HOME / "embedding-norm-ladder.toml").read_text() == stability.ladder()
    cells = [cell for cell, _ in stability.cells()]
    events = {(cell, rate): 0 for cell in cells for rate in stability.RATES}
    assert stability.chosen(events) == {}
    first, second = cells[0], cells[1]
    events |= {(first, 0.6): 2, (first, 0.63): 5, (first, 0.67): 4, (second, 0.8): 12}
    assert stability.chosen(events) == {first: 0.63}
    study = parse_study(tomllib.loads(stability.edge({first: 0.63, cells[3]: 0.71})), folder=HOME)
    assert not set(study.seeds) & set(ladder.seeds) and len(study.seeds) == 24
    assert len(study.contrasts) == 6
    for arm, _ in study.contrasts:
        assert study.differences(arm).keys() == {"model.embedding.norm"}
