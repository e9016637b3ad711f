"""`text`: any UTF-8 file, or a folder of them with each file a document."""

from __future__ import annotations

from pathlib import Path

from paribus.data.corpora import corpus
from paribus.errors import ParibusError
from paribus.study import Data


@corpus("text")
def text(data: Data, folder: Path) -> list[str]:
    """The file `data.path`, or every file below the folder `data.path`, in the order of paths."""
    if data.path is None:
        raise ParibusError("data.corpus = 'text' needs data.path, a UTF-8 file or a folder of them")
    path = folder / data.path
    if not path.exists():
        raise ParibusError(f"data.path = '{data.path}' does not exist at {path}; correct the path")
    files = [path]
    if path.is_dir():
        # Hidden files (.DS_Store, .git) are the system's, not the corpus.
        inside = [f for f in path.rglob("*") if f.is_file()]
        visible = [f for f in inside if not any(p[0] == "." for p in f.relative_to(path).parts)]
        files = sorted(visible, key=lambda file: file.relative_to(path).as_posix())
    return [read_text(file) for file in files]


def read_text(file: Path) -> str:
    """The text of a UTF-8 file, its line endings as they are."""
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParibusError(
            f"{file} is not UTF-8 text (byte {error.start}); convert it, "
            f"such as with: iconv -f latin1 -t utf-8"
        ) from None
    except OSError as error:
        raise ParibusError(f"cannot read {file}: {error.strerror}") from None
