"""The texts of a study's arms: read, and held against one another."""

from __future__ import annotations

from typing import Any

from paribus.decision import find_rule
from paribus.engine.data import Dataset, describe_data, load_dataset
from paribus.errors import ParibusError
from paribus.study import Data, Study, require_trust


def read_data(study: Study) -> dict[Data, Dataset]:
    """The text as the study and each arm read it; one that cannot be read is told at once.

    Raises ParibusError also where two arms that are compared have other held-out text.
    """
    require_trust(study)  # a corpus may be custom code
    find_rule(study)
    found: dict[Data, Dataset] = {}
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
    """What data.json says: of the shared text, and under `arms` of that of each arm that reads
    another.

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
