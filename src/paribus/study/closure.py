"""Which source a user's own part is made of: the file that names it, and all that this one uses.

Files are read and taken apart, nothing is run. From the named definition on, top-level definitions
are followed by the names that they use, over `import` and `from` into every other file below the
study's folder (of an installed package: below that package). Statements of a module that act when
it is imported count always; other definitions count only where they are used, so that one may edit
a class beside another. The digest is of the text of what is used.

What reading cannot know falls back to more: a file that uses `exec`, `eval`, `globals` or a star
import counts whole, one that imports by a name made at run time (`importlib`, `__import__`,
`runpy`, `sys.modules`) counts with every .py file below the folder, and a module that is passed on
counts whole. What it cannot see at all: a name that is
looked up in a string (`getattr(module, name)`), files that are read as data, compiled extensions
and installed packages but the named one; the versions of those that matter are recorded apart.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from paribus.errors import ParibusError
from paribus.study.importing import no_file
from paribus.untrusted_io import CODE_BYTES, is_regular, read_bytes

WHOLE = "*"  # every definition of a file, as a star import is written
NOTHING = ""  # a file that is imported and of which nothing is used
WHOLE_FILE_NAMES = frozenset({"exec", "eval", "globals", "locals", "vars"})
EVERY_FILE_NAMES = frozenset({"importlib", "__import__", "runpy", "pkgutil"})
REGISTRY = "modules"  # of sys: every module that is loaded
MOST_FILES = 2000  # below a folder, where each of them may be imported
NOT_RUN = frozenset({"__name__ == '__main__'", "TYPE_CHECKING", "typing.TYPE_CHECKING"})
WRITERS = frozenset({"setattr", "delattr", "exec", "eval"})

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def closure(path: str, folder: Path, where: str) -> dict[Path, str]:
    """{file: SHA-256 of what of it is used} for `file.py:name` or `package.module:name`.

    `folder` is where a file's path starts; `where` is for the error. Raises ParibusError where
    there is no such source, or it is no Python.
    """
    module, _, name = path.partition(":")
    file, root, below = _start(module, folder, where)
    walk = _Walk(root.resolve(), below.resolve(), where)
    walk.use(file.resolve(), name)
    return walk.digests()


def _start(name: str, folder: Path, where: str) -> tuple[Path, Path, Path]:
    """(the named file, where absolute imports start, below which folder they are followed)."""
    if name.endswith(".py"):
        file = folder / name
        if not is_regular(file):
            raise no_file(where, file)
        root = folder if file.resolve().is_relative_to(folder.resolve()) else file.parent
        return file, root, root
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ParibusError(f"{where} cannot be imported: {error}") from None
    if spec is None or spec.origin is None or not is_regular(spec.origin):
        raise ParibusError(f"{where} cannot be imported: no module named '{name}'")
    file = Path(spec.origin)
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    topmost = root / name.partition(".")[0]
    return file, root, topmost if topmost.is_dir() else file


class _Bound(NamedTuple):
    """What a name stands for: `member` of `file`; where that is None, the module.

    After `import a.b` the name `a` stands for the file of `b` with `below` = ("b",).
    """

    file: Path
    member: str | None
    below: tuple[str, ...] = ()


@dataclass
class _File:
    """A parsed file, and how much of it is used so far.

    Attributes:
        lines: its text.
        body: its statements at top level.
        bound: what imports bind of ours, wherever they stand, by name.
        every: names by which any file can be imported.
        system: names of the module `sys`.
        used: indices of the statements of `body` that count.
        names: what was asked for.
    """

    lines: list[str]
    body: list[ast.stmt]
    bound: dict[str, list[_Bound]] = field(default_factory=dict)
    every: set[str] = field(default_factory=lambda: set(EVERY_FILE_NAMES))
    system: set[str] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    @cached_property
    def defined(self) -> list[set[str]]:
        """The names that each statement of `body` binds."""
        return [_defined(statement) for statement in self.body]

    @cached_property
    def ours(self) -> set[str]:
        """The names at the top that are defined there, or `bound` to what is ours."""
        imported = set().union(*map(_imported, self.body))
        return (set().union(*self.defined) - imported) | self.bound.keys()


class _Walk:
    """Follows names from file to file `below` a folder; absolute imports start at `root`."""

    def __init__(self, root: Path, below: Path, where: str) -> None:
        self.root, self.below, self.where = root, below, where
        self.files: dict[Path, _File] = {}
        self._followed: set[tuple[Path, tuple[str, ...]]] = set()

    def use(self, file: Path, name: str) -> None:
        """Count in `name` of `file`, a resolved path, and all that it uses."""
        of = self.files.get(file) or self._meet(file)
        if name in of.names:
            return
        of.names.add(name)
        for number, defined in enumerate(of.defined):
            if name == WHOLE or name in defined:
                self._count_in(file, number)
        if name == WHOLE:  # whoever has all of it has the modules that it imports
            for one in [one for bound in of.bound.values() for one in bound]:
                self.use(one.file, one.member or WHOLE)

    def _follow(self, file: Path, parts: tuple[str, ...]) -> None:
        """Count in what `parts`, a chain of attributes, is of a module; all, where it is empty."""
        if (file, parts) in self._followed:
            return
        self._followed.add((file, parts))
        if not parts:
            self.use(file, WHOLE)
            return
        self.use(file, parts[0])
        for one in self.files[file].bound.get(parts[0], ()):
            self._take(one, parts[1:])
        if file.name == "__init__.py" and (inner := self._find(file, parts[0], 1)):
            self._follow(inner, parts[1:])

    def _take(self, one: _Bound, chain: tuple[str, ...]) -> None:
        """Count in what a chain of attributes of a bound name is."""
        if one.member:
            self._follow(one.file, (one.member, *chain))
        elif chain[: len(one.below)] == one.below:
            self._follow(one.file, chain[len(one.below) :])
        elif chain == one.below[: len(chain)]:  # a package is passed on
            self._follow(one.file, ())

    def digests(self) -> dict[Path, str]:
        return {
            file: hashlib.sha256(
                "\n".join(_text(of, of.body[n]) for n in sorted(of.used)).encode()
            ).hexdigest()
            for file, of in sorted(self.files.items())
        }

    def _meet(self, file: Path) -> _File:
        """Parse a file; what acts when it is imported counts, whatever is used of it."""
        try:
            text = read_bytes(file, CODE_BYTES).decode("utf-8")
            of = _File(text.splitlines(), ast.parse(text).body)
        except (SyntaxError, ValueError) as error:
            raise ParibusError(f"{self.where}: {file.name} is no Python file: {error}") from None
        self.files[file] = of
        for init in self._packages(file):
            self.use(init, NOTHING)
        met: list[tuple[Path, str]] = []
        for one in (node for statement in of.body for node in ast.walk(statement)):
            if isinstance(one, ast.Import | ast.ImportFrom):
                met += self._bind(file, of, one)
        for target, wanted in met:  # once all is bound: files may import each other
            self.use(target, wanted)
        for number, statement in enumerate(of.body):
            if _acts(statement, of):
                self._count_in(file, number)
        return of

    def _packages(self, file: Path) -> list[Path]:
        """The packages around a file, which are imported before it, the outermost first."""
        inits = []
        folder = file.parent
        while folder != self.root and (folder / "__init__.py").is_file():
            if folder / "__init__.py" != file:
                inits.insert(0, (folder / "__init__.py").resolve())
            folder = folder.parent
        return inits

    def _bind(
        self, file: Path, of: _File, one: ast.Import | ast.ImportFrom
    ) -> list[tuple[Path, str]]:
        """Note what an import binds. It is run: gives the files that it meets, and what of them."""
        met: list[tuple[Path, str]] = []
        for alias in one.names:
            inner = ".".join(filter(None, [getattr(one, "module", None), alias.name]))
            parts = inner.split(".")
            name = alias.asname or (alias.name if isinstance(one, ast.ImportFrom) else parts[0])
            targets: list[_Bound] = []
            is_absolute = not getattr(one, "level", 0)
            reaches_all = parts[0] in EVERY_FILE_NAMES or inner == f"sys.{REGISTRY}"
            if is_absolute and reaches_all:
                of.every.add(name)
            elif is_absolute and inner == "sys":
                of.system.add(name)
            if isinstance(one, ast.Import):
                for end in range(1, len(parts) + 1):
                    found = self._find(file, ".".join(parts[:end]), 0)
                    if found:
                        met.append((found, NOTHING))
                    if found and (end == len(parts) or not alias.asname):
                        below = () if alias.asname else tuple(parts[1:end])
                        targets.append(_Bound(found, None, below))
            else:
                outer = self._find(file, one.module or "", one.level)
                module = self._find(file, inner, one.level)
                targets = [_Bound(outer, alias.name)] if outer else []
                targets += [_Bound(module, None)] if module and module != outer else []
                met += [(to.file, WHOLE if name == WHOLE else NOTHING) for to in targets]
            if targets:
                of.bound.setdefault(name, []).extend(targets)
        return met

    def _count_in(self, file: Path, number: int) -> None:
        of = self.files[file]
        if number in of.used:
            return
        of.used.add(number)
        statement = of.body[number]
        chains_of = _chains(statement)
        for name in chains_of.keys() | _imported(statement):
            chains = chains_of.get(name, set())
            anything = name in of.system and any(c[:1] in ((), (REGISTRY,)) for c in chains)
            if name in of.every or anything:
                for other in self._every_file:
                    self.use(other, WHOLE)
            self.use(file, WHOLE if name in WHOLE_FILE_NAMES else name)
            for target in of.bound.get(name, ()):
                if target.member:
                    self.use(target.file, target.member)
                for chain in chains:
                    self._take(target, chain)

    def _find(self, file: Path, module: str, level: int) -> Path | None:
        """The file of a module of ours; None for any other."""
        start = file.parents[level - 1] if level else self.root
        base = start.joinpath(*filter(None, module.split(".")))
        candidates = [base / "__init__.py"] + ([base.with_suffix(".py")] if module else [])
        return next((f.resolve() for f in candidates if f.is_file() and self._is_below(f)), None)

    def _is_below(self, file: Path) -> bool:
        return file.resolve().is_relative_to(self.below)

    @cached_property
    def _every_file(self) -> list[Path]:
        """Every .py file there, but of hidden and of results folders."""
        found: list[Path] = []
        for place, inner, files in os.walk(self.below):
            folder = Path(place)
            inner[:] = [
                name
                for name in sorted(inner)
                if name[0] not in "._" and not (folder / name / "study.json").is_file()
            ]
            found += [(folder / name).resolve() for name in sorted(files) if name.endswith(".py")]
            if len(found) > MOST_FILES:
                raise ParibusError(
                    f"{self.where} imports by names made at run time, and more than {MOST_FILES} "
                    "files could be meant; import by name, or give the study a folder of its own"
                )
        return found


def _text(of: _File, statement: ast.stmt) -> str:
    """A statement as it is written, its decorators included."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    return "\n".join(line.rstrip() for line in of.lines[first - 1 : statement.end_lineno])


