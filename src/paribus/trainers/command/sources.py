"""Where the code of a trial is, and what it is: a working copy as it stands, or a copy of a commit.

An arm with a `ref` or a `patch` is run in a copy of its repository, made of the same objects (as
`git clone --shared` does) below the results folder. Nothing is written to the user's working copy
or to its `.git`. Of uncommitted work the digest is recorded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.files import remove_folder, whole_folder
from paribus.study import Study
from paribus.study.custom_code import own_files
from paribus.trainers.command.sections import CommandSetting
from paribus.untrusted_io import CODE_BYTES, is_regular, read_bytes

LOG = logging.getLogger("paribus")
COPIES = "worktrees"  # in a results folder
# Files that are no part of a commit, and may be part of the program: all that is not ignored.
CODE = (".py", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".jl", ".rs", ".go")
MOST_UNTRACKED = 1_000
SHORT = 12


@dataclass(frozen=True)
class Source:
    """The code of an arm.

    Attributes:
        folder: where the program is started, if not in a copy.
        top: of the repository; None without one.
        commit: what it is a copy of, or what is checked out; empty without a repository.
        uncommitted: the digest of what `folder` has besides; empty for nothing, and of a commit
            that was named.
        changed: the names of these files.
        patch: the digest of a patch on top; empty for none.
        files: without a repository, digests of the files that the command names, and of what they
            import from beside them.
    """

    folder: Path
    top: Path | None = None
    commit: str = ""
    uncommitted: str = ""
    changed: tuple[str, ...] = ()
    patch: str = ""
    files: dict[str, str] = field(default_factory=dict)
    is_copied: bool = False

    @property
    def evidence(self) -> str | None:
        """Return what equal sources have alike, in a line; None where nothing is known."""
        if self.commit:
            parts = [f"commit {self.commit[:SHORT]}"]
            parts += [f"patch {self.patch[:SHORT]}"] if self.patch else []
            parts += [f"uncommitted {self.uncommitted[:SHORT]}"] if self.uncommitted else []
            return ", ".join(parts)
        if self.files:
            listing = "".join(f"{name} {digest}\n" for name, digest in sorted(self.files.items()))
            n = len(self.files)
            digest = hashlib.sha256(listing.encode()).hexdigest()[:SHORT]
            return f"{n} file{'s' if n > 1 else ''} {digest}"
        return None

    @property
    def about(self) -> dict[str, Any]:
        """Return what is registered of it."""
        record = {"commit": self.commit, "uncommitted": self.uncommitted, "patch": self.patch}
        return record | {"files": self.files} if self.files else record


def source_of(study: Study, arm: str, setting: CommandSetting, at: str = "") -> Source:
    """Return the code that the trials of an arm run. Raises ParibusError.

    `at` is the commit that its `ref` was when the study was registered.
    """
    program = setting.program
    folder = (study.folder / program.folder).resolve()
    if not folder.is_dir():
        raise ParibusError(
            f"trainer.folder = '{program.folder}': no folder {folder}; it is relative to the study "
            "file"
        )
    top = _top(folder)
    if top is None:
        if program.is_copied:
            raise ParibusError(
                f"arm '{arm}' has a ref or a patch, and {folder} is in no git repository with a "
                "commit; arms there differ by [set], args, env or folder"
            )
        return Source(folder, files=_files(setting, folder))
    commit = _commit(top, program.ref, arm)
    if at and commit != at:
        LOG.warning(
            "arm '%s': %s was at commit %s when the study was registered, and is at %s now; trials "
            "go on with the former",
            *(arm, program.ref, at[:SHORT], commit[:SHORT]),
        )
        commit = _commit(top, at, arm)
    diff, names = ("", ()) if program.ref else _uncommitted(top)
    patch = ""
    if program.patch:
        path = study.folder / program.patch
        missing = f"arm '{arm}': no patch {path}; it is relative to the study file"
        patch = hashlib.sha256(read_bytes(path, CODE_BYTES, missing=missing)).hexdigest()
    return Source(folder, top, commit, diff, names, patch, is_copied=program.is_copied)


def place(study: Study, arm: str, setting: CommandSetting, source: Source, home: Path) -> Path:
    """Return the folder that an arm's program is started in; a copy is made where it needs one.

    `home` is where copies are kept. One that is there is used if its files are still those that it
    was made of. Raises ParibusError where a patch does not apply.
    """
    if not source.is_copied:
        return source.folder
    assert source.top is not None
    program = setting.program
    key = "\n".join([source.commit, source.uncommitted, source.patch, *program.link])
    copy = home / hashlib.sha256(key.encode()).hexdigest()[:SHORT]
    below = source.folder.relative_to(source.top.resolve())
    if copy.is_dir() and not _is_whole(copy):
        remove_folder(copy)
    if not copy.is_dir():
        with whole_folder(copy) as new:
            _fill(study, arm, source, program.patch, new)
            _link(program.link, source.folder, new / below)
    if not (copy / below).is_dir():
        raise ParibusError(f"arm '{arm}': {below} is not in {program.ref or source.commit[:SHORT]}")
    return copy / below


def remove_copies(home: Path) -> None:
    """Remove all copies: they can be made again."""
    remove_folder(home)


def _fill(study: Study, arm: str, source: Source, patch: str, copy: Path) -> None:
    assert source.top is not None
    objects = Path(git(source.top, "rev-parse", "--git-path", "objects").strip())
    git(copy, "init", "--quiet", "--template=")
    alternates = copy / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_text(f"{(source.top / objects).resolve()}\n", encoding="utf-8")
    git(copy, "checkout", "--quiet", "--detach", source.commit)
    if source.uncommitted:
        diff = _git_bytes(source.top, *DIFF)
        if diff:
            git(copy, "apply", "--index", "--whitespace=nowarn", "-", told=diff)
        for name in _untracked(source.top):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(read_bytes(source.top / name, CODE_BYTES))
    if patch:
        content = read_bytes(study.folder / patch, CODE_BYTES)
        try:
            git(copy, "apply", "--index", "--whitespace=nowarn", "-", told=content)
        except ParibusError as error:
            raise ParibusError(
                f"arm '{arm}': {patch} does not apply to commit {source.commit[:SHORT]}"
                f"{' with what is uncommitted' if source.uncommitted else ''}: "
                f"{str(error).partition(': ')[2]}"
            ) from None
    git(copy, "add", "--all", "--force")  # what there is now is what there must be


def _link(patterns: Iterable[str], folder: Path, into: Path) -> None:
    """Link what the copy lacks, by patterns of paths in `folder`. Raises ParibusError."""
    for pattern in patterns:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ParibusError(f"trainer.link = '{pattern}' must be a path within trainer.folder")
        paths = sorted(folder.glob(pattern))
        if not paths:
            raise ParibusError(f"trainer.link: nothing in {folder} is called '{pattern}'")
        for path in paths:
            _link_one(path, into / path.relative_to(folder))


def _link_one(path: Path, here: Path) -> None:
    """Link a path; of a folder that the copy has too, what it lacks there."""
    if not os.path.lexists(here):
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(path)
    elif here.is_dir() and path.is_dir() and not here.is_symlink():
        for inner in path.iterdir():
            _link_one(inner, here / inner.name)


def _is_whole(copy: Path) -> bool:
    """Return whether the files of a copy are those that it was made of."""
    try:
        return not _git_bytes(copy, "diff", "--name-only")
    except ParibusError:
        return False


def _top(folder: Path) -> Path | None:
    """Return the top of the repository that a folder is in; None without one, or without commit."""
    try:
        git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return Path(git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    except FileNotFoundError:
        return None
    except ParibusError as error:
        if "dubious ownership" in str(error):
            raise
        return None


def _commit(top: Path, ref: str, arm: str) -> str:
    try:
        if ref.startswith("-"):
            raise ParibusError("it begins with a dash")
        return git(top, "rev-parse", "--verify", "--quiet", f"{ref or 'HEAD'}^{{commit}}").strip()
    except ParibusError:
        names = git(top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
        raise ParibusError(
            f"arm '{arm}': ref = '{ref}' is no commit of {top}: {nearest(ref, names.split())}"
        ) from None


DIFF = ("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")


def _uncommitted(top: Path) -> tuple[str, tuple[str, ...]]:
    """Return the digest of what a working copy has besides its commit, and the files' names."""
    diff, untracked = _git_bytes(top, *DIFF), _untracked(top)
    if not diff and not untracked:
        return "", ()
    total = hashlib.sha256(diff)
    for name in untracked:
        content = hashlib.sha256(read_bytes(top / name, CODE_BYTES)).hexdigest()
        total.update(f"{name} {content}\n".encode("utf-8", "surrogateescape"))
    changed = git(top, "diff", "HEAD", "--name-only").split("\n") if diff else []
    return total.hexdigest(), tuple(filter(None, [*changed, *untracked]))


