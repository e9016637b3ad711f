"""Keep what a running study has sealed, block by block, as machines do not last.

    python studies/blocks.py save RESULTS [RESULTS ...]   # what no earlier block has
    python studies/blocks.py restore STUDY RESULTS        # all of them; `paribus run` then goes on

A block has the records of sealed trials of tuning without their weights, which nobody needs any
more, and what was registered. Trials of the verdict have theirs until the sealed text has been
read, so that they are finished on one machine and kept by `keep.py`.
"""

from __future__ import annotations

import argparse
import tarfile
from pathlib import Path

from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.trial_folder import MANIFEST
from paribus.study import with_choice

HOME = Path(__file__).parent / "blocks"
PLAN = ("study.json", "registration.json")


def blocks_of(study: str) -> list[Path]:
    """Return the blocks of a study in their order."""
    found = [path for path in HOME.glob(f"{study}-*.tar.xz") if _number(path, study)]
    return sorted(found, key=lambda path: _number(path, study))


def _number(path: Path, study: str) -> int:
    number = path.name.removeprefix(f"{study}-").removesuffix(".tar.xz")
    return int(number) if number.isascii() and number.isdigit() else 0


def sealed(results: Path) -> list[Path]:
    """Return the files that a block may have, relative to `results`."""
    homes, files = [results, *results.glob("tuning/*")], []
    for home in homes:
        files += [home / name for name in PLAN if (home / name).is_file()]
        trials = home.glob(f"trials/*/*/{MANIFEST}") if home != results else ()
        for manifest in trials:
            files += (one for one in manifest.parent.iterdir() if one.suffix != ".safetensors")
    return sorted(file.relative_to(results) for file in files)


def save(results: Path) -> str:
    """Write what is new; returns a line that says how much."""
    study = ResultsFolder(results).read_study().name
    there: set[str] = set()
    earlier = blocks_of(study)
    for block in earlier:
        with tarfile.open(block) as archive:
            there.update(archive.getnames())
    new = [file for file in sealed(results) if file.as_posix() not in there or file.name in PLAN]
    n = sum(file.name == MANIFEST for file in new)
    if not n:
        return f"{study}: no new trials are sealed"
    HOME.mkdir(exist_ok=True)
    block = HOME / f"{study}-{len(earlier) + 1}.tar.xz"
    with tarfile.open(block, "w:xz", preset=9) as archive:
        for file in new:
            archive.add(results / file, file.as_posix())
    return f"{study}: {n} trials in {block.name}, {block.stat().st_size:,} bytes"


def restore(study: str, results: Path) -> str:
    """Unpack the blocks of a study into a folder that is not there yet."""
    if results.exists():
        raise ParibusError(f"{results} is there already; choose another folder")
    if not (blocks := blocks_of(study)):
        raise ParibusError(f"{HOME} has no blocks of '{study}'")
    for block in blocks:
        with tarfile.open(block) as archive:
            archive.extractall(results, filter="data")
    for tuning in results.glob("tuning/*"):
        ResultsFolder(tuning).leave_out_weights()
    folder = ResultsFolder(results)
    folder.create(with_choice(folder.read_study(), {}))  # `paribus run` chooses again
    n = len(list(results.glob(f"tuning/*/trials/*/*/{MANIFEST}")))
    return f"{study}: {n} trials of tuning from {len(blocks)} blocks"


def main() -> None:
    """Save or restore."""
    parser = argparse.ArgumentParser(description="Keep what a running study has sealed")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("save").add_argument("results", nargs="+", type=Path)
    back = verbs.add_parser("restore")
    back.add_argument("study")
    back.add_argument("results", type=Path)
    asked = parser.parse_args()
    try:
        if asked.verb == "save":
            for results in asked.results:
                print(save(results))
        else:
            print(restore(asked.study, asked.results))
    except ParibusError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
