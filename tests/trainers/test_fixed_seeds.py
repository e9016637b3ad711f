"""Programs whose seed is fixed in their source, run by `paribus.trial`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paribus


def test_a_program_whose_seed_is_fixed_runs_with_another(tmp_path):
    program = "import random, sys\nfor n in (7, 8): random.seed(n); print(random.random())\n"
    (tmp_path / "fixed.py").write_text(program + "print(sys.argv[1:], __name__)\n")
    trial = tmp_path / "trial.py"
    trial.write_text(Path(paribus.__file__).with_name("trial.py").read_text())

    def run(seed, *words):
        env: Mapping[str, Any] = os.environ | {"PARIBUS_SEED": str(seed), "PARIBUS_TRIAL": ""}
        # -S: nothing but the standard library is there, as it would be for such a program.
        command = [sys.executable, "-S", str(trial), *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    import random

    plain = [str(random.Random(n).random()) for n in (7, 8)]
    told = [json.dumps(["-x", "3"]).replace('"', "'") + " __main__"]
    assert run(0, "fixed.py", "-x", "3") == [*plain, *told]
    one, two = run(1, "fixed.py", "-x", "3"), run(2, "-m", "fixed", "-x", "3")
    assert one == run(1, "-m", "fixed", "-x", "3") and one[2:] == two[2:] == told
    assert len({*plain, *one[:2], *two[:2]}) == 6
