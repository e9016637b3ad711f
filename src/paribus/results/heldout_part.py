"""Scores of trials on the sealed test part, stored next to their unchanged records.

The text is opened once, when every trial of the verdict is finished (`engine.data.open_test`),
and each trial is evaluated on it. `test.json` seals these scores, which the verdict then uses.
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
    """Return the folder of a trial's results on the test part, which may not exist yet."""
    return TrialFolder(folder.records / FOLDER / arm / f"seed-{seed}", arm, seed)


def is_tested(folder: ResultsFolder, trial: TrialFolder) -> bool:
    """Return whether the current weights of a trial were evaluated on the test part.

    tested.json is written last, and holds the seal of the trial that was evaluated.
    """
    home = heldout_folder(folder, trial.arm, trial.seed)
    return is_regular(home.path / FILES[0]) and home.read_json(FILES[0])["trial"] == trial.seal


def seal_heldout(folder: ResultsFolder, trials: Iterable[TrialFolder]) -> None:
    """Write and seal test.json: the digests of every trial's files."""
    sealed = {}
    for trial in trials:
        home = heldout_folder(folder, trial.arm, trial.seed)
        sealed[trial.label] = {name: file_digest(home.path / name) for name in FILES}
    folder.seal(TEST, {"trials": sealed})


def read_heldout(folder: ResultsFolder, finished: Iterable[TrialFolder]) -> Tested:
    """Return the folders of trials' test scores, keyed by (arm, seed).

    Returns {} before the test part is opened. Raises ParibusError if a record was changed.
    """
    sealed, tested = folder.read_sealed(TEST).get("trials", {}), {}
    for trial in finished:
        if trial.label not in sealed:
            continue
        home = heldout_folder(folder, trial.arm, trial.seed)
        for name, digest in sealed[trial.label].items():
            if problem := seal_problem(home.path / name, digest):
                raise home.error(f"{problem} (scores on the test part)")
        if not is_tested(folder, trial):
            raise home.error("its scores on the test part belong to other weights")
        tested[trial.arm, trial.seed] = home
    return tested


def on_heldout_part(metrics: Mapping[str, Metric], held: Tested) -> dict[str, Metric]:
    """Return `metrics` with labels that mark the numbers measured on the test part."""
    measured = {name for home in held.values() for name in home.read_json(FILES[0])["scores"]}
    renamed = {}
    for name, metric in metrics.items():
        label = metric.label
        label = label.replace("validation", "test") if "validation" in label else f"test {label}"
        is_measured = metric.record == "evaluation" and metric.key in measured
        of_text = metric.record == "parts" or is_measured
        renamed[name] = replace(metric, label=label) if of_text else metric
    return renamed
