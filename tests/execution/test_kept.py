"""A kept study: all of it but the weights, verified, unpacked, and refused where it was touched."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import paribus
from paribus.cli import main
from paribus.errors import ParibusError
from paribus.results import keep, keeping, load_results, readable, unpack
from paribus.results.store import PACKED_RECORDS, root_digest
from paribus.study import Study
from paribus.untrusted_io import MIB

from ..conftest import studies_in
from ..made_once import made_once
from ..studies import headline
from ..studies.scripts import HOME, script
from ..tuned_results import tables, tuned_and_trained
from .conftest import Trained

TWO_ARMS = {"baseline": {}, "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}}}


@pytest.fixture(scope="module")
def made(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `finished` and `kept`, of which tests take copies."""
    folder = tmp_path_factory.mktemp("made")
    finished = shutil.copytree(trained.results.path, folder / "finished")
    main(["report", "--no-page", str(finished)])
    keep(finished, folder / "kept")
    return folder


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    """The trained study with what `paribus run` writes at its end."""
    return shutil.copytree(made / "finished", tmp_path / "finished")


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Path:
    """It as it is kept."""
    return shutil.copytree(made / "kept", tmp_path / "kept")


@pytest.mark.parametrize("verb", ["status", "report", "evaluate"])
def test_as_it_lies_it_is_no_results_folder(
    kept: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty study would be read in its place, and called unfinished."""
    before = {path.name for path in kept.iterdir()}
    assert main([verb, str(kept)]) == 2
    assert f"`paribus unpack {kept} FOLDER` makes a results folder" in capsys.readouterr().err
    with pytest.raises(ParibusError, match="is a kept study, whose records are packed"):
        paribus.load_results(kept)
    assert {path.name for path in kept.iterdir()} == before


def archive_of(kept: Path) -> dict[str, bytes]:
    with tarfile.open(kept / PACKED_RECORDS) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


def pack(kept: Path, members: dict[str, bytes], **odd: bytes) -> None:
    """Write the archive anew; a member named in `odd` has that type."""
    with tarfile.open(kept / PACKED_RECORDS, "w:xz", preset=0) as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size, about.type = len(content), odd.get("type", tarfile.REGTYPE)
            about.linkname = "/etc/passwd"
            archive.addfile(about, io.BytesIO(content))


def test_all_is_kept_but_the_weights(finished: Path, kept: Path) -> None:
    found = paribus.verify(kept)
    assert found.findings == ()
    assert found.root == root_digest(finished)
    assert any("none were kept" in line for line in found.checked)
    records = {
        path.relative_to(finished).as_posix(): path.read_bytes()
        for path in finished.glob("trials/*/*/*")
        if path.name != "weights.safetensors"
    }
    inside = archive_of(kept)
    assert records.items() <= inside.items()
    assert not [name for name in inside if name.endswith(".safetensors")]
    assert main(["verify", str(kept)]) == 0


def test_equal_records_give_equal_bytes(finished: Path, kept: Path, tmp_path: Path) -> None:
    again = keep(finished, tmp_path / "again")
    assert (again / PACKED_RECORDS).read_bytes() == (kept / PACKED_RECORDS).read_bytes()
    assert keep(unpack(kept, tmp_path / "r"), tmp_path / "third").is_dir()
    assert archive_of(tmp_path / "third") == archive_of(kept)


def test_what_is_unpacked_is_read_as_the_whole(finished: Path, kept: Path, tmp_path: Path) -> None:
    results = load_results(unpack(kept, tmp_path / "results"))
    whole = load_results(finished)
    assert results.root == whole.root
    for table in ("scores", "probes", "items"):
        rows = (repr(getattr(one, table).to_pylist()) for one in (results, whole))  # NaN is NaN
        assert next(rows) == next(rows)
    verdicts = paribus.decide(paribus.analyse(results))
    assert verdicts == paribus.decide(paribus.analyse(whole))


def test_a_study_is_named_once_whether_kept_or_not(
    finished: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "--new", str(kept), str(finished), "-o", str(tmp_path / "p.md")]) == 2
    assert "name each study once" in capsys.readouterr().err  # it was read, and is the same


def test_without_weights_nothing_is_run(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = load_results(unpack(kept, tmp_path / "results"))
    with pytest.raises(ParibusError, match="were not kept"):
        results.finished[0].read_weights()
    with pytest.raises(ParibusError, match="no weights to evaluate"):
        paribus.verify(kept, trials=True)
    with pytest.raises(ParibusError, match="read only"):
        paribus.run(results.study, results.path)
    assert main(["export", str(results.path), str(tmp_path / "x"), "--trial", "baseline/seed-1"])
    assert "were not kept" in capsys.readouterr().err


def test_a_changed_record_is_found(kept: Path) -> None:
    members = archive_of(kept)
    name = "trials/baseline/seed-1/evaluation.json"
    members[name] = members[name].replace(b"1", b"2", 1)
    pack(kept, members)
    (finding,) = paribus.verify(kept).findings[:1]
    assert finding.endswith(
        "evaluation.json was changed after it was written; restore the kept study"
    )
    with (
        pytest.raises(ParibusError, match="restore the kept study") as refused,
        readable(kept) as at,
    ):
        raise ParibusError(f"{at}/trials/x.parquet is damaged; delete {at}/trials and run again")
    assert "paribus-kept" not in str(refused.value) and str(kept) in str(refused.value)


def test_another_root_is_found(kept: Path) -> None:
    about = json.loads((kept / "kept.json").read_text())
    (kept / "kept.json").write_text(json.dumps(about | {"root": "0" * 64}))
    assert any("states the root" in line for line in paribus.verify(kept).findings)


@pytest.fixture(scope="module")
def with_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `finished`, a study that keeps weights on the way, of which tests take copies.

    `kept` is it as `keep` wrote it.
    """

    def train(folder: Path) -> None:
        study = studies_in(folder)(
            {"training.keep": [4], "tasks.names": []}, seeds=[1, 2], arms=TWO_ARMS
        )
        paribus.run(study, folder / "finished", workers=2)
        main(["report", "--no-page", str(folder / "finished")])

    made = made_once(tmp_path_factory, "trained-with-steps", train)
    folder = tmp_path_factory.mktemp("with-steps")
    shutil.copytree(made / "finished", folder / "finished")
    keep(folder / "finished", folder / "kept")
    return folder


def test_weights_of_steps_are_left_out_too(with_steps: Path, tmp_path: Path) -> None:
    kept, finished = with_steps / "kept", with_steps / "finished"
    assert list(finished.glob("trials/*/*/weights-4.safetensors"))
    found = paribus.verify(kept)
    assert found.findings == () and found.root == root_digest(finished)
    assert any(
        "weights after step 4" in line and "none were kept" in line for line in found.checked
    )
    results = load_results(unpack(kept, tmp_path / "r"))
    whole = paribus.decide(paribus.analyse(load_results(finished)))
    assert paribus.decide(paribus.analyse(results)) == whole
    for step in (4, 5, None):
        with pytest.raises(ParibusError, match="were not kept"):
            results.finished[0].read_weights(step)


def test_weights_of_steps_that_were_never_sealed_are_found(
    with_steps: Path, tmp_path: Path
) -> None:
    """What is left out is left out by the manifest, and not by the folder's word alone."""
    kept = shutil.copytree(with_steps / "kept", tmp_path / "kept")
    members = archive_of(kept)
    name = "trials/baseline/seed-1/manifest.json"
    sealed = json.loads(members[name])
    for wrong in (
        {key: value for key, value in sealed.items() if key != "weights-4.safetensors"},
        sealed | {"weights-5.safetensors": "0" * 64},
    ):
        pack(kept, members | {name: json.dumps(wrong).encode()})
        assert any("of other steps" in line for line in paribus.verify(kept).findings)


def test_what_cannot_be_read_back_is_not_kept(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = keeping._archive

    def without(name: str) -> Callable[..., bytes]:
        def cut(home: keeping._Home) -> keeping._Home:
            return replace(home, files={f: c for f, c in home.files.items() if f.name != name})

        return lambda homes, *args, **options: archive(
            {path: cut(home) for path, home in homes.items()}, *args, **options
        )

    for broken in (lambda *_, **__: b"", without("steps.parquet"), without("manifest.json")):
        monkeypatch.setattr(keeping, "_archive", broken)
        with pytest.raises(ParibusError, match="could not be read back") as told:
            keep(finished, tmp_path / "out" / "kept")
        assert ".part" not in str(told.value) and str(finished) in str(told.value)
        assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "../out",
        "/etc/x",
        "trials/../../out",
        "other/x",
        "trials/.hidden",
        "trials",
        "trials" + "/a" * 64,
    ],
)
def test_an_archive_writes_nowhere_else(name: str, kept: Path, tmp_path: Path) -> None:
    pack(kept, archive_of(kept) | {name: b"x"})
    with pytest.raises(ParibusError, match="which is no record"):
        unpack(kept, tmp_path / "results")
    assert not (tmp_path / "results").exists() and not (tmp_path / "out").exists()


