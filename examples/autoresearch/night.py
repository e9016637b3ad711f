"""Let an agent propose changes, one after the other, and let paribus decide which to keep.

    python night.py WORK --text my-text.txt --ideas 20 --budget 10m --agent "claude -p"

WORK/agent has what the agent reads, PROGRAM.md and history.json; what it prints is its idea.
WORK/vault holds text, campaign and models. What keeps the agent from reading it is printed:

- `another user`: with --agent-user NAME, as root. The agent runs as NAME, and the vault is of mode
  700. It is tried before the first idea, and the night does not begin if NAME can read it.
- `file mode`: without. The vault is of mode 000 while the agent works. An agent of the same user
  could set it back; this stops reading by mistake, and no intent. Root reads all: `nothing`.

Without --agent a stub draws from a list, so that this runs without any model or network.
"""

import argparse
import json
import os
import pwd
import random
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from subprocess import PIPE

STUB = [
    ("hot", "training.optimizer.learning_rate", 3e-3),
    ("wide", "model.mlp.ratio", 8),
    ("rotary", "model.positions.kind", "rotary"),
    ("rmsnorm", "model.norm.kind", "rmsnorm"),
]
ALLOWED = r"(model|training)\."
CODES = {0: "kept", 10: "not kept", 4: "over budget"}  # of `paribus campaign try`


def stub(agent: Path, seed: int) -> str:
    """Return an idea of the list that was not tried yet; empty where none is left."""
    tried = {idea["name"] for idea in json.loads((agent / "history.json").read_text())["ideas"]}
    left = [one for one in STUB if one[0] not in tried]
    if not left:
        return ""
    name, key, value = random.Random(seed).choice(left)
    return f'name = "{name}"\nset."{key}" = {json.dumps(value)}'


def ask(command: str | None, agent: Path, vault: Path, user: str | None, seed: int) -> str:
    """Return what the agent says, with the vault closed to it: here an agent is called."""
    if command is None:
        return stub(agent, seed)
    vault.chmod(0o700 if user else 0o000)
    try:
        words = [*shlex.split(command), "Read PROGRAM.md and do what it says, once."]
        return subprocess.run(words, cwd=agent, stdout=PIPE, text=True, **other(user)).stdout
    finally:
        vault.chmod(0o700)


def idea_of(said: str) -> dict | None:
    """Return the idea in what an agent said; None where it is none that is allowed."""
    fenced = re.search(r"```(?:toml)?\n(.*?)```", said, re.DOTALL)
    try:
        idea = tomllib.loads(fenced[1] if fenced else said)
    except tomllib.TOMLDecodeError:
        return None
    changes, name = idea.get("set"), str(idea.get("name"))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}", name) or not isinstance(changes, dict):
        return None
    plain = all(isinstance(v, (int, float, str)) and ":" not in str(v) for v in changes.values())
    return idea if changes and plain and all(map(re.compile(ALLOWED).match, changes)) else None


def paribus(vault: Path, *words: str) -> tuple[int, dict]:
    """Run `paribus campaign`; returns its exit code, and what it says as JSON."""
    command = [sys.executable, "-m", "paribus", "campaign", *words, "--json"]
    env = os.environ | {"PARIBUS_CACHE": str(vault / "cache")}  # of the text, too
    told = subprocess.run(command, cwd=vault, stdout=PIPE, text=True, env=env)
    return told.returncode, json.loads(told.stdout) if told.stdout.strip() else {}


def other(user: str | None) -> dict:
    """Return the arguments of subprocess.run by which a command runs as `user`."""
    if not user:
        return {}
    if os.geteuid() or user not in {one.pw_name for one in pwd.getpwall()}:
        sys.exit(f"--agent-user {user} needs root, and a user of that name")
    known = pwd.getpwnam(user)
    env = os.environ | {"HOME": known.pw_dir}
    return {"user": user, "group": known.pw_gid, "extra_groups": [], "env": env}


def require_closed(vault: Path, user: str) -> None:
    """End the night where `user` can read the vault."""
    if subprocess.run(["ls", vault], capture_output=True, **other(user)).returncode == 0:
        sys.exit(f"{user} can read {vault}; give --agent-user another name")


def main() -> int:
    """Run the night; returns 0."""
    parser = argparse.ArgumentParser(description="A night of ideas.")
    option = parser.add_argument
    option("work", type=Path)
    option("--text", type=Path, help="of the first call: the text to train on")
    option("--baseline", type=Path, default=Path(__file__).parent / "baseline.toml")
    option("--ideas", type=int, default=6)
    option("--budget", default="10m", help="of one idea")
    option("--agent", help="a command; without it, a stub")
    option("--agent-user", metavar="NAME", help="whom the agent runs as; needs root")
    given = parser.parse_args()
    vault, agent = (given.work.resolve() / name for name in ("vault", "agent"))
    for folder in (agent, vault):
        folder.mkdir(parents=True, exist_ok=True)
    vault.chmod(0o700)
    if given.agent_user:
        require_closed(vault, given.agent_user)
    alone = "nothing: root reads all; give --agent-user" if os.geteuid() == 0 else "file mode"
    print("what keeps the agent from the text:", "another user" if given.agent_user else alone)
    shutil.copy(Path(__file__).parent / "PROGRAM.md", agent)
    if not (vault / "night").exists():
        if given.text is None:
            parser.error("--text FILE is needed to begin")
        shutil.copy(given.text, vault / "text.txt")
        shutil.copy(given.baseline, vault / "baseline.toml")
        if paribus(vault, "new", "night", "--baseline", "baseline.toml")[0]:
            return 2
    for number in range(given.ideas):
        (agent / "history.json").write_text(json.dumps(paribus(vault, "status", "night")[1]))
        said = ask(given.agent, agent, vault, given.agent_user, number)
        if not said.strip():
            break
        if (idea := idea_of(said)) is None:
            print(f"refused, see PROGRAM.md: {said[:200]!r}", file=sys.stderr)
            continue
        changes = [f"--set={key}={json.dumps(value)}" for key, value in idea["set"].items()]
        name = idea["name"]
        code, _ = paribus(vault, "try", "night", name, *changes, "--budget", given.budget)
        if code not in (0, 10):  # or the next idea would have to wait for it
            paribus(vault, "give-up", "night", name)
        print(name, CODES.get(code, "failed"))
    code, told = paribus(vault, "end", "night")
    print(json.dumps(told.get("ended"), indent=2))
    return code


if __name__ == "__main__":
    sys.exit(main())
