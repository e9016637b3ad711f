"""The page in a real browser: no errors, no requests, toggling an arm hides its lines, and the
values of each figure are a table."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.page import render

JUDGED = ("validation_loss", "validation_accuracy")
BLUE = "rgb(0, 114, 178)"  # of the first arm that is not a baseline
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

# Runs in the page before everything else.
WATCH = """<script>
window.problems = [];
window.addEventListener("error", (event) => problems.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => problems.push(`${event.reason}`));
window.addEventListener("securitypolicyviolation", (event) => problems.push(event.blockedURI));
for (const level of ["error", "warn"])
  console[level] = (...words) => problems.push(words.join(" "));
</script>"""

# Runs after everything else, and writes what it saw into the page.
PROBE = """<script>
(async () => {
  await report.ready;
  const opened = Object.keys(report.views).length;
  const forests = [...document.querySelectorAll(".endpoint .chart svg")].length;
  const unfold = async () => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
    await new Promise((done) => setTimeout(done, 50));
    await report.done;
  };
  await unfold();
  const valuesOf = (name) => {
    const lines = document.querySelectorAll(`[data-figure="${name}"] tr`);
    return [...lines].map((line) => [...line.cells].map((cell) => cell.textContent));
  };
  const empty = figures.map((figure) => figure.name).filter((name) => valuesOf(name).length < 2);
  const lines = () => figures.map((figure) => {
    const marks = document.querySelectorAll(`#figure-${figure.name} .mark-line path,
      #figure-${figure.name} .mark-symbol path, #figure-${figure.name} .mark-area path`);
    const inked = (mark) => [getComputedStyle(mark).stroke, getComputedStyle(mark).fill];
    const here = [...marks].filter((mark) => !mark.closest(".role-legend"));
    return here.filter((mark) => inked(mark).includes(COLOUR)).length;
  });
  const click = async (selector) => {
    document.querySelector(selector).click();
    await report.done;
  };
  const seen = { opened, forests, empty, before: lines(), drawn: Object.keys(report.views).length };
  seen.values = valuesOf("train_loss");
  await click('input[name="arm"][value="LayerNorm"]');
  seen.hidden = lines();
  seen.without = valuesOf("train_loss")[0];
  await click('input[name="arm"][value="LayerNorm"]');
  seen.back = lines();
  const whole = document.querySelectorAll("#figure-train_loss path").length;
  await click('input[name="seed"][value="1"]');
  seen.seeds = [whole, document.querySelectorAll("#figure-train_loss path").length];
  const axis = document.querySelector('select[name="axis"]');
  axis.value = "log";
  axis.dispatchEvent(new Event("change", { bubbles: true }));
  await report.done;
  seen.log = figures.filter((figure) => figure.log).map((figure) => figure.name);
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.problems = problems;
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.bold = document.querySelectorAll("main i.evil").length;
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
})().catch((error) => { document.body.append(Object.assign(document.createElement("pre"),
  { id: "result", textContent: JSON.stringify({ problems: [String(error), ...problems] }) })); });
</script>"""


def in_browser(page: str, folder: Path, colour: str, width: int = 1200) -> dict[str, Any]:
    """What the probe saw."""
    page = page.replace("<head>", f"<head>{WATCH}", 1)
    # The scripts know the word too: the last one ends the page.
    page, _, end = page.rpartition("</body>")
    page += PROBE.replace("COLOUR", json.dumps(colour)) + "</body>" + end
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"),
        *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},1000"),
        *("--virtual-time-budget=60000", "--dump-dom", path.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


def test_toggles_do_nothing_else(small_study, fabricate, tmp_path):
    arms = {
        "baseline": {},
        "layernorm": {"title": "LayerNorm", "set": {"model.embedding.norm": "layernorm"}},
        "evil": {"title": "<i class=evil>x</i>", "set": {"model.embedding.norm": "rmsnorm"}},
    }
    judged = [{"metric": metric, "primary": True, "margin": 0.02} for metric in JUDGED]
    study = small_study(
        arms=arms, seeds=[1, 2, 3, 4, 5], title="<i class=evil>title</i>", endpoints=judged
    )
    results = fabricate(study, lambda arm, seed: 2.5 + seed / 100 + len(arm) % 7 * seed**2 / 90)
    analysis = analyse(results)
    seen = in_browser(render(results, analysis, decide(analysis)), tmp_path, BLUE)
    assert sorted(set(seen["problems"])) == []
    assert seen["requests"] == []
    assert 2 < seen["opened"] < seen["drawn"]  # what is folded is drawn when it is opened
    assert seen["drawn"] > 20
    assert sum(seen["before"]) > 50
    assert seen["forests"] == len(study.judged) == 2
    assert sum(seen["hidden"]) == 0
    assert seen["back"] == seen["before"]
    assert seen["seeds"][1] < seen["seeds"][0]
    assert "train_loss" in seen["log"]
    assert seen["bold"] == 0
    assert seen["empty"] == [] and seen["wide"] <= 0
    head, *lines = seen["values"]
    assert head == ["training step", "seed", "baseline", "LayerNorm", "<i class=evil>x</i>"]
    assert seen["without"] == [name for name in head if name != "LayerNorm"]
    losses = {(int(line[0]), int(line[1])): float(line[3]) for line in lines}
    steps = results.trial_steps["layernorm", 2]
    for step, loss in zip(steps["step"].to_pylist(), steps["train_loss"].to_pylist(), strict=True):
        assert losses[step, 2] == pytest.approx(loss, rel=1e-4)
