"""The start of a run: its texts, and the study as its folder has registered it."""

from __future__ import annotations

from typing import Any

from paribus.decision import find_rule
from paribus.digests import digest
from paribus.engine.cost import is_large
from paribus.engine.data import Dataset, describe_data, load_dataset
from paribus.engine.data.train_tokenizer import train_missing
from paribus.engine.ops import shortcoming
from paribus.engine.setting import Data, is_open, with_precision
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, extended
from paribus.study import Study, require_trust, with_choice

DRY_ROWS = 2 * 6  # windows of a dry run: two in each of six passes


def large_arms(study: Study, datasets: dict[Data, Dataset]) -> set[str]:
    """Return the arms with which a dry run on a CPU would take minutes."""
    settings = {arm: study.setting(arm) for arm in study.arms}
    return {
        arm
        for arm, setting in settings.items()
        if is_large(setting, datasets[setting.data].vocab_size, DRY_ROWS)
    }


def step_identity(study: Study, arm: str) -> str:
    """Return the digest of what a step of `arm` is: alike of arms that one dry run is for."""
    setting = study.setting(arm)
    shared = (setting if study.probes.own else setting.common).model_dump(mode="json")
    if not setting.own_parts and not study.probes.own:
        del shared["training"]["schedule"]["warmup"]
    return digest(shared)


def as_registered(study: Study, folder: ResultsFolder) -> Study:
    """`study` with what was settled in `folder`: its precision, where it leaves it open itself,
    what its tuning chose, and a second stage."""
    if is_open(study) and folder.exists:
        study = with_precision(study, folder.read_study().training.precision)
    if study.tuning is not None:
        # A study that is run anew, or with another plan, is tuned anew.
        there = folder.read_study().tuning if folder.exists else None
        same = there if there and there.same_plan(study.tuning) else None
        chosen = same.chosen if same and same.chosen.keys() == study.arms.keys() else {}
        study = with_choice(study, chosen)
    return extended(study, folder)


def device_warnings(study: Study, machine: dict[str, Any]) -> list[str]:
    """Return what is slow on this machine, a line each: a precision of `study` that its device has
    to emulate, and a CPU without compiled kernels for want of a compiler."""
    lines = [
        f"{precision} on this {machine['device']} is emulated: right, but slow"
        for precision in _emulated(study, machine)
    ]
    if machine["device"] == "cpu" and (words := shortcoming()):
        lines.append(
            f"{words}: PyTorch's own kernels train here, some 1.2 times slower; install g++ or "
            "clang++, or say --cpu-kernels off"
        )
    return lines


def _emulated(study: Study, machine: dict[str, Any]) -> list[str]:
    """Return the precisions that arms ask for and the device only emulates.

    PyTorch does not tell for MPS, and none of our kernels has float16.
    """
    wanted = {study.setting(arm).training.precision for arm in study.arms}
    native = {"float32", machine["precision"]}
    native |= set() if machine["device"] == "cpu" else {"float16"}
    return [] if machine["device"] == "mps" else sorted(wanted - native)


def read_data(study: Study) -> dict[Data, Dataset]:
    """Return the text as the study and each arm read it; one that cannot be read is told at once.

    Raises ParibusError also where two arms that are compared have other held-out text.
    """
    require_trust(study)  # a corpus may be custom code
    find_rule(study)
    found: dict[Data, Dataset] = {}
    for data in dict.fromkeys((study.data, *(study.setting(arm).data for arm in study.arms))):
        train_missing(data, study.folder)
    found[study.data] = load_dataset(study.data, study.folder)
    for arm in study.arms:
        data = study.setting(arm).data
        if data not in found:
            try:
                found[data] = load_dataset(data, study.folder)
            except ParibusError as error:
                raise ParibusError(f"arm '{arm}': {error}") from None
    for arm, reference in study.contrasts:
        ours, theirs = (found[study.setting(one).data] for one in (arm, reference))
        for part, name in (("validation", "validation_text"), ("test", "test")):
            digests = [one.digests.get(name) for one in (ours, theirs)]
            if digests[0] != digests[1]:
                shown = " and ".join(str(digest)[:12] for digest in digests)
                raise ParibusError(
                    f"arms '{arm}' and '{reference}' have different {part} text (SHA-256 {shown}); "
                    f"arms are compared on the same bytes: state one data.{part}_path for all"
                )
    return found


def described(study: Study, datasets: dict[Data, Dataset]) -> dict[str, Any]:
    """Return what data.json says: of the shared text, and under `arms` of that of each arm that
    reads another.

    Text is the same where its tokens are, whatever the windows and their order.
    """
    shared = datasets[study.data]
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for arm in study.arms:
        dataset = datasets[study.setting(arm).data]
        key = tuple(dataset.digests.values())
        if key != tuple(shared.digests.values()):
            if key not in tables:
                tables[key] = describe_data(dataset)
            found[arm] = tables[key]
    return describe_data(shared) | ({"arms": found} if found else {})
