"""Atomic completion of trials, exactly once even if several workers train the same trial."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from paribus.errors import ParibusError
from paribus.files import move_folder, private_folder, whole_folder
from paribus.results.trial_folder import KEPT, TrialFolder

REPEATS = "repeats"
# These name the machine, the stack or the time; so does what a program prints besides its scores.
OF_A_RUN = frozenset(
    {"trial.json", "environment.json", "machine.json", "output.log", "trial.jsonl"}
)


@contextmanager
def sealed_once(folder: TrialFolder) -> Iterator[TrialFolder]:
    """Yield a temporary folder for a trial's records, and rename it to `folder` on exit.

    If another worker has completed the trial in the meantime, the first record is used, whatever
    its scores. A second record with different results is stored in `repeats/`, with a warning.
    """
    with private_folder(folder.path) as path:
        draft = replace(folder, path=path)
        yield draft
        try:
            move_folder(path, folder.path)
        except ParibusError:
            if not folder.is_finished:
                if any(folder.path.glob("*")):
                    raise folder.error("manifest.json is missing") from None
                raise
            _keep_repeat(folder, draft)


def _keep_repeat(first: TrialFolder, second: TrialFolder) -> None:
    """Store a trial's second record in `repeats/` if its results differ from the first record."""
    before, after = first.sealed, second.sealed
    names = (before.keys() | after.keys()) - OF_A_RUN
    # The first to seal removes the weights of earlier steps that the second would have copied.
    names -= {name for name in before.keys() - after.keys() if KEPT.fullmatch(name)}
    if all(before.get(name) == after.get(name) for name in names):
        return
    home = first.path.parents[2] / REPEATS / first.arm
    kept = home / f"seed-{first.seed}.{len(list(home.glob(f'seed-{first.seed}.*'))) + 1}"
    with whole_folder(kept) as target:
        shutil.copytree(second.path, target, dirs_exist_ok=True)
    logging.getLogger("paribus").warning(
        "two workers ran trial %s with different results; the first record is used, and the second "
        "is stored in %s",
        *(first.label, kept),
    )
