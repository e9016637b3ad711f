"""A long text: tokenized and described, opened again, drawn from; before and now.

    python benchmarks/text.py --megabytes 20 --before PATH_OF_AN_OLDER_CHECKOUT/src

Both ways run in turn, each in a process of its own, on the same text: the words of this Python's
language reference, drawn at random, so that it has the words of English and repeats no passage.
Processor time and largest memory are of the process; on a shared machine their ratio says more than
the time of day.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHILD = """
import inspect, json, os, resource, sys, time
from pathlib import Path
from paribus.data import batch, describe_data, load_dataset
from paribus.study import Data

folder, tokenizer, what = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
data = Data(corpus="text", path="text", tokenizer=tokenizer, seq_len=128)
began = time.process_time(), time.monotonic()
dataset = load_dataset(data, folder)
loaded = time.process_time(), time.monotonic()
if what == "describe":
    if len(inspect.signature(describe_data).parameters) == 1:
        describe_data(dataset)
    else:
        from paribus.data import read_corpus
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
    "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "digest": dataset.digests["train"],
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--before", type=Path, help="the src folder of an older checkout")
    parser.add_argument("--skip-describing-before", action="store_true")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text", int(given.megabytes * 1e6))
        write_tokenizer(folder)
        print(f"{'way':<28}{'load s':>8}{'cpu s':>8}{'describe s':>11}{'cpu s':>8}{'MB/s':>7}"
              f"{'batch ms':>9}{'MiB':>7}")  # fmt: skip
        digests = {}
        for tokenizer in ("character", "bpe.json"):
            ways = [("now", here, "describe"), ("now, again", here, "open")]
            if given.before:
                what = "open" if given.skip_describing_before else "describe"
                ways.insert(0, ("before", given.before, what))
            for way, source, what in ways:
                found = run(folder, tokenizer, source, what)
                digests[tokenizer, way] = found["digest"]
                speed = given.megabytes / (found["load_seconds"] + found["describe_seconds"])
                print(
                    f"{tokenizer + ', ' + way:<28}{found['load_seconds']:>8.2f}"
                    f"{found['load_cpu_seconds']:>8.2f}{found['describe_seconds']:>11.2f}"
                    f"{found['describe_cpu_seconds']:>8.2f}{speed:>7.1f}{found['batch_ms']:>9.3f}"
                    f"{found['memory_mib']:>7.0f}"
                )
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.ctime()}; {own >> 10} MiB")


def run(folder: Path, tokenizer: str, source: Path, what: str) -> dict[str, float]:
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PARIBUS_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", CHILD, str(folder), tokenizer, what]
    return json.loads(subprocess.check_output(command, env=environment))


def write_text(folder: Path, n_bytes: int) -> None:
    """Files of a megabyte, of words as frequent as in the language reference."""
    from pydoc_data.topics import topics

    words = np.array(" ".join(topics.values()).split(" "), object)
    rng = np.random.default_rng(1)
    folder.mkdir()
    for number in range(max(n_bytes // 10**6, 1)):
        text = " ".join(rng.choice(words, size=200_000))[: min(n_bytes, 10**6)]
        (folder / f"{number:05}.txt").write_text(text, encoding="utf-8")
    # Their times are told apart from a change of just now.
    for file in folder.iterdir():
        os.utime(file, (time.time() - 60,) * 2)


def write_tokenizer(folder: Path) -> None:
    from paribus.data.train_tokenizer import train_tokenizer
    from paribus.study import Data

    data = Data(corpus="text", path="text/00000.txt")
    train_tokenizer(data, folder, 8000, folder / "bpe.json")


if __name__ == "__main__":
    main()
