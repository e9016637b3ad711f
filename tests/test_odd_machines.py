"""Machines that are not like ours: letters, homes, compilers, file systems, processors."""

import os
import subprocess
import sys

from paribus.engine.ops.kernels import compiling
from paribus.results import load_results

from .conftest import small_text

STUDY = """
name = "tïny"
title = "Größe, 日本"
seeds = [1]
data = {corpus = "text", path = "mein téxt.txt", seq_len = 16}
model = {n_layer = 1, n_head = 2, d_model = 16}
training = {iterations = 24, batch_size = 2}
tasks = {names = []}
[arms.baseline]
[arms.own]
set."model.modules.final_norm" = "öwn code.py:Norm"
"""
OWN = """
from torch import nn

class Norm(nn.LayerNorm):
    def __init__(self, model):
        print("Größe")
        super().__init__(model.d_model)
"""
# UTF-8 mode, which Python takes by itself where the locale is C, is off: files have ASCII names.
# ASCII alone can be printed, and there is neither a home nor a cache.
POOR = {
    "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
    "HOME": "/dev/null/nobody",
    compiling.SWITCH: "off",
}
UNSET = {"LANG", "PYTHONUTF8", "PYTHONIOENCODING", "PARIBUS_CACHE", "XDG_CACHE_HOME"}


def test_where_nothing_but_ascii_can_be_printed_and_nobody_has_a_home(tmp_path):
    folder = tmp_path / "mein Größe 日本"
    folder.mkdir()
    (folder / "stüdy 1.toml").write_text(STUDY, encoding="utf-8")
    (folder / "mein téxt.txt").write_text(small_text().replace("quick", "älg"), encoding="utf-8")
    (folder / "öwn code.py").write_text(OWN, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    command = [sys.executable, "-m", "paribus", "register", "stüdy 1.toml"]
    command += ["--results", "meine résults/x"]
    done = subprocess.run(command, cwd=folder, env=kept | POOR, capture_output=True)
    assert done.returncode == 2 and b"PARIBUS_CACHE" in done.stderr
    poor = kept | POOR | {"PARIBUS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=folder, env=poor, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii() and rb"meine r\xe9sults/x" in done.stdout.replace(b"\n", b"")
    assert load_results(folder / "meine résults" / "x").study.title == "Größe, 日本"
