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

# Runs beside a page in a frame, which is narrower than a window may be.
PHONE = """<script>
document.querySelector("iframe").onload = (event) => {
  const page = event.target.contentDocument, root = page.documentElement;
  const top = (name) => page.querySelector(name).getBoundingClientRect().top;
  const parts = [...page.querySelectorAll(".opening *")];
  const seen = { caution: top(".caution"), endpoint: top(".endpoint") };
  const ends = parts.map((part) => part.getBoundingClientRect().right);
  seen.wide = Math.max(...ends) - root.clientWidth;
  seen.rows = page.querySelectorAll(".found.compact .outcome").length;
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
};
</script>"""


def probed(page: str, colour: str) -> str:
    """The page with what watches it."""
    page = page.replace("<head>", f"<head>{WATCH}", 1)
    # The scripts know the word too: the last one ends the page.
    page, _, end = page.rpartition("</body>")
    return page + PROBE.replace("COLOUR", json.dumps(colour)) + "</body>" + end


def in_browser(page: str, folder: Path) -> dict[str, Any]:
    """What the page says that it saw."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu"),
        *(f"--user-data-dir={folder / 'profile'}", "--window-size=1200,1000"),
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
    seen = in_browser(probed(render(results, analysis, decide(analysis)), BLUE), tmp_path)
    assert seen["problems"] == seen["requests"] == seen["empty"] == []
    assert 2 < seen["opened"] < seen["drawn"]  # what is folded is drawn when it is opened
    assert seen["drawn"] > 20 and seen["forests"] == len(study.judged) == 2
    assert sum(seen["before"]) > 50 and seen["back"] == seen["before"]
    assert sum(seen["hidden"]) == 0 and seen["seeds"][1] < seen["seeds"][0]
    assert "train_loss" in seen["log"] and seen["bold"] == 0 and seen["wide"] <= 0
    head, *lines = seen["values"]
    assert head == ["training step", "seed", "baseline", "LayerNorm", "<i class=evil>x</i>"]
    assert seen["without"] == [name for name in head if name != "LayerNorm"]
    losses = {(int(line[0]), int(line[1])): float(line[3]) for line in lines}
    steps = results.trial_steps["layernorm", 2]
    for step, loss in zip(steps["step"].to_pylist(), steps["train_loss"].to_pylist(), strict=True):
        assert losses[step, 2] == pytest.approx(loss, rel=1e-4)


def test_many_arms_stay_within_a_phone_below_their_caution(small_study, fabricate, tmp_path):
    setting = {"model.embedding.norm": "layernorm"}
    arms = {f"a{k}": {"title": f"a{k}_{'name_' * 12}", "set": setting} for k in range(9)}
    study = small_study(arms={"baseline": {}} | arms, seeds=[1, 2, 3, 4, 5])
    results = fabricate(study, lambda arm, seed: 2.5 + (arm != "baseline") * (0.1 + seed / 100))
    analysis = analyse(results)
    page = render(results, analysis, decide(analysis), drawn=[])
    seen = in_browser(
        f'<iframe width="390" height="800" srcdoc="{html.escape(page)}"></iframe>' + PHONE, tmp_path
    )
    assert seen["wide"] <= 0 and seen["rows"] == 9
    assert seen["caution"] < seen["endpoint"]
