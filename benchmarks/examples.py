"""Estimate what the examples that ship take on this machine, for `paribus studies`.

    python benchmarks/examples.py [--rounds 3]     # writes src/paribus/study/examples/needs.json

Minutes are those of `paribus plan` on the CPU, tuning included: the least of some rounds, since
whatever else runs here only adds to them. A study needs the network where its text cannot be read
without one, from an empty cache. Run it again when an example changes; a test compares digests.
"""

from __future__ import annotations

import argparse
import datetime
import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

import torch

import paribus
from paribus.engine.execution.backends.local import count_cores
from paribus.engine.execution.start import read_data
from paribus.engine.execution.timing.estimate import Estimate, estimate
from paribus.engine.machine.environment import environment
from paribus.errors import ParibusError
from paribus.results.formats import write_json
from paribus.study import Study
from paribus.study.load import NEEDS

READ = (sys.executable, __file__, "--read")


def needs(study: Study, rounds: int) -> dict[str, Any]:
    """Return what is known of one example."""
    found = min((estimate(study, device="cpu") for _ in range(rounds)), key=_seconds)
    return {
        "digest": study.digest,
        "minutes": round(_seconds(found) / 60, 1),
        "workers": found.workers,
        "network": _needs_network(study.name),
    }


def _seconds(found: Estimate) -> float:
    return found.seconds + found.tuning_seconds


def _needs_network(name: str) -> bool:
    """Return whether the text of an example cannot be read without a network."""
    with tempfile.TemporaryDirectory() as empty:
        env = {key: value for key, value in os.environ.items() if key != "PARIBUS_DATA"}
        done = subprocess.run([*READ, name], env=env | {"PARIBUS_CACHE": empty}, check=False)
    return done.returncode != 0


def _read_offline(name: str) -> str | None:
    """Read the text of an example; returns why it cannot be read."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    socket.getaddrinfo = socket.create_connection = refuse
    try:
        read_data(paribus.load_study(name))
    except ParibusError as error:
        return str(error)
    return None


def main() -> None:
    """Write the file, or try to read the text of one example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read", help="of this example, try to read the text without a network")
    chosen = parser.parse_args()
    if chosen.read:
        raise SystemExit(_read_offline(chosen.read))
    machine = environment(torch.device("cpu"), 1)
    studies = {name: needs(one, chosen.rounds) for name, one in paribus.shipped_studies().items()}
    about = {
        "written_by": "benchmarks/examples.py",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": machine["processor"],
        "cores": count_cores(),
    }
    write_json(NEEDS, about | {"studies": studies})
    print(f"written: {NEEDS}")


if __name__ == "__main__":
    main()
