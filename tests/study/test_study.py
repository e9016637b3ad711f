"""The study file: what is refused and how, what an arm changes, what ships."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from paribus.digests import canonical_json, changes, flatten
from paribus.engine.setting import with_precision
from paribus.errors import ParibusError
from paribus.study import Study, load_study, parse_override, parse_study
from paribus.study.base import shortened
from paribus.study.null_study import null_studies

from ..studies.scripts import HOME, all_studies
from ..tools import refused

STUDIES = all_studies()

MINIMAL = """
name = "minimal"
seeds = [1]
[training]
iterations = 30
[arms.baseline]
"""


def parse(text: str) -> Study:
    return parse_study(tomllib.loads(MINIMAL + text), folder=Path())


@pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
def test_the_commissioned_studies_are_what_the_protocol_says():
    studies = STUDIES
    final = studies["embedding-norm"]
    assert final.data.corpus == "shakespeare"
    assert len(final.seeds) == 5
    for arm in ("baseline", "layernorm", "rmsnorm"):
        setting = final.setting(arm)
        assert setting.iterations == 300
        assert setting.tokens == 300 * 16 * 128
        assert (setting.model.n_layer, setting.model.d_model, setting.model.n_head) == (8, 128, 8)
        optimizer = setting.training.optimizer
        assert (optimizer.learning_rate, optimizer.betas) == (3e-4, (0.9, 0.95))
        assert (optimizer.weight_decay, setting.training.grad_clip) == (0.1, 1.0)
        assert (setting.training.dropout, setting.training.schedule.kind) == (0.0, "constant")
    pilot = studies["embedding-norm-pilot"]
    assert (len(pilot.seeds), pilot.setting(pilot.baseline).iterations) == (3, 150)
    unit = pilot.setting("layernorm-unit").model.init
    assert (unit.token_std, unit.position_std) == (1.0, 0.0)
    assert pilot.reference("layernorm-unit") == "baseline-unit"


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_arm_differs_in_what_its_name_says(name):
    study = STUDIES[name]
    for arm, reference in study.contrasts:
        differing, (ours, theirs) = study.differences(arm), (study.arms[arm], study.arms[reference])
        assert differing
        stated = ours.set.keys() | theirs.set.keys()  # what is compared with may change things too
        assert differing.keys() <= {
            key for key in stated if ours.set.get(key) != theirs.set.get(key)
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nn_layr = 3", "'model.n_layr'"),
        ("[training.schedule]\ndecay = 0.2", "'training.schedule.options.decay'"),
        ("[arms.b]\nset.'training.batch_size.to' = 8", "'training.batch_size' ="),
        ("[model]\nn_layer = -3", "model.n_layer ="),
        ("[model]\nn_head = 7", "d_model ="),
        ("[[endpoints]]\nmetric = 'validation_loss'", "endpoint"),
        ("[[endpoints]]\nmetric='validation_loss'\nprimary=true", "margin"),
        ("[arms.b]", "'baseline'"),
        ("[arms.b]\nset.'model.n_head' = 7", "d_model ="),
        ("[arms.b]\nset.'training.batch_size' = 32", "match exactly"),
        ("[arms.b]\nreference='bseline'\nset.'model.bias'=false", "'baseline'"),
        ("[arms.b]\nset.'training.tokens' = 3000", "2048 tokens"),
        (
            "[arms.b]\nset.'training.tokens' = 2048\nset.'training.iterations' = 30",
            "training.tokens",
        ),
    ],
)
def test_bad_studies_are_refused_in_one_line(text, message):
    with pytest.raises(ParibusError, match=re.escape(message)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nme = 'x'", "'name'"),
        (f"decision = 'superiority'\n{MINIMAL}", "a table"),
        (MINIMAL.replace("[1]", "[1, 1]"), "duplicate"),
        (MINIMAL.replace('"minimal"', '"a/b"'), "name = 'a/b'"),
        (MINIMAL.replace("iterations = 30", ""), "exactly one of"),
        ('title = "a\\nb"' + MINIMAL, "line break"),
        (MINIMAL.replace("minimal", "mini\\u2028mal"), "line break"),
    ],
)
def test_bad_tables_are_refused_in_one_line(text, message):
    with refused("value", match=re.escape(message)):
        parse_study(tomllib.loads(text), folder=Path())


def test_an_arm_may_state_another_precision(small_study):
    arms = {"baseline": {}, "exact": {"set": {"training.precision": "float32"}}}
    training = {"iterations": 8, "batch_size": 4, "precision": "auto"}
    study = small_study(arms=arms, training=training)
    settled = with_precision(study, "bfloat16")
    assert settled.differences("exact") == {"training.precision": ("bfloat16", "float32")}
    # Where auto means just that, nothing is left to compare.
    with refused("conflict", match="'exact'"):
        with_precision(study, "float32")


def test_names_are_limited_in_bytes_as_folders_are():
    """60 characters may be 240 bytes, and a folder's name has 255, suffixes included."""
    wide = "\N{OLD PERSIAN SIGN A}" * 60
    study = parse_study(tomllib.loads(MINIMAL.replace("minimal", wide)), folder=Path())
    tuning = shortened(study.name, "-tuning")
    assert tuning.endswith("-tuning") and len(tuning.encode()) <= 255
    with refused("value", match="at most 60 characters"):
        parse_study(tomllib.loads(MINIMAL.replace("minimal", wide + "a")), folder=Path())


