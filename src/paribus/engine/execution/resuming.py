"""Going on with a stack that was interrupted, or saying why it starts again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paribus.digests import digest, package_digest
from paribus.engine.data import Dataset
from paribus.engine.execution.checkpoints import Checkpoint, StackCheckpoints
from paribus.engine.execution.heldout_curve import HeldOutCurve
from paribus.engine.machine.environment import environment
from paribus.engine.training import ReplicaState, Trainer
from paribus.errors import ParibusError
from paribus.results import package_versions
from paribus.results.software import SAME_BITS
from paribus.study import Study, measuring_record, own_digests
from paribus.study.study import substance

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "numpy")  # whose states are not promised to fit those of other versions

Machine = dict[str, Any]


def machine(device: torch.device) -> Machine:
    """What the last bits of a training may depend on: it is continued elsewhere, on the record."""
    here = environment(device, 1)
    return {key: here[key] for key in SAME_BITS}


def identity(study: Study, arms: Sequence[str], dataset: Dataset, stack: Trainer) -> dict[str, Any]:
    """What has to be the same for a checkpoint of `arms` to be gone on from.

    Seeds are left out: those of the stack are its trials', and others may be added to a study.
    """
    dump = substance(study.model_dump(mode="json"))
    own = {arm: own_digests(study.setting(arm), study.folder) for arm in dict.fromkeys(arms)}
    return {
        "study": digest({key: value for key, value in dump.items() if key != "seeds"}),
        "data": dataset.digests,
        "own code": own,
        "own probes": measuring_record(study)["own_probes"],
        "code": package_digest(),
        "version": package_versions(PACKAGES),
        "device": stack.device.type,
    }


def save(
    stack: Trainer,
    checkpoints: StackCheckpoints,
    identity: dict[str, Any],
    seconds: float,
    curve: HeldOutCurve,
    machines: list[Machine],
) -> None:
    """Write the state of every replica, and the curve so far, as one checkpoint; `seconds` were
    spent on training, on `machines`."""
    replicas: list[dict[str, Any]] = []

    def states() -> Any:
        for replica in range(len(stack.seeds)):
            state = stack.state(replica)  # one at a time: a state may be as large as the memory
            replicas.append({"batch_digest": state.batch_digest, "diverged_at": state.diverged_at})
            yield state.arrays

    about = {
        "seconds": seconds,
        "stack": len(stack.seeds),
        "replicas": replicas,
        "curve": curve.saved,
        "machines": machines,
    }
    checkpoints.write(stack.t, states(), identity=identity, about=about)


def restore(
    stack: Trainer,
    checkpoints: StackCheckpoints,
    identity: dict[str, Any],
    curve: HeldOutCurve,
) -> tuple[float, list[Machine], str]:
    """Go on from the newest checkpoint that can be used, the stack and its curve.

    Returns the seconds already spent on training, the machines that it was trained on, and one line
    where a checkpoint could not be used.
    """
    failures: list[str] = []
    for found in checkpoints.newest_first():
        try:
            if not isinstance(found, Checkpoint):
                raise found
            found.require(identity)
            replicas = found.about["replicas"]
            states = found.states()
            points = curve.points_of(found.about.get("curve"), found.t)
            stack.restore(
                [
                    ReplicaState(found.t, arrays, one["batch_digest"], one["diverged_at"])
                    for arrays, one in zip(states, replicas, strict=True)
                ]
            )
        except ParibusError as error:
            failures.append(str(error).partition(";")[0])
            continue
        curve.points = points
        checkpoints.remove_after(found.t)
        way_on = f"training goes on from step {found.t}"
        about = found.about
        return about["seconds"], about["machines"], _words(checkpoints, failures, way_on)
    checkpoints.remove()
    return 0.0, [], _words(checkpoints, failures, "training starts again")


def _words(checkpoints: StackCheckpoints, failures: list[str], way_on: str) -> str:
    if not failures:
        return ""
    labels = ", ".join(f"{arm}/seed-{seed}" for arm, seed in checkpoints.trials[:4])
    more = len(checkpoints.trials) - 4
    labels += f" and {more} more" if more > 0 else ""
    return f"{labels}: the newest checkpoint cannot be used ({failures[0]}); {way_on}"
