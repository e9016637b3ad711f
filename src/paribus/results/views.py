"""What several views of one study's results have in common is read once, when one of them needs it.

A view is of other seeds, or has its held-out scores from the sealed test part; most records are the
same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from paribus.results.registration import read_registration
from paribus.results.store import ResultsFolder
from paribus.study import Plan, first_stage

if TYPE_CHECKING:
    from paribus.results.read import Results


if TYPE_CHECKING:
    shared_property = cached_property
else:

    class shared_property(cached_property):  # noqa: N801 - it stands where `cached_property` does
        """A cached property that a view takes from what it is a view of."""

        def __get__(self, instance, owner=None):
            """Return the value; of a view (its `source` is not None) its source's."""
            if instance is None or instance.source is None:
                return super().__get__(instance, owner)
            return getattr(instance.source, self.attrname)


def of_seeds(results: Results, seeds: Sequence[int], plan: Plan | None) -> Results:
    """Return the records of these seeds alone, under this plan."""
    kept = set(seeds)
    part = replace(
        results,
        study=results.study.model_copy(update={"seeds": tuple(seeds), "plan": plan}),
        finished=tuple(f for f in results.finished if f.seed in kept),
        unfinished=tuple(f for f in results.unfinished if f.seed in kept),
        trials={key: record for key, record in results.trials.items() if key[1] in kept},
        source=results,
    )
    for name in ("trial_blocks", "metrics"):
        part.__dict__[name] = getattr(results, name)
    return part


def standing(results: Results) -> Results:
    """`results` as far as they can be judged: of a study whose second stage is not finished, or
    breaks a control that its first one kept, the first stage alone."""
    study = results.study
    if not study.stages:
        # Between the two files that `extend` writes: the study is still that of the first stage.
        registered = read_registration(ResultsFolder(results.path)) or {}
        stages = (registered.get("stages") or {}).get("seeds")
        begun = stages and registered["seeds"][: stages[0]] == list(study.seeds)
        why = "its registration was interrupted; run `paribus extend` again"
        return replace(results, later_stage=why) if begun else results
    first = first_stage(study)
    seeds = set(first.seeds)
    missing = sum(trial.seed not in seeds for trial in results.unfinished)
    why = f"{missing} of its trials are not finished" if missing else ""
    part = replace(
        of_seeds(results, first.seeds, first.plan),
        study=first,
        source=None,  # its controls and tables are of its own trials
        tested={trial: record for trial, record in results.tested.items() if trial[1] in seeds},
    )
    if not why:
        broken, before = (
            {(control.name, control.arm) for control in group.controls if control.state == "broken"}
            for group in (results, part)
        )
        if broken - before:
            why = f"it breaks {', '.join(sorted({name for name, _ in broken - before}))}"
    return replace(part, later_stage=why) if why else results
