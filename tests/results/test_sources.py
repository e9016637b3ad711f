"""A results folder is complete: what its study names is in it, and found there."""

import json

import pytest

from paribus.engine.data import load_dataset
from paribus.results import ResultsFolder, settle
from paribus.study import load_study, own_digests, require_trust
from paribus.verification import verify

from ..build import registered
from ..tools import refused


@pytest.fixture
def settled(small_study, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "ideas.py").write_text("from parts.helper import C\nA = C\nB = 1\n")
    (tmp_path / "parts" / "helper.py").write_text("C = 1\n")
    (tmp_path / "unrelated.py").write_text("D = 1\n")
    arms = {"baseline": {}, "own": {"set": {"model.modules.mlp": "ideas.py:A"}}}
    study, folder = small_study(arms=arms), ResultsFolder(tmp_path / "r")
    settle(folder, study, registered(study, {}, "cpu"))
    return folder


def test_what_a_study_names_is_kept(settled):
    kept = settled.path / "sources"
    names = {"ideas.py", "parts/helper.py", "text.txt"}
    assert {f.relative_to(kept).as_posix() for f in kept.rglob("*") if f.is_file()} == names
    assert json.loads((settled.path / "registration.json").read_text())["sources"].keys() == names
    for name in names:
        assert (kept / name).read_bytes() == (settled.path.parent / name).read_bytes()


def test_a_study_is_read_from_its_folder_alone(settled, tmp_path):
    moved = settled.path.rename(tmp_path / "elsewhere")
    for name in ("ideas.py", "parts/helper.py", "text.txt"):
        (tmp_path / name).unlink()
    for study in (ResultsFolder(moved).read_study(), load_study(moved / "study.json")):
        assert study.folder == moved / "sources"
        assert load_dataset(study.data, study.folder).train.size
        sources = own_digests(study.setting("own"), study.folder)
        assert sources["mlp"].keys() == {"ideas.py", "parts/helper.py"}


@pytest.mark.parametrize("name", ["ideas.py", "parts/helper.py", "text.txt"])
def test_a_kept_file_that_was_changed_is_named(settled, name):
    path = settled.path
    require_trust(load_study(path / "study.json", trust=True))
    assert not [line for line in verify(path).findings if "sources" in line]
    (path / "sources" / name).write_text("A = C = 2\n" * 500)
    for study in (load_study(path / "study.json", trust=True), settled.read_study(trust=True)):
        with refused("changed", match=rf"sources/{name} was changed"):
            require_trust(study)
    assert any(f"sources/{name} was changed" in line for line in verify(path).findings)
    (path / "sources" / name).unlink()
    assert any(f"sources/{name} was changed" in line for line in verify(path).findings)
