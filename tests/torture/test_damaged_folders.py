"""One file of a results folder damaged, and verbs that read it: one line, or the right answer."""

import random
import shutil
from pathlib import Path

import pytest

from ..tools import verb

VERBS = (["status"], ["verify"], ["report", "--no-page"])
ANSWERS = ("analysis.json", "verdict.json")
UNSEALED = ("timing.json", "analysis.json", "verdict.json")
DAMAGES = ("remove", "empty", "cut", "flip", "replace", "folder")


def damage(path: Path, how: str, rng: random.Random) -> None:
    """Damage a file."""
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "flip":
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    elif how != "remove":
        path.write_bytes({"empty": b"", "cut": content[:at], "replace": b"\0[1e999]"}[how])


def answers(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ANSWERS]


@pytest.mark.parametrize("n", [15, pytest.param(1000, marks=pytest.mark.torture)])
def test_damaged_folders(n, tmp_path, small_study, fabricate):
    change = {"set": {"model.embedding.norm": "layernorm"}}
    study = small_study(arms={"baseline": {}, "layernorm": change}, seeds=[1, 2, 3])
    whole = fabricate(study, lambda arm, seed: 3 + seed / 50 + (arm != "baseline") * seed / 99).path
    assert verb(*VERBS[-1], whole)[0] == 0
    right, files = answers(whole), sorted(path for path in whole.rglob("*") if path.is_file())
    for number in range(n):
        rng = random.Random(number)
        file, how = rng.choice(files), rng.choice(DAMAGES)
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        damage(folder / file.relative_to(whole), how, rng)
        case = f"damage {number}: {how} {file.relative_to(whole)}"
        codes = {}
        for name, *options in VERBS:
            codes[name], _, errors = verb(name, *options, folder)
            assert codes[name] in (0, 2, 3), case
            assert codes[name] != 2 or errors.count("\n") == 1, f"{case}: {errors}"
        if codes["report"] == 0 and file.name not in UNSEALED and file.name != "manifest.json":
            assert answers(folder) == right, case
