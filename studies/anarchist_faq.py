"""The text of the factorial: An Anarchist FAQ, as Debian's package `anarchism` has it.

    apt-get download anarchism
    python studies/anarchist_faq.py anarchism_15.3-3_all.deb studies/faq

writes `train.txt`, and a folder each of documents for validation and for the sealed test part.
A document is a page of the FAQ. Of the pages with at least 20,000 characters every fourth is
sealed and every eighth validates, by its first 16,384 or 8,192 characters, so that none outweighs
the others; the rest of these pages is not read. All other pages are trained on.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

PACKAGE_SHA256 = "cf21c10948b00e923c62eb31c39a3390413fa26c5ee0e3b925feb0ec7fe42948"
TEXT_SHA256 = "c2d1b7d101ef008f640c11a356023092bf1be67edc14ba0ef73f70b33ff0e4e5"
LEAST, SEALED, VALIDATION = 20_000, 16_384, 8_192  # characters
BLOCKS = frozenset(("p", "div", "li", "tr", "br", "blockquote", "dt", "dd", "pre", "ul", "ol"))
BLOCKS |= {"table", "h1", "h2", "h3", "h4", "h5"}
HIDDEN = frozenset(("script", "style", "head"))
# Quotation marks, an ellipsis and dashes, by what stands for them in ASCII.
PLAIN = {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201c": '"', "\u201d": '"'}
PLAIN |= {"\u2026": "...", "\u2013": "-", "\u2014": "-"}


class Text(HTMLParser):
    """The text of a page, a line for each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a line with a block."""
        self.hidden += tag in HIDDEN
        self.parts += ["\n"] if tag in BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        """End a line with a block."""
        self.hidden -= tag in HIDDEN and self.hidden > 0
        self.parts += ["\n"] if tag in BLOCKS else []

    def handle_data(self, data: str) -> None:
        """Keep what is shown, with single spaces."""
        self.parts += [] if self.hidden else [re.sub(r"\s+", " ", data)]


def page(html: str) -> str:
    """Return the text of a page in ASCII, with empty lines between blocks."""
    parser = Text()
    parser.feed(html)
    lines = "\n".join(line.strip() for line in "".join(parser.parts).split("\n"))
    text = re.sub(r"\n{2,}", "\n\n", lines).strip() + "\n"
    text = "".join(PLAIN.get(character, character) for character in text)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def main(package: Path, folder: Path) -> None:
    """Write the three parts. Exits where the package or the text is another."""
    if hashlib.sha256(package.read_bytes()).hexdigest() != PACKAGE_SHA256:
        sys.exit(f"{package} is not anarchism 15.3-3 of Debian 12, of which the text was made")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
        files = sorted(Path(scratch).rglob("*.html"), key=lambda file: file.name)
        pages = {file.stem: page(file.read_bytes().decode("utf-8", "replace")) for file in files}
    long = [name for name, text in pages.items() if len(text) >= LEAST]
    sealed, validation = long[1::4], long[3::8]
    trained = [text for name, text in pages.items() if name not in {*sealed, *validation}]
    parts = {"train.txt": "\n\n".join(trained)}
    parts |= {f"sealed/{name}.txt": pages[name][:SEALED] for name in sealed}
    parts |= {f"validation/{name}.txt": pages[name][:VALIDATION] for name in validation}
    digest = hashlib.sha256("".join(parts.values()).encode()).hexdigest()
    if digest != TEXT_SHA256:
        sys.exit(
            f"the text has the digest {digest}, not {TEXT_SHA256}: this Python reads HTML otherwise"
        )
    for name, text in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    sizes = (len(parts["train.txt"]), len(sealed), len(validation))
    print("{:,} characters to train on, {} sealed documents, {} for validation".format(*sizes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
