"""Train one trial of a kept study again, and compare it with what was kept.

    python studies/retrain.py studies/embedding-norm baseline/seed-1
    python studies/retrain.py studies/embedding-factorial none-warm/seed-1 --texts studies

A trial is a pure function of (study, arm, seed): on the same kind of machine, with the same
software, its weights are the same bytes and its records hold the same values. The digests of all
of them are in the kept manifest.
`--texts` is the folder in which the study's texts lie, where the kept study has none of them.
Exit code 3 where the weights differ.
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
    """Return a study of this trial alone, with the values that its tuning chose."""
    if (arm, seed) not in study.trials:
        raise ParibusError(f"{arm}/seed-{seed} is no trial of '{study.name}'")
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
    """By sealed record, whether both hold the same: of weights the bytes, else every value.

    The bytes of a table or of JSON may differ with the version of what writes them.
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
    """Train the trial again in a folder of its own, and `compare`."""
    with tempfile.TemporaryDirectory() as scratch:
        kept = load_results(path)
        again = Path(scratch) / "again"
        paribus.run(alone(kept.study, arm, seed, texts), again, workers=1)
        return compare(kept, again, arm, seed)


def main() -> int:
    """Print what is equal; 3 where the weights are not."""
    parser = argparse.ArgumentParser(description="Train one trial of a kept study again")
    parser.add_argument("study", type=Path, help="a results folder, or an archive")
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
