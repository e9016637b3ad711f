"""Which source a user's own part is made of: the file that names it, and all that this one uses.

Files are read and taken apart, nothing is run. From the named definition on, top-level definitions
are followed by the names that they use, over `import` and `from` into every other file below the
study's folder (of an installed package: below that package). Statements of a module that act when
it is imported count always; other definitions count only where they are used, so that one may edit
a class beside another. The digest is of the text of what is used.

What reading cannot know falls back to more: a file that uses `exec`, `eval`, `globals` or a star
import counts whole, one that imports by a name made at run time (`importlib`, `__import__`,
`runpy`) counts with every .py file below the folder. What it cannot see at all: a name that is
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
from pathlib import Path

from paribus.errors import ParibusError
from paribus.foreign import CODE_BYTES, is_regular, read_bytes

WHOLE = "*"  # every definition of a file, as a star import is written
NOTHING = ""  # a file that is imported and of which nothing is used
WHOLE_FILE_NAMES = frozenset({"exec", "eval", "globals", "locals", "vars"})
EVERY_FILE_NAMES = frozenset({"importlib", "__import__", "runpy", "pkgutil"})
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
    walk.use(file, name)
    return walk.digests()


def _start(name: str, folder: Path, where: str) -> tuple[Path, Path, Path]:
    """(the named file, where absolute imports start, below which folder they are followed)."""
    if name.endswith(".py"):
        file = folder / name
        if not is_regular(file):
            raise ParibusError(f"{where}: no file {file}; paths start at the study's folder")
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


@dataclass
class _File:
    """A parsed file, and how much of it is used so far.

    Attributes:
        lines: its text.
        body: its statements at top level.
        bound: what imports bind, wherever they stand: name -> (file, definition or None: a module).
        used: indices of the statements of `body` that count.
        names: what was asked for.
    """

    lines: list[str]
    body: list[ast.stmt]
    bound: dict[str, list[tuple[Path, str | None]]] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


class _Walk:
    """Follows names from file to file `below` a folder; absolute imports start at `root`."""

    def __init__(self, root: Path, below: Path, where: str) -> None:
        self.root, self.below, self.where = root, below, where
        self.files: dict[Path, _File] = {}

    def use(self, file: Path, name: str) -> None:
        """Count in `name` of `file`, and all that it uses."""
        file = file.resolve()
        of = self.files.get(file) or self._meet(file)
        if name in of.names:
            return
        of.names.add(name)
        for number, statement in enumerate(of.body):
            if name == WHOLE or name in _defined(statement):
                self._count_in(of, number)

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
        for one in (node for statement in of.body for node in ast.walk(statement)):
            if isinstance(one, ast.Import | ast.ImportFrom):
                self._bind(file, of, one)
        for number, statement in enumerate(of.body):
            if _acts(statement, of):
                self._count_in(of, number)
        return of

    def _packages(self, file: Path) -> list[Path]:
        """The packages around a file, which are imported before it, the outermost first."""
        inits = []
        folder = file.parent
        while folder != self.root and (folder / "__init__.py").is_file():
            if folder / "__init__.py" != file:
                inits.insert(0, folder / "__init__.py")
            folder = folder.parent
        return inits

    def _bind(self, file: Path, of: _File, one: ast.Import | ast.ImportFrom) -> None:
        """Note what an import binds of ours. It is run, so the files that it names are met."""
        for alias in one.names:
            if isinstance(one, ast.Import):
                parts = alias.name.split(".")
                heads = [".".join(parts[: end + 1]) for end in range(len(parts))]
                found = [target for head in heads if (target := self._find(file, head, 0))]
                name = alias.asname or parts[0]
                targets: list[tuple[Path, str | None]] = [(target, None) for target in found]
            else:
                name = alias.asname or alias.name
                inner = ".".join(filter(None, [one.module, alias.name]))
                outer, module = (self._find(file, m or "", one.level) for m in (one.module, inner))
                targets = [(outer, alias.name)] if outer else []
                targets += [(module, None)] if module and module != outer else []
            for target, _ in targets:
                self.use(target, WHOLE if name == WHOLE else NOTHING)
            if targets:
                of.bound.setdefault(name, []).extend(targets)

    def _count_in(self, of: _File, number: int) -> None:
        if number in of.used:
            return
        of.used.add(number)
        statement = of.body[number]
        here = next(file for file, other in self.files.items() if other is of)
        for name in _loaded(statement) | _imported(statement):
            if name in EVERY_FILE_NAMES:
                for other in self._every_file():
                    self.use(other, WHOLE)
            self.use(here, WHOLE if name in WHOLE_FILE_NAMES else name)
            for target, member in of.bound.get(name, ()):
                for wanted in [member] if member else _attributes(statement, name):
                    self.use(target, wanted)

    def _find(self, file: Path, module: str, level: int) -> Path | None:
        """The file of a module of ours; None for any other."""
        start = file.parents[level - 1] if level else self.root
        base = start.joinpath(*filter(None, module.split(".")))
        candidates = [base / "__init__.py"] + ([base.with_suffix(".py")] if module else [])
        return next((f.resolve() for f in candidates if f.is_file() and self._is_below(f)), None)

    def _is_below(self, file: Path) -> bool:
        return file.resolve().is_relative_to(self.below)

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
            found += [folder / name for name in sorted(files) if name.endswith(".py")]
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


def _attributes(statement: ast.stmt, name: str) -> set[str]:
    """What a statement uses of the module called `name`: all where it passes the module on."""
    taken = [
        node.attr
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    ]
    times = sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(statement))
    return set(taken) if times == len(taken) else {WHOLE}


def _acts(statement: ast.stmt, of: _File) -> bool:
    """Whether a statement does more on import than bind a name to a function, class or constant."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return False  # the files that it runs are met by themselves
    if isinstance(statement, _DEFINITIONS):
        run = list(_run_on_import(statement))
        ours = {s.name for s in of.body if isinstance(s, _DEFINITIONS)} | of.bound.keys()
        decorators = [d for node in run for d in getattr(node, "decorator_list", [])]
        return any(map(_writes, run)) or any(_loaded(d) & ours for d in decorators)
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
