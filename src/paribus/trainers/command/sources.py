"""The code of a trial: a working copy as it is, or a copy of a commit.

An arm with a `ref` or a `patch` runs in a copy of its repository, a shared clone below the results
folder. Nothing is written to the user's working copy or to its `.git`. Of uncommitted changes the
digest is recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.files import remove_folder, whole_folder
from paribus.numbers import plural
from paribus.study import Study
from paribus.study.custom_code import own_files
from paribus.trainers.command.sections import ArmProgram
from paribus.untrusted_io import CODE_BYTES, is_regular, read_bytes

COPIES = "worktrees"  # in a results folder
# Of untracked files, those that may be part of the program.
CODE = (".py", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".jl", ".rs", ".go")
MOST_UNTRACKED = 1_000
SHORT = 12
DIFF = ("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")


@dataclass(frozen=True)
class Source:
    """The code of an arm.

    Attributes:
        folder: the working directory of the program, if it runs in no copy.
        top: the top of the repository; None without one.
        commit: what is checked out; empty without a repository.
        uncommitted: the digest of uncommitted changes; empty for none, or where `ref` is stated.
        changed: the names of the changed files.
        patch: the digest of a patch; empty for none.
        files: without a repository, digests of the files that the command names and their imports.
    """

    folder: Path
    top: Path | None = None
    commit: str = ""
    uncommitted: str = ""
    changed: tuple[str, ...] = ()
    patch: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """A line that equal sources have alike; empty where nothing is known."""
        listing = "".join(f"{name} {digest}\n" for name, digest in sorted(self.files.items()))
        files = plural(len(self.files), "file")
        parts = {"commit": self.commit, "patch": self.patch, "uncommitted": self.uncommitted}
        parts[files] = _sha256(listing.encode()) if self.files else ""
        return ", ".join(f"{name} {text[:SHORT]}" for name, text in parts.items() if text)

    @property
    def record(self) -> dict[str, Any]:
        """The registered form."""
        record = {"commit": self.commit, "uncommitted": self.uncommitted, "patch": self.patch}
        return record | {"files": self.files} if self.files else record


def find_source(study: Study, arm: str, program: ArmProgram, registered_commit: str = "") -> Source:
    """Return the code that the trials of an arm run. Raises ParibusError.

    A `ref` is the commit that was registered for it: a branch may have moved since.
    """
    folder = (study.folder / program.folder).resolve()
    if not folder.is_dir():
        raise ParibusError(
            f"trainer.folder = '{program.folder}': no folder {folder}; it is relative to the study "
            "file",
            code="missing",
        )
    try:
        head = git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
        top = Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except ParibusError as error:
        if program.is_copied:
            raise ParibusError(
                f"arm '{arm}' has a ref or a patch, and {folder} is in no git repository with a "
                f"commit ({error}); arms there differ by [set], args, env or folder",
                code="unsupported",
            ) from None
        return Source(folder, files=_file_digests(program, folder))
    if program.ref:
        head = _commit(top, registered_commit or program.ref, arm)
    uncommitted, changed = ("", ()) if program.ref else _uncommitted(top)
    patch = ""
    if program.patch:
        path = study.folder / program.patch
        missing = f"arm '{arm}': no patch {path}; it is relative to the study file"
        patch = _sha256(read_bytes(path, CODE_BYTES, missing=missing))
    return Source(folder, top, head, uncommitted, changed, patch)


def prepare_folder(study: Study, arm: str, program: ArmProgram, source: Source, home: Path) -> Path:
    """Return the working directory of an arm's program; `home` is the folder of copies.

    An existing copy is used if its files are unchanged. Raises ParibusError where a patch does not
    apply.
    """
    if not program.is_copied or source.top is None:
        return source.folder
    key = "\n".join([source.commit, source.uncommitted, source.patch, *program.link])
    copy = home / _sha256(key.encode())[:SHORT]
    below = source.folder.relative_to(source.top.resolve())
    if copy.is_dir() and git(copy, "diff", "--name-only"):
        remove_folder(copy)
    if not copy.is_dir():
        with whole_folder(copy) as new:
            _fill(study, arm, source, source.top, program.patch, new)
            _link_all(program.link, source.folder, new / below)
    if not (copy / below).is_dir():
        raise ParibusError(
            f"arm '{arm}': {below} is not in {program.ref or source.commit[:SHORT]}", code="missing"
        )
    return copy / below


def _fill(study: Study, arm: str, source: Source, top: Path, patch: str, copy: Path) -> None:
    git(top, "clone", "--quiet", "--shared", "--no-checkout", "--template=", str(top), str(copy))
    git(copy, "checkout", "--quiet", "--detach", source.commit)
    apply = ("apply", "--index", "--whitespace=nowarn", "-")
    if source.uncommitted:
        if diff := git(top, *DIFF):
            git(copy, *apply, content=diff)
        for name in _untracked(top):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(read_bytes(top / name, CODE_BYTES))
    if patch:
        try:
            git(copy, *apply, content=read_bytes(study.folder / patch, CODE_BYTES))
        except ParibusError as error:
            raise ParibusError(
                f"arm '{arm}': {patch} does not apply to commit {source.commit[:SHORT]}"
                f"{' with uncommitted changes' if source.uncommitted else ''}: "
                f"{str(error).partition(': ')[2]}"
            ) from None
    git(copy, "add", "--all", "--force")  # so that a diff shows later changes


def _link_all(patterns: tuple[str, ...], folder: Path, into: Path) -> None:
    """Link what the copy lacks, by patterns of paths in `folder`. Raises ParibusError."""
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ParibusError(f"trainer.link = '{pattern}' must be a path within trainer.folder")
        paths = sorted(folder.glob(pattern))
        if not paths:
            raise ParibusError(
                f"trainer.link: nothing in {folder} is called '{pattern}'", code="missing"
            )
        for path in paths:
            _link(path, into / path.relative_to(folder))


def _link(path: Path, link: Path) -> None:
    """Link a path; of a folder that the copy has too, what it lacks there."""
    if not os.path.lexists(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    elif link.is_dir() and path.is_dir() and not link.is_symlink():
        for inner in path.iterdir():
            _link(inner, link / inner.name)


def _commit(top: Path, ref: str, arm: str) -> str:
    try:
        return git(top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
    except ParibusError:
        names = git(top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
        known = os.fsdecode(names).split()
        raise ParibusError(
            f"arm '{arm}': ref = '{ref}' is no commit of {top}: {nearest(ref, known)}",
            code="unknown",
        ) from None


def _uncommitted(top: Path) -> tuple[str, tuple[str, ...]]:
    """Return the digest of the uncommitted changes of a working copy, and the files' names."""
    diff, untracked = git(top, *DIFF), _untracked(top)
    if not diff and not untracked:
        return "", ()
    for name in untracked:
        digest = _sha256(read_bytes(top / name, CODE_BYTES))
        diff += f"{name} {digest}\n".encode("utf-8", "surrogateescape")
    changed = os.fsdecode(git(top, "diff", "HEAD", "--name-only")).splitlines()
    return _sha256(diff), (*changed, *untracked)


