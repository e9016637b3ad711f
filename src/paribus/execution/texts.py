"""The texts of a study's arms: read, held against one another, and budgets in bytes of them."""

from __future__ import annotations

from paribus.data import Dataset, load_dataset
from paribus.decision import find_rule
from paribus.errors import ParibusError
from paribus.study import Data, Study, parse_study, require_trust
from paribus.study.study import ALTERNATIVES


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


def settled_budgets(study: Study) -> Study:
    """`study` with the iterations of every arm stated, where its budgets match in bytes.

    An arm trains on as many bytes as its reference, to the nearest step: its iterations follow from
    the bytes that its training tokens are. Raises ParibusError where an arm states others.
    """
    if study.training.budget == "tokens" or not study.contrasts:
        return study
    datasets = read_data(study)
    stated: dict[str, int] = {}

    def iterations(arm: str) -> int:
        if arm in stated:
            return stated[arm]
        setting, reference = study.setting(arm), study.reference(arm)
        if reference is None:
            return setting.iterations
        theirs = study.setting(reference)
        wanted = iterations(reference) * theirs.tokens_per_step
        wanted *= datasets[theirs.data].bytes_per_token
        each = setting.tokens_per_step * datasets[setting.data].bytes_per_token
        return max(round(wanted / each), 1)

    table = study.model_dump()
    for arm, _ in study.contrasts:
        stated[arm] = iterations(arm)
        own = table["arms"][arm]["set"]
        there = study.setting(arm).iterations
        if ALTERNATIVES.keys() & own.keys() and there != stated[arm]:
            raise ParibusError(
                f"arm '{arm}' states {there} iterations, and the bytes of its reference come to "
                f"{stated[arm]}; leave them out, or state training.budget = 'tokens'"
            )
        if there != stated[arm]:
            own["training.iterations"] = stated[arm]
    if table == study.model_dump():
        return study
    return parse_study(
        table, folder=study.folder, label="budgets in bytes", foreign=study.is_foreign
    )
