"""The precision of a study on a device: what "auto" means there, and what cannot be done well."""

from __future__ import annotations

from paribus.engine.execution.messages import Ready
from paribus.engine.execution.pool import Pool
from paribus.engine.ops import shortcoming
from paribus.results import ResultsFolder, extended
from paribus.study import Study, is_open, with_choice, with_precision


def as_registered(study: Study, folder: ResultsFolder) -> Study:
    """`study` with what was settled in `folder`: its precision, where it leaves it open itself,
    what its tuning chose, and a second stage."""
    if is_open(study) and folder.exists:
        study = with_precision(study, folder.read_study().training.precision)
    if study.tuning is not None:
        # A study that is run anew, or with another plan, is tuned anew.
        there = folder.read_study().tuning if folder.exists else None
        chosen = there.chosen if there and there.same_plan(study.tuning) else {}
        study = with_choice(study, chosen if chosen.keys() == study.arms.keys() else {})
    return extended(study, folder)


def settle_precision(study: Study, ready: Ready, pool: Pool) -> Study:
    """`study` with the precision that "auto" means on the device of a worker that is `ready`.

    Every worker of `pool` works on that study from now on.
    """
    if not is_open(study):
        return study
    settled = with_precision(study, ready.precision)
    pool.work_on(settled)
    return settled


def device_warnings(study: Study, ready: Ready) -> list[str]:
    """What is slow on the device of `ready`, a line each: a precision of `study` that it has to
    emulate, and a CPU without compiled kernels for want of a compiler."""
    lines = [
        f"{precision} on this {ready.device} is emulated: right, but slow"
        for precision in _emulated(study, ready)
    ]
    if ready.device == "cpu" and (words := shortcoming()):
        lines.append(
            f"{words}: PyTorch's own kernels train here, some 1.2 times slower; install g++ or "
            "clang++, or say --cpu-kernels off"
        )
    return lines


def is_emulated(study: Study, ready: Ready) -> bool:
    """Whether an arm wants products of a device that has none of their precision."""
    return bool(_emulated(study, ready))


def _emulated(study: Study, ready: Ready) -> list[str]:
    """Those precisions. Of MPS, PyTorch does not tell; float16 no kernel of ours has."""
    wanted = {study.setting(arm).training.precision for arm in study.arms}
    there = {"float32", ready.precision, *(() if ready.device == "cpu" else ("float16",))}
    return [] if ready.device == "mps" else sorted(wanted - there)
