"""A link in a results folder leads no write, and no removal, out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.cli import main
from paribus.engine.execution.trial.checkpoints import keep_stacks
from paribus.errors import ParibusError
from paribus.files import remove_folder, write_bytes
from paribus.results import Results, ResultsFolder
from paribus.results.store import secure
from paribus.study import Study

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


def test_verbs_write_nothing_through_a_link(
    fabricate: Callable[..., Results],
    small_study: Callable[..., Study],
    victim: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, path = contents(victim), fabricate(small_study(), lambda arm, seed: 2.0).path
    (path / "tables").symlink_to(victim)
    there = sorted(path.iterdir())
    for options in ([], ["--no-page"]):
        assert main(["report", *options, str(path)]) == 2
        assert "tables is a link" in capsys.readouterr().err
    assert contents(victim) == before and sorted(path.iterdir()) == there


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


def test_what_is_no_folder_is_refused_and_a_link_to_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "file").write_text("theirs")
    (tmp_path / "tables" / "scores.csv").symlink_to(tmp_path / "file")
    secure(tmp_path)
    write_bytes(tmp_path / "tables" / "scores.csv", b"ours")
    assert (tmp_path / "file").read_text() == "theirs"
    (tmp_path / "paper").write_text("")
    with pytest.raises(ParibusError, match="paper is no folder"):
        secure(tmp_path)
