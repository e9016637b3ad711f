"""Conversion of the HTML pages of a Debian package to ASCII text for studies.

    apt-get download anarchism
    python studies/debian_pages.py anarchism_15.3-3_all.deb studies/faq

writes `train.txt` and two folders with documents for the validation and test splits. Each document
is a page. Every n-th long page is used for testing or validation; only its beginning is used, so
that documents have similar lengths, and the rest is discarded. All other pages are for training.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple


class Pages(NamedTuple):
    """Conversion settings for a package, and the SHA-256 digest of the concatenated splits.

    `sealed` (test) and `validation` are (first, every, characters): a slice of the pages with at
    least `least` characters, and the number of characters used. Folders `without` are excluded.
    """

    package: str
    text_sha256: str
    files: str
    least: int
    sealed: tuple[int, int, int]
    validation: tuple[int, int, int]
    without: str = ""


# By the SHA-256 of the package.
TEXTS = {
    "cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948": Pages(
        package="anarchism 15.3-3",
        text_sha256="c2d1b7d101ef008f640c11a356023092bf1be67edc14ba0ef73f70b33ff0e4e5",
        files="*.html",
        least=20_000,
        sealed=(1, 4, 16_384),
        validation=(3, 8, 8_192),
    ),
    "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa": Pages(
        package="debian-handbook 11.20220922",
        text_sha256="e38982d23de717784d7cf9875b674138841147c3f3dc517fd47ff67e840fb33a",
        files="html/en-US/*.html",
        least=8_000,
        sealed=(1, 4, 8_000),
        validation=(3, 4, 8_000),
    ),
    "4c44bf2c599f208b3f46454a6cf7a72e25ec46ff74d37b59dd31ad76b00eebb7": Pages(
        package="postgresql-doc-15 15.20-0+deb12u1",
        text_sha256="f5c6462180b5b34bec9618a6e92f2eb1031969b0abe214db3cc68920547e4592",
        files="*.html",
        least=8_000,
        sealed=(1, 8, 8_000),
        validation=(5, 8, 8_000),
    ),
    "f18dfe28dcab7bdbf9185be16b9521f5841277a6a96c374a6683a648d5d5fa4f": Pages(
        package="linux-doc-6.1 6.1.192-3",
        text_sha256="a7a52ccf0057839a1eb534152e5332859cb1a2c7faf6345f5fd9e7a71075e6fc",
        files="*.html",
        without="translations",
        least=12_000,
        sealed=(1, 25, 12_000),
        validation=(9, 50, 12_000),
    ),
    "87307f067916df72e17180d35b7cde5c7ea6080336cda518efd7f6e66988a7ca": Pages(
        package="python-django-doc 3:3.2.25-0+deb12u7",
        text_sha256="65df22689258bd8263445425f89d91c2e42f3bbe8ca130a36521b5b3b1795ce0",
        files="*.html",
        without="_modules",
        least=12_000,
        sealed=(1, 4, 12_000),
        validation=(3, 4, 12_000),
    ),
}
BLOCKS = frozenset(("p", "div", "li", "tr", "br", "blockquote", "dt", "dd", "pre", "ul", "ol"))
BLOCKS |= {"table", "h1", "h2", "h3", "h4", "h5"}
HIDDEN = frozenset(("script", "style", "head"))
# Quotation marks, an ellipsis and dashes, by what stands for them in ASCII.
PLAIN = {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"'}
PLAIN |= {"\u2026": "...", "\u2013": "-", "\u2014": "-"}


class Text(HTMLParser):
    """HTML parser that extracts the text of a page, with one line per block element."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Start a new line at the start of a block element."""
        self.hidden += tag in HIDDEN
        self.parts += ["\n"] if tag in BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        """Start a new line at the end of a block element."""
        self.hidden -= tag in HIDDEN and self.hidden > 0
        self.parts += ["\n"] if tag in BLOCKS else []

    def handle_data(self, data: str) -> None:
        """Append visible text, collapsing whitespace."""
        self.parts += [] if self.hidden else [re.sub(r"\s+", " ", data)]


def page(html: str) -> str:
    """Convert a page to ASCII text, with empty lines between block elements."""
    parser = Text()
    parser.feed(html)
    lines = "\n".join(line.strip() for line in "".join(parser.parts).split("\n"))
    text = re.sub(r"\n{2,}", "\n\n", lines).strip() + "\n"
    text = "".join(PLAIN.get(character, character) for character in text)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def parts_of(pages: dict[str, str], made: Pages) -> dict[str, str]:
    """Split pages into training, validation and test texts, keyed by output file."""
    long = [name for name, text in pages.items() if len(text) >= made.least]
    held_out = {}
    for part, (first, every, length) in (("sealed", made.sealed), ("validation", made.validation)):
        held_out |= {f"{part}/{name}.txt": pages[name][:length] for name in long[first::every]}
    kept = {Path(file).stem for file in held_out}
    trained = [text for name, text in pages.items() if name not in kept]
    return {"train.txt": "\n\n".join(trained)} | held_out


def main(package: Path, folder: Path) -> None:
    """Write the three splits. Exit if the package is unknown or the text's digest differs."""
    made = TEXTS.get(hashlib.sha256(package.read_bytes()).hexdigest())
    if made is None:
        known = ", ".join(one.package for one in TEXTS.values())
        sys.exit(f"{package} is not a known package; download one of {known}")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
        files = [file for file in Path(scratch).rglob(made.files) if made.without not in file.parts]
        top = os.path.commonpath([file.parent for file in files])
        names = {"-".join(file.relative_to(top).with_suffix("").parts): file for file in files}
        pages = {
            name: page(names[name].read_bytes().decode("utf-8", "replace"))
            for name in sorted(names, key=lambda name: (names[name].name, name))
        }
    parts = parts_of(pages, made)
    digest = hashlib.sha256("".join(parts.values()).encode()).hexdigest()
    if digest != made.text_sha256:
        sys.exit(
            f"the text's digest {digest} differs from {made.text_sha256}, because this Python "
            "version parses HTML differently; use another version"
        )
    for name, text in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    n = {part: sum(name.startswith(part) for name in parts) for part in ("sealed", "validation")}
    print(
        f"{len(parts['train.txt']):,} characters for training, {n['sealed']} test documents, "
        f"{n['validation']} validation documents"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
