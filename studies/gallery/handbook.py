"""The text of the gallery: the Debian Administrator's Handbook, as Debian's package has it.

    apt-get download debian-handbook
    python studies/gallery/handbook.py debian-handbook_11.20220922_all.deb studies/gallery/handbook

writes `train.txt`, and a folder of documents for validation and one for the sealed test part. A
document is a page of the English edition. Of the pages with at least 8,000 characters every fourth
is sealed and every fourth validates, by its first 8,000 characters; the rest of these pages is not
read. All other pages are trained on.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from anarchist_faq import page

PACKAGE_SHA256 = "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa"
TEXT_SHA256 = "e38982d23de717784d7cf9875b674138841147c3f3dc517fd47ff67e840fb33a"
LEAST = 8_000  # characters


def main(package: Path, folder: Path) -> None:
    """Write the three parts. Exits where the package or the text is another."""
    if hashlib.sha256(package.read_bytes()).hexdigest() != PACKAGE_SHA256:
        sys.exit(f"{package} is not debian-handbook 11.20220922, of which the text was made")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
        files = sorted(Path(scratch).rglob("html/en-US/*.html"), key=lambda file: file.name)
        pages = {file.stem: page(file.read_bytes().decode("utf-8", "replace")) for file in files}
    long = [name for name, text in pages.items() if len(text) >= LEAST]
    sealed, validation = long[1::4], long[3::4]
    trained = [text for name, text in pages.items() if name not in {*sealed, *validation}]
    parts = {"train.txt": "\n\n".join(trained)}
    parts |= {f"sealed/{name}.txt": pages[name][:LEAST] for name in sealed}
    parts |= {f"validation/{name}.txt": pages[name][:LEAST] for name in validation}
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
