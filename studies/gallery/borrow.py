"""Copy trials that another study of the gallery has trained already, in place of training again.

    paribus run studies/gallery/schedules.toml --results results/schedules  # stop it when it trains
    python studies/gallery/borrow.py results/tying tied results/schedules cosine
    paribus run studies/gallery/schedules.toml --results results/schedules

A trial is a pure function of (setting, text, seed): the tied arm of one study and the cosine arm of
another are one model, trained to the same bytes. Copied are finished trials of tuning and verdict
whose settings, probes, text and code are equal in both studies; of `trial.json` the name of the
arm alone changes. `run` goes on from there, and checks all of it as it does what it trained itself.
Where the copying study chooses another rate, `run` refuses the copied verdict trials by name.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.files import whole_folder
from paribus.results import ResultsFolder, TrialFolder
from paribus.results.formats import read_json
from paribus.results.trial_folder import MANIFEST
from paribus.study import Study, with_choice

# Of a study: what says which trials there are, and no trial's records hold.
OF_THE_WHOLE = {"name", "title", "question", "baseline", "arms", "seeds", "tuning", "hypotheses"}

# Of a registration: what ran, for all arms and for each.
FOR_ALL = ("code", "packages", "device", "own_probes", "own_measures", "own_tasks")
FOR_EACH = ("data", "precision", "own_modules")


def about(folder: ResultsFolder, study: Study, arm: str) -> dict[str, Any]:
    """Return what every trial of `arm` shares with the rest of its study, as registered."""
    registered = read_json(folder.path / "registration.json")
    return (
        {"study": study.model_dump(mode="json", exclude=OF_THE_WHOLE)}
        | {key: registered[key] for key in FOR_ALL}
        | {key: registered[key][arm] for key in FOR_EACH}
    )


def copied(source: TrialFolder, target: TrialFolder, setting: Any) -> bool:
    """Copy one finished trial under the arm of `target`; False where there is nothing to do."""
    if target.is_finished or not source.is_finished:
        return False
    trial = source.read_json("trial.json")
    if trial["setting"] != setting:
        raise ParibusError(f"{source.label} has another setting than {target.label}")
    if target.path.exists():
        shutil.rmtree(target.path)  # begun, and not finished
    sealed = source.read_json(MANIFEST)
    with whole_folder(target.path) as there:
        copy = replace(target, path=there)
        shutil.copytree(source.path, there, dirs_exist_ok=True)
        (there / MANIFEST).unlink()
        stack = [[target.arm, seed] for _, seed in trial["stack"]]
        copy.write_json("trial.json", trial | {"arm": target.arm, "stack": stack})
        names = [name for name in sealed if name != "schema_version"]
        absent = {name: sealed[name] for name in names if not (there / name).exists()}
        copy.finish([name for name in names if name not in absent])
        now = copy.read_json(MANIFEST) | absent
        for name in names:
            if name != "trial.json" and now[name] != sealed[name]:
                raise ParibusError(f"{source.label}: {name} is not what was sealed")
        if absent:
            copy.write_json(MANIFEST, now)
    return True


def borrow(source: ResultsFolder, theirs: str, target: ResultsFolder, ours: str) -> int:
    """Copy what is finished of arm `theirs`, as arm `ours`; return how many trials that is."""
    one, other = source.read_study(trust=True), target.read_study(trust=True)
    for key, value in about(source, one, theirs).items():
        if value != about(target, other, ours)[key]:
            raise ParibusError(f"{source.path} and {target.path} differ in more than arms: {key}")
    with target.lock():
        n, alike = 0, other
        if one.tuning:
            alike = with_choice(other, dict.fromkeys(other.arms, one.tuning.chosen[theirs]))
        setting = alike.setting(ours).model_dump(mode="json")
        for seed in other.seeds:
            n += copied(source.trial(theirs, seed), target.trial(ours, seed), setting)
        trained, there = source.tuning_trials, target.tuning_trials
        if trained.exists:
            if not there.exists:
                raise ParibusError(f"{there.path} is not registered: start its run, and stop it")
            study = there.read_study(trust=True)
            for arm in study.arms:
                name, _, point = arm.rpartition("-")
                if name != ours:
                    continue
                setting = study.setting(arm).model_dump(mode="json")
                for seed in study.seeds:
                    trial = trained.trial(f"{theirs}-{point}", seed)
                    n += copied(trial, there.trial(arm, seed), setting)
    return n


def main() -> None:
    """Copy, and say how many trials."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("source", "theirs", "target", "ours"):
        parser.add_argument(name, type=Path if name in ("source", "target") else str)
    given = parser.parse_args()
    try:
        n = borrow(
            *(ResultsFolder(given.source), given.theirs, ResultsFolder(given.target), given.ours)
        )
    except ParibusError as error:
        parser.error(str(error))
    print(f"{n} trials copied from {given.source} as arm {given.ours}")


if __name__ == "__main__":
    main()
