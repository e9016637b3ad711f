"""A Ray cluster of this machine alone, on a loopback address."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paribus.engine.execution.backends import find_backend
from paribus.errors import ParibusError

ADDRESS, PORT, DASHBOARD = "127.0.0.2", "6391", "8271"
SECONDS = 120.0


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """Yield the address of a cluster's dashboard; skip the test where there is no Ray."""
    pytest.importorskip("ray.job_submission")
    start = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    asked = ["start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "2"]
    asked += ["--node-ip-address", ADDRESS, "--port", PORT]
    asked += ["--dashboard-host", ADDRESS, "--dashboard-port", DASHBOARD]
    asked += ["--object-store-memory", "100000000"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", start, *asked],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        backend = find_backend("ray", {"address": f"http://{ADDRESS}:{DASHBOARD}"})
        began = time.monotonic()
        while True:
            try:
                backend.states(["nothing"])  # type: ignore[attr-defined]
                break
            except ParibusError:
                if process.poll() is not None or time.monotonic() - began > SECONDS:
                    pytest.skip(f"Ray does not start here: {log.read_text()[-200:]}")
                time.sleep(1.0)
        yield f"http://{ADDRESS}:{DASHBOARD}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