def test_null_studies_compare_the_baseline_with_itself(small_study):
    norm = {"model.embedding.norm": "layernorm"}
    arms = {"baseline": {}, "norm": {"set": norm}, "deep": {"set": norm, "reference": "norm"}}
    arms["deep"]["set"] = norm | {"model.n_layer": 3}
    tuning = {"seeds": [101, 102], "grid": {"training.optimizer.learning_rate": [1e-3, 1e-2]}}
    study = small_study(arms=arms, seeds=[1, 2, 3], tuning=tuning)
    nulls = null_studies(study, 4)
    for null in nulls:
        assert null.contrasts == study.contrasts and null.setting("baseline").model.n_layer == 2
        assert null.differences("norm") == {"model.init.salt": (0, 2)}
        assert null.differences("deep") == {"model.init.salt": (2, 3)}
    seeds = [seed for null in nulls for seed in (*null.seeds, *null.tuning.seeds)]
    assert len(set(seeds)) == len(seeds) == 4 * (3 + 2)
    assert [null.digest for null in nulls[:2]] == [null.digest for null in null_studies(study, 2)]


def test_a_key_may_be_new_where_the_user_chooses_the_keys():
    study = load_study("quickstart", {"probes.every.logits": 0})
    assert study.probes.every == {"logits": 0}
    study = load_study("quickstart", {"arms.layernorm.set.model.embedding.eps": 1e-4})
    assert study.setting("layernorm").model.embedding.eps == 1e-4
    with refused("value", match="probes.every.logits ="):
        load_study("quickstart", {"probes.every.logits": "x"})
    with refused("value", match=r"'probes.evry'"):
        load_study("quickstart", {"probes.evry.logits": 0})
    with refused("unknown", match="'layernorm'"):
        load_study("quickstart", {"arms.layrnorm.set.model.bias": False})


def test_an_arm_may_change_the_batch_where_the_token_budget_is_shared():
    arms = '[arms.b]\nset."training.batch_size" = 32'
    study = parse_study(
        tomllib.loads(MINIMAL.replace("iterations = 30", "tokens = 122880") + arms), folder=Path()
    )
    assert study.setting("baseline").iterations == 60
    assert study.setting("b").iterations == 30
    assert study.setting("b").tokens == study.setting("baseline").tokens
    with refused("value", match="9216"):
        load_study("quickstart", {"training.tokens": 10_000})


def test_describing_words_do_not_change_the_study(small_study):
    assert small_study().digest == small_study(title="Another title", question="Why?").digest
    assert small_study().digest != small_study({"training.iterations": 9}).digest
    assert small_study().digest != small_study({"seeds": [1, 3]}).digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.iterations=20", ("training.iterations", 20)),
        ("seeds=[1, 2]", ("seeds", [1, 2])),
        ('data.path="a=b"', ("data.path", "a=b")),
        ("data.corpus=pydoc", ("data.corpus", "pydoc")),
    ],
)
def test_overrides_are_read_as_toml(text, expected):
    assert parse_override(text) == expected


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), json_trees, max_size=4))
def test_canonical_json_has_one_spelling_and_a_tree_equals_itself(tree):
    shuffled = dict(reversed(list(tree.items())))
    assert canonical_json(tree) == canonical_json(shuffled)
    assert changes(tree, shuffled) == {}
    assert all("." in key or key in tree for key in flatten(tree))
