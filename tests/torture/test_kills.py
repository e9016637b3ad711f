"""kill -9 at random moments, then the same command again: as if nothing had happened.

Three kills are marked slow; `PARIBUS_KILLS=300 pytest -m torture tests/torture/test_kills.py`
makes as many.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from .harness import Counts, Undisturbed, kill_and_go_on, litter, undisturbed, written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in /proc")

VERBS = ("train", "run", "evaluate", "register", "report", "export")
# Of a hundred kills; training has the most to lose.
SHARES = dict(zip(VERBS, (40, 12, 12, 12, 12, 12), strict=True))
KILLS = int(os.environ.get("PARIBUS_KILLS", "50"))
SEED = int(os.environ.get("PARIBUS_SEED", "20261122"))


def survive(reference: Undisturbed, at: Path, verb: str, kills: int, counts: Counts) -> None:
    """Kills of one folder, and what is left of it in the end."""
    rng = random.Random(f"{SEED}/{verb}/{at.name}")
    folder = reference.copy_for(verb, at)
    kill_and_go_on(folder, verb, reference, kills, rng, counts)
    assert not litter(folder), litter(folder)
    ours, theirs = written(folder, verb), reference.writes[verb]
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.mark.slow
def test_a_few_kills(tmp_path):
    reference = undisturbed(tmp_path / "whole", ("train", "export"))
    for at, (verb, kills) in enumerate((("train", 2), ("export", 1))):
        survive(reference, tmp_path / f"{at}", verb, kills, Counts())


@pytest.mark.torture
def test_many_kills(tmp_path):
    verbs = ("run", *(verb for verb in VERBS if verb != "run"))
    reference = undisturbed(tmp_path / "whole", verbs)
    print({verb: round(seconds, 1) for verb, seconds in reference.seconds.items()}, flush=True)
    counts, rng = Counts(), random.Random(SEED)
    left = {verb: round(KILLS * share / 100) for verb, share in SHARES.items()}
    while any(n > 0 for n in left.values()):
        verb = rng.choice([verb for verb, n in left.items() for _ in range(max(n, 0))])
        before = counts.kills.get(verb, 0)
        at = tmp_path / f"{counts.folders}"
        survive(reference, at, verb, min(left[verb], rng.randint(1, 4)), counts)
        shutil.rmtree(at)
        counts.folders += 1
        left[verb] -= counts.kills.get(verb, 0) - before
        print(counts, flush=True)
