"""A long text: tokenized and described, opened again, drawn from; before and now.

    python benchmarks/text.py --megabytes 2 20 200
    python benchmarks/text.py --megabytes 20 --before PATH_OF_AN_OLDER_CHECKOUT/src

All ways run in turn, each in a process of its own, on the same text: runs of 1 to 12 lines from
random places of this Python's language reference and of the Shakespeare text (`PARIBUS_DATA`), in
files of a megabyte. Lines recur, and their neighbours change.
Processor time and largest memory are of the process; on a shared machine processor time says more
than the time of day. Of a process that only opens the text, memory is that of a worker without its
model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHILD = """
import inspect, json, os, resource, sys, time
from pathlib import Path
from paribus.engine.data import batch, describe_data, load_dataset
from paribus.study import Data

def largest():
    # ru_maxrss counts the process that started this one, as large as it was.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) / 1024

imported = largest()
folder, tokenizer, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
data = Data(corpus="text", path="text", tokenizer=tokenizer, seq_len=128)
began = time.process_time(), time.monotonic()
dataset = load_dataset(data, folder)
loaded = time.process_time(), time.monotonic()
if what == "describe":
    if len(inspect.signature(describe_data).parameters) == 1:
        describe_data(dataset)
    else:
        from paribus.engine.data import read_corpus
        describe_data(dataset, read_corpus(data, folder))
described = time.process_time(), time.monotonic()
for t in range(100):
    batch(dataset.train, 1, t, 16, 128)
drawn = time.process_time()
print(json.dumps({
    "load_cpu_seconds": loaded[0] - began[0],
    "load_seconds": loaded[1] - began[1],
    "describe_cpu_seconds": described[0] - loaded[0],
    "describe_seconds": described[1] - loaded[1],
    "batch_ms": (drawn - described[0]) / 100 * 1e3,
    "imported_mib": imported,
    "memory_mib": largest(),
    "digest": dataset.digests["train"],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[20])
    parser.add_argument("--before", type=Path, help="the src folder of an older checkout")
    parser.add_argument("--skip-describing-before", action="store_true")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    ways = [("now", here, "describe"), ("now, again", here, "open")]
    if given.before:
        what = "open" if given.skip_describing_before else "describe"
        ways.insert(0, ("before", given.before, what))
    print(f"{'way':<32}{'load s':>8}{'cpu s':>8}{'describe s':>11}{'cpu s':>8}{'MB/s':>7}"
          f"{'MB/cpu s':>9}{'batch ms':>9}{'MiB':>6}{'grown':>6}", flush=True)  # fmt: skip
    for megabytes in given.megabytes:
        with tempfile.TemporaryDirectory() as name:
            compare(Path(name), megabytes, ways)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.ctime()}")


def compare(folder: Path, megabytes: float, ways: list[tuple[str, Path, str]]) -> None:
    """A line for every tokenizer and way, on a text of this size."""
    write_text(folder / "text", int(megabytes * 1e6))
    write_tokenizer(folder)
    for tokenizer in ("character", "bpe.json"):
        for way, source, what in ways:
            found = run(folder, tokenizer, source, what)
            wall = found["load_seconds"] + found["describe_seconds"]
            cpu = found["load_cpu_seconds"] + found["describe_cpu_seconds"]
            print(
                f"{f'{megabytes:g} MB {tokenizer}, {way}':<32}{found['load_seconds']:>8.2f}"
                f"{found['load_cpu_seconds']:>8.2f}{found['describe_seconds']:>11.2f}"
                f"{found['describe_cpu_seconds']:>8.2f}{megabytes / wall:>7.1f}"
                f"{megabytes / cpu:>9.1f}{found['batch_ms']:>9.3f}{found['memory_mib']:>6.0f}"
                f"{found['memory_mib'] - found['imported_mib']:>6.0f}",
                flush=True,
            )


def run(folder: Path, tokenizer: str, source: Path, what: str) -> dict[str, float]:
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PARIBUS_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", CHILD, str(folder), tokenizer, what]
    return json.loads(subprocess.check_output(command, env=environment))


def write_text(folder: Path, n_bytes: int) -> None:
    """Files of a megabyte, of runs of lines that follow one another in a real text."""
    from pydoc_data.topics import topics

    from paribus.engine.data import read_corpus
    from paribus.study import Data

    plays = "".join(read_corpus(Data(corpus="shakespeare"), folder))
    lines = np.array(("".join(topics.values()) + plays).splitlines(keepends=True), object)
    rng = np.random.default_rng(1)
    folder.mkdir()
    for number in range(max(n_bytes // 10**6, 1)):
        places, lengths = rng.integers(len(lines), size=10_000), rng.integers(1, 13, size=10_000)
        runs = zip(places.tolist(), lengths.tolist(), strict=True)
        text = "".join(line for at, length in runs for line in lines[at : at + length])
        content = text.encode()[: min(n_bytes, 10**6)].decode(errors="ignore")
        (folder / f"{number:05}.txt").write_text(content, encoding="utf-8")
    # Their times are told apart from a change of just now.
    for file in folder.iterdir():
        os.utime(file, (time.time() - 60,) * 2)


def write_tokenizer(folder: Path) -> None:
    from paribus.engine.data.train_tokenizer import train_tokenizer
    from paribus.study import Data

    data = Data(corpus="text", path="text/00000.txt")
    train_tokenizer(data, folder, 8000, folder / "bpe.json")


if __name__ == "__main__":
    main()
