"""Scores of trials on the withheld test split, stored separately from the trials' records.

The test split is read once, after all trials have finished (`engine.data.open_test`), and every
trial is evaluated on it. The verdict then uses these scores, whose digests are in `test.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from paribus.files import file_digest
from paribus.metric import Metric
from paribus.results.formats import seal_problem
from paribus.results.store import TEST, ResultsFolder
from paribus.results.trial_folder import TrialFolder
from paribus.untrusted_io import is_regular

FOLDER = "test"
FILES = ("tested.json", "evaluation.json", "evaluation.parquet", "blocks.parquet")

Tested = dict[tuple[str, int], TrialFolder]


def heldout_folder(folder: ResultsFolder, arm: str, seed: int) -> TrialFolder:
    """Return the folder for a trial's test scores, which may not exist yet."""
    return TrialFolder(folder.records / FOLDER / arm / f"seed-{seed}", arm, seed)


def is_tested(folder: ResultsFolder, trial: TrialFolder) -> bool:
    """Return whether the current weights of a trial were evaluated on the test split.

    tested.json is written last, and contains the manifest digest of the evaluated trial.
    """
    home = heldout_folder(folder, trial.arm, trial.seed)
    return is_regular(home.path / FILES[0]) and home.read_json(FILES[0])["trial"] == trial.seal


def seal_heldout(folder: ResultsFolder, trials: Iterable[TrialFolder]) -> None:
    """Write test.json, which contains the digests of all test scores."""
    sealed = {}
    for trial in trials:
        home = heldout_folder(folder, trial.arm, trial.seed)
        sealed[trial.label] = {name: file_digest(home.path / name) for name in FILES}
    folder.seal(TEST, {"trials": sealed})


def read_heldout(folder: ResultsFolder, finished: Iterable[TrialFolder]) -> Tested:
    """Return the folders of all verified test scores, keyed by (arm, seed).

    Returns {} before the test split is read. Raises ParibusError if a file was changed.
    """
    sealed, tested = folder.read_sealed(TEST).get("trials", {}), {}
    for trial in finished:
        if trial.label not in sealed:
            continue
        home = heldout_folder(folder, trial.arm, trial.seed)
        for name, digest in sealed[trial.label].items():
            if problem := seal_problem(home.path / name, digest):
                raise home.error(f"{problem} (scores on the test split)")
        if not is_tested(folder, trial):
            raise home.error("scores on the test split were computed with different weights")
        tested[trial.arm, trial.seed] = home
    return tested


def on_heldout_part(metrics: Mapping[str, Metric], held: Tested) -> dict[str, Metric]:
    """Return `metrics`, relabelled as test metrics if they were measured on the test split."""
    measured = {name for home in held.values() for name in home.read_json(FILES[0])["scores"]}
    renamed = {}
    for name, metric in metrics.items():
        label = metric.label
        label = label.replace("validation", "test") if "validation" in label else f"test {label}"
        is_measured = metric.record == "evaluation" and metric.key in measured
        of_text = metric.record == "parts" or is_measured
        renamed[name] = replace(metric, label=label) if of_text else metric
    return renamed
