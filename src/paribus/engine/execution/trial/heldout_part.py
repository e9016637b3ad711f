"""The sealed test part: opened once, on the record, when every trial is finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from paribus.engine.data import Dataset, open_test
from paribus.engine.data.tokens import tokens_digest
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, looks_left, needed_trials, read_looks
from paribus.results.heldout_part import heldout_folder, is_tested, purpose
from paribus.results.opened_texts import open_in_ledger
from paribus.results.store import LEDGER, TEST, TEST_PART
from paribus.study import Study, first_stage
from paribus.study.trainer import Trial

if TYPE_CHECKING:
    import torch


def require_sealed(study: Study, folder: ResultsFolder) -> None:
    """Raise ParibusError if the test part was read before the verdict asked for it."""
    opened = folder.read_opened() if folder.exists else None
    if opened is None or folder.has_sealed(TEST):
        return
    early = f"for '{opened['purpose']}'"
    if opened["purpose"] == purpose(study.name):
        first, looks = first_stage(study), read_looks(folder)
        trials = [folder.trial(*trial) for trial in needed_trials(first, looks)]
        missing = [trial for trial in trials if not trial.is_finished]
        if not missing and not looks_left(first, looks):
            return  # interrupted while the trials were evaluated on it
        early = "before its last look was taken"
        if missing:
            early = f"while {missing[0].label} was not finished"
    raise ParibusError(
        f"{folder.path}: the test part was read before its time, on {opened['opened']}, {early}; "
        "seal other text, in another folder",
        code="conflict",
    )


def is_judged(folder: ResultsFolder, dataset: Dataset, trials: Sequence[Trial]) -> bool:
    """Return whether all of `trials` were evaluated on the test part, or none is sealed."""
    if dataset.test is None:
        return True
    are_tested = all(is_tested(folder, folder.trial(*trial)) for trial in trials)
    return are_tested and folder.has_sealed(TEST)


def open_heldout_part(
    study: Study, folder: ResultsFolder, dataset: Dataset, trials: Sequence[Trial]
) -> list[Trial]:
    """Open the test part on the record; return the trials that are not evaluated on it yet.

    All of `trials` must be finished.
    """
    assert dataset.test is not None

    def write_opened(opened: Mapping[str, str]) -> None:
        reuse = open_in_ledger(folder, study, opened["opened"])  # before the results folder
        folder.seal(TEST_PART, opened)
        folder.seal(LEDGER, reuse)

    record: Any = SimpleNamespace(
        path=folder.path, read_opened=folder.read_opened, write_opened=write_opened
    )
    open_test(dataset.test, record, purpose(study.name))
    opened = folder.read_opened()
    if opened and not folder.has_sealed(LEDGER):  # interrupted between the two
        folder.seal(LEDGER, open_in_ledger(folder, study, opened["opened"]))
    return [trial for trial in trials if not is_tested(folder, folder.trial(*trial))]


def evaluate_heldout_part(
    study: Study, results: ResultsFolder, dataset: Dataset, device: torch.device, trial: Trial
) -> None:
    """Evaluate a trial, in a worker, on the test part that the run has opened for the verdict."""
    # Not at the top: the process that opens the part imports no PyTorch.
    from paribus.engine.execution.trial.record import (
        evaluate_text,
        heldout_scores,
        plain,
        write_evaluation,
    )
    from paribus.engine.model import build_model, load_parameters

    assert dataset.test is not None
    finished, setting = results.trial(*trial), study.setting(trial[0])
    model = build_model(setting, dataset.vocab_size, study.folder).to(device)
    load_parameters(model, finished.read_weights())
    tokens = open_test(dataset.test, results, purpose(study.name))
    test_text = replace(
        dataset,
        validation=tokens,
        held_out=dataset.test.text,
        digests=dataset.digests | {"validation": tokens_digest(tokens)},
    )
    heldout, code = evaluate_text(study, model, test_text, setting.data.seq_len)
    scores = heldout_scores(heldout, code)
    folder = heldout_folder(results, *trial)
    write_evaluation(folder, heldout)
    # Scores of anything else, such as accuracy on tasks, stay as they were.
    folder.write_json("evaluation.json", finished.read_json("evaluation.json") | plain(scores))
    summary = {"trial": finished.seal, "scores": sorted(scores), "blocks": heldout.blocks.record}
    folder.write_json("tested.json", summary)  # written last: its presence means evaluated
