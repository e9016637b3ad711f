"""Arms take turns at the end of a study; what comes out is paired by seed."""

import pyarrow.compute as pc

import paribus


def test_every_arm_and_seed_is_timed_once_the_study_is_done(trained):
    study, results = trained.study, trained.results
    table = results.throughput
    for kind, tokens in {"prefill": 4 * 16, "decoding": 4 * 4, "training": 4 * 16}.items():
        rows = table.filter(pc.equal(table["kind"], kind))
        pairs = set(zip(rows["arm"].to_pylist(), rows["seed"].to_pylist(), strict=True))
        assert pairs == set(study.trials)
        assert set(rows["tokens"].to_pylist()) == {tokens}
    assert pc.all(pc.greater(table["seconds"], 0)).as_py()
    # Nobody is always first: what starts a round pays for what the machine did before.
    first = table.filter(pc.equal(table["kind"], "prefill"))["arm"].to_pylist()[::3]
    assert first == list(study.arms)

    costs = paribus.analyse(results).costs[0]
    assert costs.in_turn
    assert costs.prefill is not None
    assert costs.decoding is not None


def test_an_own_attention_is_not_timed_at_decoding(odd_arms):
    table = odd_arms.throughput
    of_own = table.filter(pc.equal(table["arm"], "no-attention"))
    assert set(of_own["kind"].to_pylist()) == {"prefill", "training"}
