"""Retraining of a trial of an archived study, and comparison with the archived records.

    python studies/retrain.py studies/embedding-norm baseline/seed-1
    python studies/retrain.py studies/embedding-factorial none-warm/seed-1 --texts studies

A trial is a pure function of (study, arm, seed): on the same kind of machine, with the same
software, its weights have the same bytes and its records the same values. The archived manifest
contains their digests. `--texts` is the folder of the study's texts, if they are not in the
archive. The exit code is 3 if the weights differ.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import paribus
from paribus.errors import ParibusError
from paribus.results import Results, ResultsFolder, TrialFolder, load_results
from paribus.study import Study, parse_study

# Sealed records that tell of the rest of the study, of the machine, or of the code that ran.
OF_THE_WHOLE = {"environment.json", "trial.json", "schema_version"}


def alone(study: Study, arm: str, seed: int, texts: Path | None = None) -> Study:
    """Return a study with a single trial, which uses the tuned hyperparameters of its arm."""
    if (arm, seed) not in study.trials:
        raise ParibusError(f"'{study.name}' has no trial {arm}/seed-{seed}; correct the name")
    table = study.model_dump(exclude={"tuning", "plan", "stages", "interactions"})
    chosen = study.tuning.chosen.get(arm, {}) if study.tuning else {}
    set_ = study.arms[arm].set | chosen
    table["decision"] |= {"unreachable": "accept"}  # nothing is compared
    return parse_study(
        table | {"baseline": arm, "arms": {arm: {"set": set_}}, "seeds": [seed]},
        folder=texts or study.folder,
        foreign=study.is_foreign,
    )


def compare(kept: Results, again: Path, arm: str, seed: int) -> dict[str, bool]:
    """Return {record: whether both trials agree}, comparing the bytes of weights, else values.

    The bytes of tables and JSON files can depend on the version of the library that writes them.
    """
    before, after = (ResultsFolder(path).trial(arm, seed) for path in (kept.path, again))
    sealed, now = before.read_json("manifest.json"), after.read_json("manifest.json")
    return {
        name: sealed.get(name) == now.get(name) or _holds_the_same(name, before, after)
        for name in sorted(sealed.keys() | now.keys())
        if name not in OF_THE_WHOLE
    }


def _holds_the_same(name: str, before: TrialFolder, after: TrialFolder) -> bool:
    if name.endswith(".parquet"):
        return before.read_columns(name).equals(after.read_columns(name))
    return name.endswith(".json") and before.read_json(name) == after.read_json(name)


def retrain(path: Path, arm: str, seed: int, texts: Path | None = None) -> dict[str, bool]:
    """Train a trial again in a temporary folder, and return the result of `compare`."""
    with tempfile.TemporaryDirectory() as scratch:
        kept = load_results(path)
        again = Path(scratch) / "again"
        paribus.run(alone(kept.study, arm, seed, texts), again, workers=1)
        return compare(kept, again, arm, seed)


def main() -> int:
    """Print which records are equal; return exit code 3 if the weights differ, else 0."""
    parser = argparse.ArgumentParser(description="Retrain a trial of an archived study")
    parser.add_argument("study", type=Path, help="a results folder or an archive")
    parser.add_argument("trial", help="ARM/seed-N")
    parser.add_argument("--texts", type=Path, help="the folder of the study's texts")
    given = parser.parse_args()
    arm, _, seed = given.trial.rpartition("/seed-")
    try:
        equal = retrain(given.study, arm, int(seed), given.texts)
    except (ParibusError, ValueError) as error:
        parser.error(str(error))
    for name, same in sorted(equal.items()):
        print(f"{'equal' if same else 'DIFFERS'}  {name}")
    return 0 if equal["weights.safetensors"] else 3


if __name__ == "__main__":
    raise SystemExit(main())
