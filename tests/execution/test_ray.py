"""A Ray cluster of this machine alone, on a loopback address: the same bytes. Skipped without."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.runs.executors import find_backend

from .test_run import canonical_bytes

pytestmark = pytest.mark.slow
ADDRESS = "127.0.0.2"
SECONDS = 300.0


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """Yield the address of a cluster's dashboard; skip the test where there is no Ray."""
    pytest.importorskip("ray.job_submission")
    port, dashboard, *others = _free_ports(4)
    at = f"http://{ADDRESS}:{dashboard}"
    start = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    asked = ["start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "2"]
    asked += ["--node-ip-address", ADDRESS, "--port", port]
    asked += ["--dashboard-host", ADDRESS, "--dashboard-port", dashboard]
    for name, other in zip(("dashboard-agent-listen", "ray-client-server"), others, strict=True):
        asked += [f"--{name}-port", other]
    asked += ["--object-store-memory", "100000000"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", start, *asked], stdout=file, stderr=file, start_new_session=True
        )
    try:
        backend = find_backend("ray", {"address": at})
        began = time.monotonic()
        while True:
            try:
                # A cluster that answers has no agent yet that takes jobs.
                backend._call("submit_job", entrypoint="true")  # type: ignore[attr-defined]
                break
            except ParibusError:
                if process.poll() is not None or time.monotonic() - began > SECONDS:
                    pytest.skip(f"Ray does not start here: {log.read_text()[-200:]}")
                time.sleep(1.0)
        yield at
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _free_ports(count: int) -> list[str]:
    """Return ports that nobody listens at: several clusters of this machine know nothing of each
    other."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((ADDRESS, 0))
        return [str(one.getsockname()[1]) for one in sockets]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a cluster's dashboard."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as address:
        yield address


def test_the_same_bytes(cluster, trained, tmp_path):
    backend = find_backend("ray", {"address": cluster, "jobs": 2})
    results = paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert canonical_bytes(results) == canonical_bytes(trained.results)
    assert not (tmp_path / "r" / ".run").exists()


def test_no_cluster_is_one_line(trained, tmp_path):
    pytest.importorskip("ray.job_submission")
    backend = find_backend("ray", {"address": f"http://{ADDRESS}:1"})
    with pytest.raises(ParibusError, match="backend 'ray': "):
        paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert list(tmp_path.iterdir()) == []
