"""An archive: a results folder without weights that every verb reads, and that trusts nobody."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

import paribus
from paribus.cli import main
from paribus.results import archive, load_results
from paribus.results.store import ARCHIVE, root_digest

from ..studies.scripts import HOME, script
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture(scope="module")
def made(trained, tmp_path_factory):
    """A folder with `finished` and `archived`, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    finished = shutil.copytree(trained.results.path, folder / "finished")
    main(["report", "--no-page", str(finished)])
    archive(load_results(finished), folder / "archived")
    return folder


@pytest.fixture
def finished(made, tmp_path):
    return shutil.copytree(made / "finished", tmp_path / "finished")


@pytest.fixture
def archived(made, tmp_path):
    return shutil.copytree(made / "archived", tmp_path / "archived")


def content(archived: Path) -> dict[str, bytes]:
    with tarfile.open(archived / ARCHIVE) as members:
        return {m.name: members.extractfile(m).read() for m in members}


def repack(archived: Path, members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> None:
    """Write the archive again, with members of that type."""
    with tarfile.open(archived / ARCHIVE, "w:xz", preset=0) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, "/etc/passwd"
            file.addfile(member, io.BytesIO(data))


def test_it_has_every_record_but_weights(finished, archived):
    found = paribus.verify(archived)
    assert found.findings == [] and found.root == root_digest(finished)
    records = {
        path.relative_to(finished).as_posix(): path.read_bytes()
        for path in finished.glob("trials/*/*/*")
        if path.suffix != ".safetensors"
    }
    assert records.items() <= content(archived).items()
    assert not [name for name in content(archived) if name.endswith(".safetensors")]
    assert not (archived / "analysis.json").exists()


def test_equal_records_give_equal_bytes(finished, archived, tmp_path):
    for source in (finished, archived):
        again = archive(load_results(source), tmp_path / f"of-{source.name}")
        assert (again / ARCHIVE).read_bytes() == (archived / ARCHIVE).read_bytes()


def test_it_is_read_as_the_whole(finished, archived):
    results, whole = load_results(archived), load_results(finished)
    assert results.root == whole.root and results.path == archived
    for table in ("scores", "probes", "items"):
        rows = (repr(getattr(one, table).to_pylist()) for one in (results, whole))  # NaN is NaN
        assert next(rows) == next(rows)
    assert paribus.decide(paribus.analyse(results)) == paribus.decide(paribus.analyse(whole))
    for verb in (["status"], ["report", "--no-pdf"], ["verify"]):
        assert main([*verb, str(archived)]) == 0
    assert (archived / "report.html").is_file() and not (archived / "trials").exists()


def test_without_weights_nothing_is_run(archived, tmp_path):
    results = load_results(archived)
    with refused("missing"):
        results.finished[0].read_weights()
    with refused("different"):
        paribus.run(results.study, results.path)
    assert main(["export", str(archived), str(tmp_path / "x"), "--trial", "baseline/seed-1"]) == 2
    assert main(["evaluate", str(archived)]) == 2


def test_a_changed_record_is_found(archived):
    members = content(archived)
    name = "trials/baseline/seed-1/evaluation.json"
    repack(archived, members | {name: members[name].replace(b"1", b"2", 1)})
    (finding,) = paribus.verify(archived).findings[:1]
    assert "baseline/seed-1" in finding and "evaluation.json" in finding


@pytest.mark.parametrize("name", ["../out", "trials/../../out"])
def test_an_archive_writes_nowhere_else(name, archived, capsys):
    repack(archived, content(archived) | {name: b"x"})
    assert main(["verify", str(archived)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable() and not list(archived.parent.rglob("out"))


def test_links_and_damage_are_refused(archived):
    whole = (archived / ARCHIVE).read_bytes()
    repack(archived, {"trials/link": b""}, tarfile.SYMTYPE)
    with refused("changed"):
        paribus.verify(archived)
    for data in (whole[: len(whole) // 2], b"no archive", b""):
        (archived / ARCHIVE).write_bytes(data)
        with refused("changed"):
            paribus.verify(archived)


@pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
def test_a_trial_is_trained_again_to_the_same_bytes(finished, archived):
    retrain = script("retrain")
    equal = retrain.retrain(archived, "layernorm", 2)
    assert equal["weights.safetensors"] and equal["steps.parquet"] and equal["blocks.parquet"]
    assert all(equal.values()), equal
    manifest = finished / "trials/layernorm/seed-2/manifest.json"
    sealed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(sealed | {"weights.safetensors": "0" * 64}))
    equal = retrain.compare(load_results(archived), finished, "layernorm", 2)
    assert not equal["weights.safetensors"] and equal["steps.parquet"]
