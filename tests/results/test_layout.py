"""A link in a results folder leads no write, and no removal, out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.engine.execution.trial.checkpoints import keep_stacks
from paribus.errors import ParibusError
from paribus.files import remove_folder, write_bytes
from paribus.results import ResultsFolder

PLACES = (
    "checkpoints",
    "checkpoints/0123456789abcdef",
    "checkpoints/0123456789abcdef/step-3",
    "paper",
    "paper/figures",
    "sources",
    "sources/package",
    "tables",
    "tasks",
    ".tasks",
    "evaluations",
    "trials",
    "trials/baseline",
    "trials/baseline/seed-1",
)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else, with names that we would write and remove."""
    folder = tmp_path / "victim"
    (folder / "step-3").mkdir(parents=True)
    (folder / "step-3" / "thesis").write_text("years of work")
    (folder / "scores.csv").write_text("theirs")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("place", PLACES)
def test_a_link_to_a_folder_is_refused_before_anything_is_done(
    tmp_path: Path, victim: Path, place: str
) -> None:
    before, folder = contents(victim), ResultsFolder(tmp_path / "results")
    link = folder.path / place
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(ParibusError, match="is a link") as caught, folder.lock():
        pytest.fail("the lock was given")
    assert str(link) in str(caught.value)
    assert contents(victim) == before


def test_removing_takes_the_link_and_not_what_it_leads_to(tmp_path: Path, victim: Path) -> None:
    before, results = contents(victim), tmp_path / "results"
    results.mkdir()
    (results / "checkpoints").symlink_to(victim)
    keep_stacks(results, [])
    assert contents(victim) == before
    (results / "dangling").symlink_to(results / "nowhere")
    remove_folder(results / "dangling")
    assert not list(results.glob("dangling"))


def test_a_results_folder_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "disk")
    folder = ResultsFolder(tmp_path / "results")
    with folder.lock():
        write_bytes(folder.path / "tables" / "scores.csv", b"ours")
    assert (tmp_path / "disk" / "tables" / "scores.csv").read_bytes() == b"ours"