def _untracked(top: Path) -> list[str]:
    """Return files of code that are neither in a commit nor ignored."""
    listed = _git_bytes(top, "ls-files", "--others", "--exclude-standard", "-z")
    names = [os.fsdecode(one) for one in listed.split(b"\0") if one]
    code = (name for name in names if name.endswith(CODE) and is_regular(top / name))
    small = (name for name in code if (top / name).stat().st_size <= CODE_BYTES)
    return sorted(small)[:MOST_UNTRACKED]


def _files(setting: CommandSetting, folder: Path) -> dict[str, str]:
    """Return digests of the files that a command names, and of what Python files there import."""
    words = setting.program.command
    files: dict[Path, bytes] = {}
    for word in words.split() if isinstance(words, str) else words:
        path = folder / word
        if not is_regular(path) or path.stat().st_size > CODE_BYTES:
            continue
        if path.suffix == ".py":
            try:
                files |= own_files(f"{word}:main", folder, f"trainer.command = '{word}'")
                continue
            except ParibusError:
                pass  # whether it is Python is the matter of who runs it
        files[path.resolve()] = read_bytes(path, CODE_BYTES)
    return {
        path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name: (
            hashlib.sha256(content).hexdigest()
        )
        for path, content in files.items()
    }


def git(folder: Path, *words: str, told: bytes | None = None) -> str:
    """Return what git says. Raises ParibusError where it fails, or is not installed."""
    return _git_bytes(folder, *words, told=told).decode("utf-8", "surrogateescape")


def _git_bytes(folder: Path, *words: str, told: bytes | None = None) -> bytes:
    # As a hook of git runs us, its variables are about another repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words],
            input=told or b"",
            capture_output=True,
            env=env,
            check=False,
        )
    except FileNotFoundError:
        raise ParibusError(
            "git is not installed, and says which commit a trial is of; install it"
        ) from None
    if done.returncode:
        words_of = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = words_of[0] if words_of else f"exit code {done.returncode}"
        raise ParibusError(f"git {words[0]} in {folder}: {why}")
    return done.stdout
