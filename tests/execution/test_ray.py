"""A Ray cluster of this machine alone, on a loopback address: the same bytes. Skipped without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paribus
from paribus.engine.execution.backends import find_backend
from paribus.errors import ParibusError

from .conftest import Trained
from .job_backend import assert_like_here, command_study
from .test_run import canonical_bytes

pytestmark = pytest.mark.slow
ADDRESS, PORT, DASHBOARD = "127.0.0.2", "6391", "8271"
SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster's dashboard."""
    pytest.importorskip("ray.job_submission")
    start = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
    asked = ["start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "2"]
    asked += ["--node-ip-address", ADDRESS, "--port", PORT]
    asked += ["--dashboard-host", ADDRESS, "--dashboard-port", DASHBOARD]
    asked += ["--object-store-memory", "100000000"]
    log = tmp_path_factory.mktemp("ray") / "log"
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


def test_the_same_bytes(cluster: str, trained: Trained, tmp_path: Path) -> None:
    backend = find_backend("ray", {"address": cluster, "jobs": 2})
    results = paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert canonical_bytes(results) == canonical_bytes(trained.results)
    assert not (tmp_path / ".r.jobs").exists()


def test_a_command_runs_as_jobs(cluster: str, tmp_path: Path) -> None:
    study = command_study(tmp_path)
    backend = find_backend("ray", {"address": cluster, "jobs": 2})
    assert_like_here(paribus.run(study, tmp_path / "r", backend=backend), study, tmp_path / "here")


def test_no_cluster_is_one_line(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("ray.job_submission")
    backend = find_backend("ray", {"address": f"http://{ADDRESS}:1"})
    with pytest.raises(ParibusError, match="backend 'ray': ") as told:
        paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []
