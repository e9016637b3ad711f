"""The judge's install: finished studies are read, judged, checked and reported without the engine.

The gate runs this without PyTorch. Elsewhere its packages are hidden, and these tests are slow.
"""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow] if find_spec("torch") else []
KEPT = Path(__file__).parents[1] / "studies" / "embedding-norm"
HIDES = """
import sys
from paribus.engine import PACKAGES

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from paribus.cli import main
code = main(sys.argv[1:])
assert not {name.partition(".")[0] for name in sys.modules} & set(PACKAGES)
sys.exit(code)
"""


def judge(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDES, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a finished study, `r`."""
    if not KEPT.exists():
        pytest.skip("needs a checkout")
    home = tmp_path_factory.mktemp("judge")
    shutil.copytree(KEPT, home / "r")
    return home


def test_a_finished_study_is_judged(home):
    decided = judge("report", "--no-page", "r", cwd=home)
    assert decided.returncode == 0, decided.stderr
    assert "+0.0954 [+0.0896, +0.1011]" in decided.stdout
    assert json.loads((home / "r" / "verdict.json").read_text())["verdicts"][0]["row"] == "3"
    assert "15 trials" in judge("status", "r", cwd=home).stdout
    verified = judge("verify", "r", cwd=home)
    assert verified.returncode == 0, verified.stderr
    assert "analysis" in verified.stdout


def test_it_is_reported_and_archived(home):
    for arguments, made in (
        (("report", "r"), "r/report.pdf"),
        (("archive", "r", "archived"), "archived/records.tar.xz"),
        (("report", "archived"), "archived/report.html"),
    ):
        done = judge(*arguments, cwd=home)
        assert done.returncode == 0, done.stderr
        assert (home / made).is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "quickstart"),
        ("register", "quickstart"),
        ("plan", "quickstart"),
        ("export", "r", "out", "--trial", "baseline/seed-1"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_needs_the_engine_says_so_in_one_line(arguments, home):
    before = sorted(home.iterdir())
    said = judge(*arguments, cwd=home)
    assert said.returncode == 2
    assert said.stderr.count("\n") == 1 and "'paribus[train]'" in said.stderr
    assert said.stdout == "" and sorted(home.iterdir()) == before
