"""Benchmark of scaling: commands by number of trials, and training steps by model size.

    python benchmarks/growth.py [--trials 15 150 1500] [--arms 3] [--steps] [--json FILE]

Synthetic studies with the given numbers of trials are generated (`recorded_study.py`), and wall
time, CPU time and peak memory of each command are measured in a separate process. `start` is the
start-up of a run with one missing trial, until the first progress message. `--steps` instead
measures a training step as a function of parameters, context length and vocabulary size.

Each table ends with the exponent k of the growth n^k between the last two rows, after subtracting
the cost of the smallest study; linear growth has k = 1. Generating 15,000 trials takes 15 minutes
and 6 GB of disk space.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VERBS = ("start", "status", "report --no-page", "report")
LINEAR = 1.15  # timings are noisy
# {what grows: overrides of the study by size}
STEPS: dict[str, dict[str, dict[str, Any]]] = {
    "parameters": {f"d_model {d}": {"model.d_model": d} for d in (64, 128, 256, 512)},
    "context": {
        f"seq_len {t}": {"data.seq_len": t, "training.batch_size": 2048 // t}
        for t in (64, 128, 256, 512)
    },
    "vocabulary": {f"{v} tokens": {"data.tokenizer": f"bpe-{v}.json"} for v in (1000, 4000, 16000)},
}

# One process each, so that peaks are its own.
START = """
import sys
from pathlib import Path
import paribus
from paribus.results import ResultsFolder

class Enough(BaseException):
    pass

def watch(progress):
    raise Enough

folder = Path(sys.argv[1])
try:
    study = ResultsFolder(folder).read_study(trust=True)
    paribus.run(study, folder, workers=1, device="cpu", watch=watch)
except Enough:
    pass
"""


def measured(command: list[str]) -> dict[str, float]:
    """Run a command; return wall and CPU time in seconds, and peak memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise SystemExit(f"{' '.join(command[:4])} failed with exit code {code}: {said[-500:]}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu": used.ru_utime + used.ru_stime,
        "MiB": used.ru_maxrss / 1024,
    }


def of_verb(verb: str, folder: Path, unfinished: Path) -> dict[str, float]:
    """Measure one command on a synthetic study."""
    if verb == "start":
        return measured([sys.executable, "-c", START, str(unfinished)])
    return measured([sys.executable, "-m", "paribus", *verb.split(), str(folder)])


def power(sizes: list[int], costs: list[float]) -> float:
    """Return the growth exponent between the last two costs, after subtracting the first."""
    if len(sizes) < 3 or costs[-2] <= costs[0]:
        return math.nan
    grown = (costs[-1] - costs[0]) / (costs[-2] - costs[0])
    return math.log(grown) / math.log((sizes[-1] - sizes[0]) / (sizes[-2] - sizes[0]))