def test_links_and_damage_are_one_line(kept: Path, tmp_path: Path) -> None:
    whole = (kept / PACKED_RECORDS).read_bytes()
    pack(kept, {"trials/link": b""}, type=tarfile.SYMTYPE)
    with pytest.raises(ParibusError, match="which is no record"):
        paribus.verify(kept)
    for content in (whole[: len(whole) // 2], b"no archive", b""):
        (kept / PACKED_RECORDS).write_bytes(content)
        with pytest.raises(ParibusError, match="is not the archive"):
            unpack(kept, tmp_path / "results")


def bomb(kept: Path, *blocks: bytes) -> None:
    """Write an archive of these blocks."""
    with lzma.open(kept / PACKED_RECORDS, "wb", preset=0) as file:
        for block in blocks:
            file.write(block)


def header(name: str, size: int, kind: bytes) -> bytes:
    about = tarfile.TarInfo(name)
    about.size, about.type = size, kind
    return about.tobuf(tarfile.GNU_FORMAT)


GIB = 2**30


@pytest.mark.parametrize(
    "blocks",
    [
        [header("x", 3 * GIB, tarfile.XHDTYPE)],
        [header("x", 3 * GIB, tarfile.GNUTYPE_LONGNAME)],
        [header("trials/a", 2 * GIB, tarfile.REGTYPE)],
        [header("trials/a", 2 * GIB, tarfile.GNUTYPE_SPARSE)],
        [header("trials/a", -GIB, tarfile.REGTYPE)],
        [header("x", 10, tarfile.XHDTYPE), b"99 path=a\n".ljust(512, b"\0")],
    ],
    ids=lambda blocks: f"{blocks[0][156:157].decode()}-{len(blocks)}",
)
def test_a_header_is_not_believed(blocks: list[bytes], kept: Path, tmp_path: Path) -> None:
    """What it claims is there, as zeros."""
    bomb(kept, *blocks, *[bytes(16 * MIB)] * 6)
    with pytest.raises(ParibusError, match="is not the archive"):
        unpack(kept, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["trials/a/{}", "trials/{}/" + "a/" * 60 + "b"])
def test_files_with_nothing_in_them_are_counted(
    name: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are the folders on the way to them."""
    monkeypatch.setattr(keeping, "ALWAYS_FILES", 16)
    pack(kept, {name.format(number): b"" for number in range(4000)})
    with pytest.raises(ParibusError, match="more files in it"):
        unpack(kept, tmp_path / "results")


def test_an_honest_archive_is_far_from_every_bound(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, bound in {"ALWAYS_BYTES": 0, "ALWAYS_FILES": 0, "MOST_RATIO": 50}.items():
        monkeypatch.setattr(keeping, name, bound)
    monkeypatch.setattr(keeping, "BYTES_PER_FILE", 320)
    assert unpack(kept, tmp_path / "results").is_dir()


@pytest.mark.parametrize(
    "name", ["trials/a\nb", "trials/\x1b[31mred", "trials/\x9b1m", "trials/\r"]
)
def test_a_name_that_a_terminal_obeys_is_not_printed(
    name: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack(kept, archive_of(kept) | {name: b"x"})
    assert main(["verify", str(kept)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "which is no record" in line and line.isprintable()


def test_long_and_foreign_names_are_read(kept: Path, tmp_path: Path) -> None:
    there = {f"sources/{'long/' * 60}é.py": b"", "sources/\udcff.py": b"2", "sources/ü": b"3" * 999}
    pack(kept, archive_of(kept) | there)
    results = unpack(kept, tmp_path / "results")
    assert {name: (results / name).read_bytes() for name in there} == there


def test_only_a_finished_study_is_kept(finished: Path, tmp_path: Path) -> None:
    (finished / "verdict.json").unlink()
    with pytest.raises(ParibusError, match=r"verdict\.json is missing"):
        keep(finished, tmp_path / "kept")
    shutil.rmtree(finished / "trials" / "baseline" / "seed-1")
    with pytest.raises(ParibusError, match="lacks 1 trials"):
        keep(finished, tmp_path / "kept")
    with pytest.raises(ParibusError, match="is no kept study"):
        unpack(finished, tmp_path / "results")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_detail_is_thinned_until_it_fits_on_the_record(finished: Path, tmp_path: Path) -> None:
    whole = keep(finished, tmp_path / "whole", most=None)
    assert "thinned" not in json.loads((whole / "kept.json").read_text())
    assert keeping.read_analysis(whole) == keeping.read_json(finished / "analysis.json")
    assert not (whole / "analysis.json").exists() and not (whole / "tables").exists()
    small = keep(finished, tmp_path / "small", most=size_of(whole) - 1)
    assert size_of(small) < size_of(whole)
    about = json.loads((small / "kept.json").read_text())
    assert about["thinned"] and about["sha256"] and about["root"] == root_digest(finished)
    changed = {name.rpartition("/")[2] for name in about["sha256"]}
    told = {name.removeprefix("test/") for name in about["thinned"]}
    assert changed == told <= {step.file for step in keeping.THINNING}
    members = archive_of(small)
    assert members.keys() == archive_of(whole).keys()
    found = paribus.verify(small)
    assert found.findings == () and any("thinned" in line for line in found.checked)
    verdicts = [
        paribus.decide(paribus.analyse(load_results(path)))
        for path in (unpack(small, tmp_path / "r"), finished)
    ]
    assert verdicts[0] == verdicts[1]
    again = keep(tmp_path / "r", tmp_path / "again")
    assert json.loads((again / "kept.json").read_text()) == about
    name = next(iter(about["sha256"]))
    pack(small, members | {name: archive_of(whole)[name]})
    assert any("was changed" in line for line in paribus.verify(small).findings)
    with pytest.raises(ParibusError, match=r"a kept study has at most 1,000"):
        keep(finished, tmp_path / "none", most=1000)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("every", [4, 16, keeping.MOST_BYTES])
def test_the_last_measurement_stays(every: int) -> None:
    """Endpoints of probes are read from it."""
    table = pa.table({"step": list(range(50))})
    left = keeping._rows(every)(table, None)["step"].to_pylist()  # type: ignore[arg-type]
    assert left[0] == 0 and left[-1] == 49


def test_nothing_is_overwritten(finished: Path, kept: Path) -> None:
    for act in (lambda: keep(finished, kept), lambda: unpack(kept, finished)):
        with pytest.raises(ParibusError, match="is there already"):
            act()


@pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
def test_a_trial_is_trained_again_to_the_same_bytes(
    finished: Path, kept: Path, tmp_path: Path
) -> None:
    retrain = script("retrain")
    equal = retrain.retrain(kept, "layernorm", 2)
    assert equal["weights.safetensors"] and equal["steps.parquet"] and equal["blocks.parquet"]
    assert all(equal.values()), equal
    results = load_results(unpack(kept, tmp_path / "results"))
    manifest = finished / "trials/layernorm/seed-2/manifest.json"
    sealed = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(sealed | {"weights.safetensors": "0" * 64}))
    equal = retrain.compare(results, finished, "layernorm", 2)
    assert not equal["weights.safetensors"] and equal["steps.parquet"]


@pytest.mark.parametrize("compares", [pytest.param("the loss", marks=pytest.mark.slow), "windows"])
def test_of_a_tuned_study_the_choice_can_be_made_again(
    small_study: Callable[..., Study], tmp_path: Path, compares: str
) -> None:
    """Where windows are compared, what the choice adds takes those of tuning trials too."""
    of_windows = {"target": "new items", "windows": "independent"}
    more = {"inference": of_windows} if compares == "windows" else {}
    study = small_study(**tables([1e-4, 1e-3, 1e-2]), **more)
    results = tuned_and_trained(study, tmp_path / "r")
    main(["report", "--no-page", str(results.path)])
    kept = keep(results.path, tmp_path / "kept")
    inside = archive_of(kept)
    n_tuned = sum(len(one.finished) for one in results.tuning_rounds)
    for name in ("probes.parquet", "blocks.parquet", "evaluation.parquet"):
        there = [path for path in inside if path.endswith(name)]
        assert len(there) == len(results.finished) + (n_tuned if more else 0)
    found = paribus.verify(kept)
    odd = ("missing", "probes", "tuning.json", "seal")
    assert not [line for line in found.findings if any(word in line for word in odd)]
    assert found.root == root_digest(results.path)
    with readable(kept) as folder:
        assert load_results(folder).study.model_dump() == results.study.model_dump()
        assert headline.best_values(folder) == results.study.tuning.chosen  # type: ignore[union-attr]
