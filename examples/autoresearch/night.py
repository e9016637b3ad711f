"""Let an agent propose changes, one after the other, and let paribus decide which to keep.

    python night.py WORK --text my-text.txt --ideas 20 --budget 10m --agent "claude -p"

WORK/agent is where the agent works: PROGRAM.md, history.json, and the idea.toml that it writes.
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

HERE = Path(__file__).parent
STUB = [
    ("hot", {"training.optimizer.learning_rate": 3e-3}),
    ("wide", {"model.mlp.ratio": 8}),
    ("rotary", {"model.positions.kind": "rotary"}),
    ("rmsnorm", {"model.norm.kind": "rmsnorm"}),
    ("swiglu", {"model.mlp.kind": "swiglu"}),
    ("cold", {"training.optimizer.learning_rate": 3e-4}),
]
ALLOWED = ("model.", "training.")
KEPT, NOT_KEPT, BUDGET = 0, 10, 4  # exit codes of `paribus campaign try`


def stub(agent: Path, seed: int) -> None:
    """Write an idea of the list that was not tried yet; where you would call an agent."""
    tried = {idea["name"] for idea in json.loads((agent / "history.json").read_text())["ideas"]}
    left = [one for one in STUB if one[0] not in tried]
    if left:
        name, changes = random.Random(seed).choice(left)
        lines = [f"set.{json.dumps(key)} = {json.dumps(value)}" for key, value in changes.items()]
        (agent / "idea.toml").write_text("\n".join([f'name = "{name}"', *lines, ""]))


def ask(command: str | None, agent: Path, vault: Path, user: str | None, seed: int) -> dict | None:
    """Return the next idea; None where there is none. The vault is closed meanwhile."""
    (agent / "idea.toml").unlink(missing_ok=True)
    vault.chmod(0o700 if user else 0o000)
    try:
        if command is None:
            stub(agent, seed)
        else:
            prompt = "Read PROGRAM.md and do what it says, once."
            subprocess.run([*shlex.split(command), prompt], cwd=agent, check=False, **other(user))
    finally:
        vault.chmod(0o700)
    file = agent / "idea.toml"
    if not file.is_file() or file.is_symlink():
        return None
    idea = tomllib.loads(file.read_text())
    wrong = [key for key in idea.get("set", {}) if not key.startswith(ALLOWED)]
    wrong += [value for value in idea.get("set", {}).values() if ":" in str(value)]
    if (
        wrong
        or not idea.get("set")
        or not re.fullmatch(r"[A-Za-z0-9-]{1,40}", str(idea.get("name")))
    ):
        print(f"refused: {wrong or idea.get('name')}; see PROGRAM.md", file=sys.stderr)
        return {}
    return idea


def paribus(vault: Path, *words: str) -> tuple[int, dict]:
    """Run `paribus campaign`; returns its exit code, and what it says as JSON."""
    command = [sys.executable, "-m", "paribus", "campaign", *words, "--json"]
    told = subprocess.run(
        command, cwd=vault, stdout=subprocess.PIPE, text=True, check=False,
        env=os.environ | {"PARIBUS_CACHE": str(vault / "cache")},
    )  # fmt: skip
    return told.returncode, json.loads(told.stdout) if told.stdout.strip() else {}


def other(user: str | None) -> dict:
    """Return the arguments of subprocess.run by which a command runs as `user`."""
    if not user:
        return {}
    try:
        return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    except KeyError:
        sys.exit(f"--agent-user {user}: there is no such user")


def require_closed(vault: Path, user: str) -> None:
    """End the night where `user` can read the vault, or nothing can run as `user`."""
    try:
        tried = subprocess.run(["ls", vault], capture_output=True, check=False, **other(user))
    except PermissionError:
        sys.exit("--agent-user needs root; leave it out, or begin the night as root")
    if tried.returncode == 0:
        sys.exit(f"{user} can read {vault}; give --agent-user another name")


def main() -> int:
    """Run the night; returns 0."""
    parser = argparse.ArgumentParser(description="A night of ideas.")
    parser.add_argument("work", type=Path)
    option = parser.add_argument
    option("--text", type=Path, help="of the first call: the text to train on")
    option("--baseline", type=Path, default=HERE / "baseline.toml")
    option("--ideas", type=int, default=6)
    option("--budget", default="10m", help="of one idea")
    option("--agent", help="a command; without it, a stub")
    option("--agent-user", help="whom the agent runs as; needs root")
    given = parser.parse_args()
    vault, agent = (given.work.resolve() / name for name in ("vault", "agent"))
    agent.mkdir(parents=True, exist_ok=True)
    vault.mkdir(mode=0o700, exist_ok=True)
    vault.chmod(0o700)
    if given.agent_user:
        require_closed(vault, given.agent_user)
        shutil.chown(agent, given.agent_user)
    alone = "nothing: root reads all; give --agent-user" if os.geteuid() == 0 else "file mode"
    print("what keeps the agent from the text:", "another user" if given.agent_user else alone)
    shutil.copy(HERE / "PROGRAM.md", agent)
    if not (vault / "night").exists():
        if given.text is None:
            parser.error("--text FILE is needed to begin")
        shutil.copy(given.text, vault / "text.txt")
        shutil.copy(given.baseline, vault / "baseline.toml")
        if paribus(vault, "new", "night", "--baseline", "baseline.toml")[0]:
            return 2
    for number in range(given.ideas):
        (agent / "history.json").write_text(json.dumps(paribus(vault, "status", "night")[1]))
        idea = ask(given.agent, agent, vault, given.agent_user, number)
        if idea is None:
            break
        if not idea:
            continue
        arm = "".join(f"set.{json.dumps(k)} = {json.dumps(v)}\n" for k, v in idea["set"].items())
        (vault / "idea.toml").write_text(arm)
        words = ("try", "night", idea["name"], "--arm", "idea.toml", "--budget", given.budget)
        code, _ = paribus(vault, *words)
        if code == BUDGET:
            paribus(vault, "give-up", "night", idea["name"])
        print(idea["name"], {KEPT: "kept", NOT_KEPT: "not kept", BUDGET: "over budget"}.get(code))
    code, told = paribus(vault, "end", "night")
    print(json.dumps(told["ended"], indent=2) if told else "not ended")
    return code


if __name__ == "__main__":
    sys.exit(main())