def trials(sizes: list[int], n_arms: int, home: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Measure and print the cost of each command for each number of trials."""
    found: dict[str, dict[int, dict[str, float]]] = {verb: {} for verb in VERBS}
    for n in sizes:
        folder, unfinished = home / f"{n}-{n_arms}", home / f"{n}-{n_arms}-but-one"
        # In a process of its own: the peak of a child is at least what its parent holds.
        command = [sys.executable, __file__, "--make", str(n), "--arms", str(n_arms)]
        subprocess.run([*command, "--home", str(home)], check=True, stdout=subprocess.DEVNULL)
        for verb in VERBS:
            one = found[verb][n] = of_verb(verb, folder, unfinished)
            print(
                f"{n:6} trials  {verb:16} {one['seconds']:8.1f} s  {one['cpu']:8.1f} CPU s  "
                f"{one['MiB']:8,.0f} MiB",
                flush=True,
            )
        page = (folder / "report.html").stat().st_size / 1e6
        print(
            f"{n:6} trials  page {page:.2f} MB, PDF "
            f"{(folder / 'report.pdf').stat().st_size / 1e6:.2f} MB",
            flush=True,
        )
    for verb, by_size in found.items():
        for unit in ("cpu", "MiB"):
            grown = power(sizes, [by_size[n][unit] for n in sizes])
            told = "" if math.isnan(grown) or grown <= LINEAR else "  worse than linear"
            print(f"{verb:16} {unit:4} grows with n^{grown:.2f}{told}")
    return found


def make_both(n: int, n_arms: int, home: Path) -> None:
    """Generate a study with `n` trials, and a copy without the last trial, unless they exist."""
    from recorded_study import made_study, make, train_template

    template = train_template(home / "template")
    for name, leave in ((f"{n}-{n_arms}", 0), (f"{n}-{n_arms}-but-one", 1)):
        if not (home / name / "study.json").exists():
            make(home / name, made_study(n, n_arms), template, leave=leave)


def steps(home: Path) -> dict[str, dict[str, float]]:
    """Measure and print the cost of a training step for each varied size."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found: dict[str, dict[str, float]] = {}
    for what, sizes in STEPS.items():
        found[what] = {}
        for name, changes in sizes.items():
            if tokenizer := changes.get("data.tokenizer"):
                changes = {"data.tokenizer": _tokenizer(home, str(tokenizer))}
            out = subprocess.run(
                [sys.executable, __file__, "--one-step", json.dumps(changes)],
                check=True,
                capture_output=True,
                text=True,
            )
            one = json.loads(out.stdout.splitlines()[-1])
            found[what][name] = one["milliseconds"]
            print(
                f"{what:12} {name:18} {one['milliseconds']:9.1f} ms  {one['MiB']:7,.0f} MiB  "
                f"{one['milliseconds'] * 1e9 / one['work']:6.1f} ms for 10^9 operations",
                flush=True,
            )
    return found


def _tokenizer(home: Path, name: str) -> str:
    """Return the path of a tokenizer trained on the benchmark's corpus."""
    from paribus.engine.data.tokenizer import train_tokenizer
    from paribus.engine.setting import Data

    path = home.absolute() / name
    if not path.exists():
        train_tokenizer(Data(corpus="pydoc"), home, int(path.stem.split("-")[1]), path)
    return str(path)


def one_step(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the CPU time (ms), peak memory (MiB) and operations of a training step."""
    import resource

    import torch

    from paribus.engine.cost import flops_per_token
    from paribus.engine.data import load_dataset
    from paribus.engine.machine.steps import build_stack
    from paribus.engine.setting import with_precision
    from paribus.study import load_study

    study = load_study("embedding-norm", {"data.corpus": "pydoc", **changes})
    study = with_precision(study, "float32")
    torch.set_num_threads(1)
    dataset = load_dataset(study.data, study.folder)
    setting = study.setting(study.baseline)
    stack = build_stack(study, setting, [1], dataset, torch.device("cpu"))
    times = []
    for _ in range(7):
        began = time.process_time()
        stack.step()
        times.append(time.process_time() - began)
    flops = flops_per_token(setting, dataset.vocab_size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    work = flops * setting.tokens_per_step
    return {"milliseconds": 1e3 * sorted(times[2:])[2], "MiB": peak, "work": work}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[15, 150, 1500])
    parser.add_argument("--arms", type=int, default=3, help="number of arms")
    parser.add_argument("--steps", action="store_true", help="measure a training step")
    parser.add_argument("--home", type=Path, help="folder in which to keep synthetic studies")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one-step", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_step:
        print(json.dumps(one_step(json.loads(arguments.one_step))))
        return
    if arguments.make:
        make_both(arguments.make, arguments.arms, arguments.home)
        return
    with tempfile.TemporaryDirectory() as made:
        home = arguments.home or Path(made)
        home.mkdir(parents=True, exist_ok=True)
        found = steps(home) if arguments.steps else trials(arguments.trials, arguments.arms, home)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
