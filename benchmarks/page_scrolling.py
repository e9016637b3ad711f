"""How smoothly a page scrolls: frames of headless Chromium while it is read from top to bottom.

    python benchmarks/page_scrolling.py REPORT.html [...] [--chromium PATH] [--rounds N]

The page is opened as it is, but for a script at its end that waits until nothing more is drawn,
then scrolls by one notch of a mouse wheel with every frame, and takes the time of each. Chromium
asks for a frame every 16.7 ms at most; headless it draws on the processor. Printed are the seconds
from opening until the figures are there, and of the milliseconds between frames the median, the
95th percentile, the longest, and the share of those above 50 ms, which a reader sees as a jerk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

SCROLL = """<script>
addEventListener("load", async () => {
  const frame = () => new Promise(requestAnimationFrame);
  let drawn = -1, since = performance.now();
  while (performance.now() - since < 1500) {  // nothing new for so long: all that is drawn is there
    await frame();
    const now = document.querySelectorAll("svg, canvas").length;
    if (now !== drawn) { drawn = now; since = performance.now(); }
  }
  const opened = since, height = document.documentElement.scrollHeight, times = [];
  let last = performance.now();
  for (let y = 0; y < height - innerHeight; y += STEP) {
    scrollTo({top: y, behavior: "instant"});
    await frame();
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  const nodes = document.querySelectorAll("*").length;
  await fetch("/", {method: "POST", body: JSON.stringify({opened, height, nodes, drawn, times})});
});
</script>"""
STEP = 120  # pixels: one notch of a mouse wheel
SLOW_MS = 50.0


class _Server(HTTPServer):
    found: dict[str, Any] | None = None


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, page: bytes, *given: Any) -> None:
        self.page = page
        super().__init__(*given)

    def do_GET(self) -> None:
        is_page = self.path == "/"
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.page if is_page else b"")

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *about: Any) -> None:
        """Nothing is said of requests."""


def scrolled(page: Path, chromium: str, seconds: float = 300) -> dict[str, Any]:
    """What the script at the end of `page` saw."""
    text = page.read_text(encoding="utf-8").replace("connect-src 'none'", "connect-src 'self'")
    text = text.replace("default-src 'none'", "default-src 'none'; connect-src 'self'")
    at_end = text.rfind("</body>")
    text = text[:at_end] + SCROLL.replace("STEP", str(STEP)) + text[at_end:]
    server = _Server(("127.0.0.1", 0), partial(_Handler, text.encode()))
    server.timeout = seconds
    with tempfile.TemporaryDirectory() as profile:
        browser = subprocess.Popen(
            [
                chromium,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--window-size=1280,900",
                f"--user-data-dir={profile}",
                f"http://127.0.0.1:{server.server_port}/",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while server.found is None:
                server.handle_request()
        finally:
            browser.kill()
            browser.wait()
            server.server_close()
    return server.found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--rounds", type=int, default=2, help="of all pages in turn")
    arguments = parser.parse_args()
    for _ in range(arguments.rounds):
        for page in arguments.pages:
            found = scrolled(page, arguments.chromium)
            times = sorted(found["times"])
            slow = sum(one > SLOW_MS for one in times) / len(times)
            late = times[int(0.95 * len(times))]
            print(
                f"{page}: {page.stat().st_size / 1e6:.2f} MB, {found['nodes']} elements, "
                f"{found['drawn']} drawings, {found['height']} pixels; "
                f"open in {found['opened'] / 1e3:.2f} s; {len(times)} frames of "
                f"{statistics.median(times):.1f} ms, 95% within {late:.1f}, "
                f"the longest {times[-1]:.1f}, {slow:.1%} above {SLOW_MS:.0f} ms"
            )


if __name__ == "__main__":
    main()
