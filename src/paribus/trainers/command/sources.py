"""Source code of a trial, from the user's working copy or from a clone at a commit.

An arm with a `ref` runs in a shared clone of its repository, inside the results folder. Nothing is
written to the user's working copy or to its `.git`. The digest of uncommitted changes is recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.files import file_digest, remove_folder, whole_folder
from paribus.study import Study
from paribus.study.custom_code import own_files
from paribus.trainers.command.sections import ArmProgram
from paribus.untrusted_io import CODE_BYTES, is_regular, read_bytes

COPIES = "worktrees"  # in a results folder
# Of untracked files, those that may be part of the program.
CODE = (".py", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".jl", ".rs", ".go")
MOST_UNTRACKED = 1_000
SHORT = 12


@dataclass(frozen=True)
class Source:
    """Source code of an arm.

    Attributes:
        folder: working directory of the program, unless it runs in a clone.
        top: root of the repository, or None outside of a repository.
        commit: commit that is run, or "" outside of a repository.
        uncommitted: digest of uncommitted changes, or "" if there are none.
        files: digests of the files in the command and of their imports, keyed by path; empty inside
            a repository.
        changed: names of files with uncommitted changes.
    """

    folder: Path
    top: Path | None = None
    commit: str = ""
    uncommitted: str = ""
    files: dict[str, str] = field(default_factory=dict)
    changed: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """Commit and digests as a dict, as stored at registration."""
        names = ("commit", "uncommitted", "files")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def evidence(self) -> str:
        """Commit and digests on one line, for comparison, or "" if none are known."""
        texts = {k: v if isinstance(v, str) else digest(v) for k, v in self.record.items()}
        return ", ".join(f"{name} {text[:SHORT]}" for name, text in texts.items())


def find_source(study: Study, arm: str, registered: str = "") -> Source:
    """Locate the source code that an arm's trials run.

    Args:
        study: the study.
        arm: name of the arm.
        registered: commit that the arm's `ref` pointed to at registration, or "". A branch may
            have moved since.

    Raises ParibusError if the folder or the commit does not exist.
    """
    program = study.setting(arm).program
    folder = (study.folder / program.folder).resolve()
    if not folder.is_dir():
        raise ParibusError(f"{folder} is not a folder; use --set trainer.folder", code="missing")
    try:
        commit = git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        top = Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except ParibusError as error:
        if program.ref:
            raise ParibusError(
                f"arm '{arm}' has a ref, but {folder} is not in a git repository with a commit "
                f"({error}); use [set], command, env or folder instead",
                code="unsupported",
            ) from None
        return Source(folder, files=_file_digests(program, folder))
    if program.ref:
        return Source(folder, top, _commit(top, registered or program.ref, arm))
    diff = git(top, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    untracked = _untracked(top)
    changed = (*os.fsdecode(git(top, "diff", "HEAD", "--name-only")).splitlines(), *untracked)
    content = [hashlib.sha256(diff).hexdigest(), untracked]
    uncommitted = digest(content) if changed else ""
    return Source(folder, top, commit, uncommitted, changed=changed)


def prepare_folder(study: Study, arm: str, source: Source, home: Path) -> Path:
    """Return the working directory of an arm's program, after cloning its repository if needed.

    An existing clone in `home` is reused if its files are unchanged.
    """
    if not study.setting(arm).program.ref or source.top is None:
        return source.folder
    copy = home / digest(source.record)[:SHORT]
    below = source.folder.relative_to(source.top.resolve())
    if copy.is_dir() and git(copy, "diff", "--name-only"):
        remove_folder(copy)
    if not copy.is_dir():
        with whole_folder(copy) as new:
            git(source.top, "clone", "-qsn", "--template=", str(source.top), str(new))
            git(new, "checkout", "--quiet", "--detach", source.commit)
    if not (copy / below).is_dir():
        raise ParibusError(f"arm '{arm}': its commit lacks {below}; commit it", code="missing")
    return copy / below


def _commit(top: Path, ref: str, arm: str) -> str:
    try:
        return git(top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
    except ParibusError:
        raise ParibusError(
            f"arm '{arm}': ref = '{ref}' is not a commit in {top}; list branches with `git branch`",
            code="unknown",
        ) from None


def _untracked(top: Path) -> dict[str, str]:
    """Return the digests of untracked code files, keyed by path."""
    names = os.fsdecode(git(top, "ls-files", "--others", "--exclude-standard", "-z")).split("\0")
    code = [name for name in names if name.endswith(CODE) and is_regular(top / name)]
    return {name: file_digest(top / name) for name in sorted(code)[:MOST_UNTRACKED]}


def _file_digests(program: ArmProgram, folder: Path) -> dict[str, str]:
    """Return the digests of the files in a command and of their Python imports, keyed by path."""
    files: dict[Path, bytes] = {}
    for word in program.command:
        path = folder / word
        if is_regular(path) and path.stat().st_size <= CODE_BYTES:
            files[path.resolve()] = read_bytes(path)
            if path.suffix == ".py":
                with contextlib.suppress(ParibusError):  # it is not Python after all
                    files |= own_files(f"{word}:main", folder, f"trainer.command = '{word}'")
    return {
        os.path.relpath(path, folder): hashlib.sha256(content).hexdigest()
        for path, content in sorted(files.items())
    }


def git(folder: Path, *words: str) -> bytes:
    """Run git in a folder and return its output, or raise ParibusError if git fails."""
    # In a hook of git, its variables are about another repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    argv = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, capture_output=True, env=env, check=False)
    except FileNotFoundError:
        raise ParibusError("git was not found; install git", code="not_installed") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[0] if lines else f"exit code {done.returncode}"
        raise ParibusError(f"git {words[0]} failed in {folder}: {why}")
    return done.stdout
