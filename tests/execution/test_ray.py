"""A Ray cluster of this machine alone, on a loopback address: the same bytes. Skipped without."""

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.runs.executors import find_backend

from .job_backend import assert_like_here, command_study
from .ray_cluster import ADDRESS, ray_cluster
from .test_run import canonical_bytes

pytestmark = pytest.mark.slow


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


def test_a_command_runs_as_jobs(cluster, tmp_path):
    study = command_study(tmp_path)
    backend = find_backend("ray", {"address": cluster, "jobs": 2})
    assert_like_here(paribus.run(study, tmp_path / "r", backend=backend), study, tmp_path / "here")


def test_no_cluster_is_one_line(trained, tmp_path):
    pytest.importorskip("ray.job_submission")
    backend = find_backend("ray", {"address": f"http://{ADDRESS}:1"})
    with pytest.raises(ParibusError, match="backend 'ray': "):
        paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert list(tmp_path.iterdir()) == []