def _defined(statement: ast.stmt) -> set[str]:
    """The names that a statement binds at the top of its file."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    stored = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    nested = {node.name for node in ast.walk(statement) if isinstance(node, _DEFINITIONS)}
    return stored | nested | _imported(statement)


def _imported(statement: ast.stmt) -> set[str]:
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _chains(statement: ast.stmt) -> dict[str, set[tuple[str, ...]]]:
    """The attributes that a statement takes of each name it loads: ("a", "b") of `name.a.b`."""
    inner = {
        id(node.value): node for node in ast.walk(statement) if isinstance(node, ast.Attribute)
    }
    found: dict[str, set[tuple[str, ...]]] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            chain: list[str] = []
            at: ast.AST = node
            while (above := inner.get(id(at))) is not None:
                chain.append(above.attr)
                at = above
            found.setdefault(node.id, set()).add(tuple(chain))
    return found


def _acts(statement: ast.stmt, of: _File) -> bool:
    """Whether a statement does more on import than bind a name to a function, class or constant."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return False  # the files that it runs are met by themselves
    if isinstance(statement, _DEFINITIONS):
        run = list(_run_on_import(statement))
        # Decorators, bases (of which one may keep a list) and calls that are ours.
        called: list[ast.AST] = [node for node in run if isinstance(node, ast.Call)]
        for node in run:
            called += getattr(node, "decorator_list", [])
            called += [*node.bases, *node.keywords] if isinstance(node, ast.ClassDef) else []
        return any(map(_writes, run)) or any(_loaded(one) & of.ours for one in called)
    if isinstance(statement, ast.If) and ast.unparse(statement.test) in NOT_RUN:
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return False
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return any(isinstance(n, ast.Call) or _writes(n) for n in ast.walk(statement))
    return True


def _run_on_import(definition: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a definition that run when it is made: not what is inside functions."""
    yield definition
    for name, value in ast.iter_fields(definition):
        if name == "body" and isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(definition, ast.Lambda) and name == "body":
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield from _run_on_import(node)


def _writes(node: ast.AST) -> bool:
    """Whether a node sets something that is no plain name."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Call) and bool(_loaded(node.func) & WRITERS)
