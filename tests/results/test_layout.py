"""Links in a results folder: removal does not follow them."""

from pathlib import Path

import pytest

from paribus.engine.execution.trial.checkpoints import keep_stacks
from paribus.files import remove_folder


@pytest.fixture
def victim(tmp_path):
    """A folder of somebody else, with names that we would write and remove."""
    folder = tmp_path / "victim"
    (folder / "step-3").mkdir(parents=True)
    (folder / "step-3" / "thesis").write_text("years of work")
    (folder / "scores.csv").write_text("theirs")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_removing_takes_the_link_and_not_what_it_leads_to(tmp_path, victim):
    before, results = contents(victim), tmp_path / "results"
    results.mkdir()
    (results / "checkpoints").symlink_to(victim)
    keep_stacks(results, [])
    assert contents(victim) == before
    (results / "dangling").symlink_to(results / "nowhere")
    remove_folder(results / "dangling")
    assert not list(results.glob("dangling"))
