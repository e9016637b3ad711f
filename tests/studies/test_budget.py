"""The changes of effects by training budget agree with the records of both halves."""

import json
import shutil

import pytest

from paribus.analysis import analyse
from paribus.results import ResultsFolder, load_results
from paribus.results.formats import write_json

from .scripts import HOME, script

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
HALVES = {"300": "embedding-factorial", "1,500": "embedding-factorial-long"}


def test_changes_by_budget_are_significant_except_centring():
    changes = json.loads((HOME / "budget.json").read_text())
    p = {name: one for name, one in changes.items() if name.endswith("all cells: p")}
    assert p.pop("center, all cells: p") > 0.5 and max(p.values()) < 0.02 and len(p) == 4


@pytest.mark.slow
def test_changes_by_budget_are_recomputed_from_the_records():
    budget = script("budget")
    found = budget.changes(*(HOME / name for name in HALVES.values()))
    kept = json.loads((HOME / "budget.json").read_text())
    assert found.keys() == kept.keys()
    for name, one in found.items():
        assert one == pytest.approx(kept[name], abs=1e-6), name


@pytest.mark.slow
def test_recount_without_paribus_agrees(tmp_path):
    folders = [tmp_path / name for name in HALVES.values()]
    for folder in folders:
        shutil.copytree(ResultsFolder(HOME / folder.name).records, folder)
        shutil.copytree(HOME / folder.name, folder, dirs_exist_ok=True)
        analysis = analyse(load_results(HOME / folder.name))
        write_json(folder / "analysis.json", analysis.to_dict())
    assert script("recount").main(*folders) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "changes"), [("300", 1), ("1,500", 2)])
def test_lack_of_fit_changes_few_words(budget, changes):
    rows = script("lack_of_fit").rows(budget, HALVES[budget])
    changed = [row for row in rows if row.endswith("then UNRESOLVED |")]
    assert len(rows) == 20 and len(changed) == changes
    assert all("arger steps" in row for row in changed)
    assert sum(", then " in row for row in rows) == changes
