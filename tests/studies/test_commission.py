"""The commission's page, its logs, checkpoints and report agree with the kept records."""

import os
from pathlib import Path

import pytest

from ..tools import module_at
from .scripts import HOME

PAGE = HOME / "commission"
PAPER = HOME.parent / "docs" / "paper"
ARMS = ("baseline", "layernorm", "rmsnorm")
pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


@pytest.fixture(scope="module")
def build():
    return module_at(PAGE / "build.py")


@pytest.fixture(scope="module")
def page(build):
    return build.render()


@pytest.mark.slow
def test_page_agrees_with_the_records(page):
    assert (PAGE / "README.md").read_text(encoding="utf-8") == page


@pytest.mark.slow
def test_a_changed_last_digit_is_found(build, page, tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text(page.replace("2.4223 (", "2.4224 (", 1))
    (tmp_path / "page.md.jinja").write_bytes((PAGE / "page.md.jinja").read_bytes())
    monkeypatch.setattr(build, "HERE", tmp_path)
    (difference,) = build.differences()
    assert "2.4224" in difference and "2.4223" in difference


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [  # recomputed independently of this project's code
        ("validation perplexity", "11.27", "12.40", "12.40"),
        ("next-token accuracy", "0.2985", "0.2766", "0.2766"),
        ("final gradient norm", "1.105", "0.522", "0.528"),
        ("mean embedding norm at block 1", "0.51", "11.16", "11.18"),
        ("expected calibration error", "0.0119", "0.0107", "0.0104"),
    ],
    ids=lambda row: row[0],
)
def test_final_protocol_has_the_known_means(page, row):
    label, *means = row
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {label} |")][:1]
    cells = [cell.strip() for cell in line.split("|")[2:5]]
    assert [cell.split(" (")[0] for cell in cells] == means


@pytest.mark.slow
def test_sign_flip_has_the_known_numbers(page):
    assert "+0.024 [+0.012, +0.036]" in page
    assert "\N{MINUS SIGN}0.040 [\N{MINUS SIGN}0.048" in page
    assert "\N{MINUS SIGN}0.027 at" in page


@pytest.mark.parametrize("arm", ARMS)
def test_log_agrees_with_the_records(build, arm):
    text = (PAGE / "logs" / f"{arm}.csv").read_text(encoding="utf-8")
    assert text == build.log(arm)
    assert text.count("\n") == 1 + 5 * 300 and len(text) < 1_000_000
    columns = (PAGE / "logs" / "README.md").read_text(encoding="utf-8")
    for name in text.split("\n", 1)[0].split(","):
        suffix = "_" + name.split("_")[-1]
        assert f"`{name}`" in columns or f"`{suffix}`" in columns


@pytest.mark.parametrize("arm", ARMS)
def test_checkpoint_has_the_validation_loss_of_its_trial(build, arm):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    texts = [Path(os.environ.get("PARIBUS_DATA", "")) / "tinyshakespeare" / "input.txt"]
    if not texts[0].is_file():
        pytest.skip("needs the text of Shakespeare")
    folder = PAGE / "checkpoints" / arm
    assert (folder / "model.safetensors").stat().st_size < 4_000_000
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = texts[0].read_text(encoding="utf-8")
    # The last tenth is the validation text; 20 of its 872 blocks are enough for a check.
    tokens = torch.tensor(tokenizer(text[-len(text) // 10 :])["input_ids"])
    blocks = tokens[: 20 * 128 + 1]
    inputs, targets = blocks[:-1].view(20, 128), blocks[1:].view(20, 128)
    with torch.no_grad():
        logits = model.float()(inputs).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    blocks = build.kept("embedding-norm").results.read_each("blocks.parquet")
    records = blocks[arm, 1].to_pydict()
    recorded = sum(records["loss_sum_nats"][:20]) / sum(records["predicted"][:20])
    assert loss == pytest.approx(recorded, abs=0.01)


def test_report_and_paper_are_there():
    assert (PAGE / "report.html").stat().st_size < 2_000_000
    for path in (PAGE / "report.pdf", PAPER / "paper.pdf"):
        assert path.read_bytes().startswith(b"%PDF-")
