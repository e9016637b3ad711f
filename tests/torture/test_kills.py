"""kill -9 at random moments, then the same command again: as if nothing had happened.

Three kills are marked slow; `PARIBUS_KILLS=300 pytest -m torture tests/torture/test_kills.py`
makes as many.
"""

import itertools
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from .harness import Undisturbed, kill_and_go_on, litter, undisturbed, written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in /proc")

VERBS = ("run", "evaluate", "register", "report", "export")
# Of a hundred kills; training has the most to lose.
SHARES = dict(zip(VERBS, (52, 12, 12, 12, 12), strict=True))
KILLS = int(os.environ.get("PARIBUS_KILLS", "50"))
SEED = int(os.environ.get("PARIBUS_SEED", "20261122"))


def survive(reference: Undisturbed, at: Path, verb: str, kills: int) -> int:
    """Kill a verb in one folder, and compare what is left of it in the end; return the kills."""
    rng = random.Random(f"{SEED}/{verb}/{at.name}")
    folder = reference.copy_for(verb, at)
    made = kill_and_go_on(folder, verb, reference, kills, rng)
    assert not litter(folder), litter(folder)
    ours, theirs = written(folder, verb), reference.writes[verb]
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    return made


@pytest.mark.slow
def test_a_few_kills(tmp_path):
    reference = undisturbed(tmp_path / "whole", ("run", "export"))
    for at, (verb, kills) in enumerate((("run", 2), ("export", 1))):
        survive(reference, tmp_path / f"{at}", verb, kills)


@pytest.mark.torture
def test_many_kills(tmp_path):
    reference = undisturbed(tmp_path / "whole", VERBS)
    rng = random.Random(SEED)
    left = {verb: round(KILLS * share / 100) for verb, share in SHARES.items()}
    for number in itertools.count():
        if not (verbs := [verb for verb, n in left.items() for _ in range(max(n, 0))]):
            return
        verb = rng.choice(verbs)
        left[verb] -= survive(reference, tmp_path / f"{number}", verb, rng.randint(1, 4))
        shutil.rmtree(tmp_path / f"{number}")
        print(left, flush=True)
