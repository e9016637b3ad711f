"""examples/autoresearch: what an agent may say, and that it cannot read the vault."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoresearch"


@pytest.fixture(scope="module")
def night():
    spec = importlib.util.spec_from_file_location("night", EXAMPLE / "night.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_an_agent_may_say(night) -> None:
    said = 'name = "wide"\nset."model.mlp.ratio" = 8\n'
    idea = {"name": "wide", "set": {"model.mlp.ratio": 8}}
    assert night.idea_of(said) == idea
    assert night.idea_of(f"I propose\n```toml\n{said}```\nas it is wider.") == idea
    for other in (
        "no idea",
        'name = "wide"',
        'name = "../x"\nset."model.mlp.ratio" = 8',
        'name = "text"\nset."data.path" = "mine.txt"',
        'name = "code"\nset."model.modules.mlp" = "mine.py:Mlp"',
        'name = "deep"\nset."model.modules" = { mlp = "mine.py:Mlp" }',
    ):
        assert night.idea_of(other) is None, other


def test_the_vault_is_closed_while_the_agent_works(night, tmp_path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir(mode=0o700)
    said = night.ask(f"sh -c 'stat -c %a {vault}'", tmp_path, vault, None, 0)
    assert said.strip() == "0"
    assert vault.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
def test_another_user_cannot_read_it(night, tmp_path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir(mode=0o700)
    night.require_closed(vault, "nobody")
    with pytest.raises(SystemExit, match="nobody-of-that-name"):
        night.require_closed(vault, "nobody-of-that-name")
    with pytest.raises(SystemExit, match="can read"):
        night.require_closed(Path("/"), "nobody")


@pytest.mark.slow
def test_a_night_of_the_stub(tmp_path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat and looked at the moon. " * 3000)
    small = (EXAMPLE / "baseline.toml").read_text()
    for key, value in {"iterations = 200": "iterations = 60", "n_layer = 2": "n_layer = 1"}.items():
        assert key in small
        small = small.replace(key, value)
    (tmp_path / "small.toml").write_text(small)
    words = ("work", "--text", "text.txt", "--baseline", "small.toml", "--ideas", "2")
    told = subprocess.run(
        [sys.executable, EXAMPLE / "night.py", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert '"event": "ended"' in told.stdout
    assert (tmp_path / "work" / "vault" / "night" / "campaign.html").is_file()