def _untracked(top: Path) -> list[str]:
    """Return files of code that are neither in a commit nor ignored."""
    listed = os.fsdecode(git(top, "ls-files", "--others", "--exclude-standard", "-z"))
    names = (name for name in listed.split("\0") if name.endswith(CODE) and is_regular(top / name))
    small = (name for name in names if (top / name).stat().st_size <= CODE_BYTES)
    return sorted(small)[:MOST_UNTRACKED]


def _file_digests(program: ArmProgram, folder: Path) -> dict[str, str]:
    """Return digests of the files that a command names, and of what Python files there import."""
    words = program.command
    files: dict[Path, bytes] = {}
    for word in words.split() if isinstance(words, str) else words:
        path = folder / word
        if not is_regular(path) or path.stat().st_size > CODE_BYTES:
            continue
        files[path.resolve()] = read_bytes(path, CODE_BYTES)
        if path.suffix == ".py":
            with contextlib.suppress(ParibusError):  # it is no Python after all
                files |= own_files(f"{word}:main", folder, f"trainer.command = '{word}'")
    return {
        path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name: digest
        for path, digest in ((path, _sha256(content)) for path, content in files.items())
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git(folder: Path, *words: str, content: bytes = b"") -> bytes:
    """Return the output of git, which reads `content`. Raises ParibusError where it fails."""
    # In a hook of git, its variables are about another repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    argv = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, input=content, capture_output=True, env=env, check=False)
    except FileNotFoundError:
        raise ParibusError(
            "git is not installed, which tells the commit of a trial; install it",
            code="not_installed",
        ) from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[0] if lines else f"exit code {done.returncode}"
        raise ParibusError(f"git {words[0]} in {folder}: {why}")
    return done.stdout
