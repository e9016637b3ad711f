"""All else equal: the kinds of faults of public reports, in small tables and logs of their form."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import paribus
from paribus.decision import Verdicts
from paribus.errors import ParibusError
from paribus.readers import read
from paribus.readers.facts import find_kind
from paribus.report.model import build_report
from paribus.study.runs import RunsSection

from ..tools import refused, verb

NOISE = [0.012, -0.007, 0.003, -0.011, 0.009, -0.002]


def table(by: float = -0.03, n: int = 6, **more: Any) -> dict[str, list[Any]]:
    """Return runs of two arms; `more` are columns, or pairs of a value for each arm."""
    rows = [(arm, seed) for arm in ("base", "new") for seed in range(n)]
    data: dict[str, list[Any]] = {
        "arm": [arm for arm, _ in rows],
        "seed": [seed for _, seed in rows],
        "loss": [3.2 + by * (arm == "new") + NOISE[seed] for arm, seed in rows],
    }
    for name, values in more.items():
        is_by_arm = isinstance(values, tuple)
        data[name] = [values[arm == "new"] for arm, _ in rows] if is_by_arm else values
    return data


def judge(data: Any, **options: Any) -> Verdicts:
    return paribus.judge(data, **{"score": "loss", "baseline": "base"} | options)


def found(verdicts: Verdicts) -> dict[str, str]:
    return dict(verdicts.analysis.runs.notes)


LOSSES = [by + noise for by in (3.2, 3.17) for noise in NOISE]
RATES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"limit": ("none", "1000")}, "limit is"),
        ({"limit": (None, 1000)}, "limit is 1000"),
        ({"config.data.valid": ("c4", "wiki")}, "evaluate them alike$"),
        ({"state": ["oom"] * 2 + [""] * 10, "loss": [None] * 2 + LOSSES[2:]}, "exclude.*, or set"),
        ({"matrix_lr": RATES * 2}, "matrix_lr"),
        ({"lr": RATES * 2, "seed": [0] * 12}, "--best-of 'lr'"),
        ({"config.opt.rate": RATES * 2}, "--where 'config.opt.rate=0.1'"),
        ({"size": ["s", "m", "l"] * 4, "seed": [0, 0, 0, 1, 1, 1] * 2}, "differ"),
        ({"seed": [0] * 12}, "6 runs"),
        ({"config.tokenizer": ("a", "b"), "val_bpb": [1.0] * 12}, "--score val_bpb"),
        ({"vocab_size": (32_000, 50_257)}, "per token"),
        ({"loss": (3.2, 12.8), "eval_loss": [3.3] * 12, "lr": (1, 4)}, "factor"),
    ],
)
def test_what_is_not_equal_is_refused(columns, why):
    options = {"stopped_early": "ok"} if "state" in columns else {}
    scores = ["loss", *(columns.keys() & {"eval_loss", "val_bpb"})]
    with pytest.raises(ParibusError, match=why):
        judge(table(**columns), score=scores, **options)


@pytest.mark.parametrize(
    ("name", "values", "score"),
    [
        *((name, ("s", "ms"), "runtime") for name in ("time_unit", "unit_of_time", "reported_in")),
        ("time_scale", ("minutes", "hours"), "train_time"),
        *((f"{q}_normalization", ("z", "none"), "loss") for q in ("metric", "score", "loss")),
        ("loss_unit", ("nats", "bits"), "loss"),
        ("time_unit", ("s", "ms"), ""),
        ("loss_scale", (1.0, 65536.0), ""),
        ("normalization", ("layer", "rms"), ""),
    ],
)
def test_units_of_the_score_must_be_equal(name, values, score):
    data = table(**{name: values})
    data[score or "loss"] = data.pop("loss")
    if not score:
        assert judge(data)[0].word == "BETTER"
        return
    with refused("incomparable", match=f"{name} is"):
        judge(data, score=score, better="lower")


def test_what_differs_between_arms_and_how_to_compare_further_are_on_the_card():
    both = {"max_steps": (1000, 2000), "lr": (0.1, 0.2), "warmup_steps": (10, 20)}
    report = build_report(judge(table(time_limit=("1h", "2h"), **both)))
    assert "max_steps (1000 in base, 2000 in new)" in report.gravest.text
    assert "warmup" not in report.gravest.text and "lr, warmup_steps." in report.reading
    assert "--pair seed" not in report.reading  # BETTER
    assert "--pair seed" in build_report(judge(table(by=0.0, lr=(0.1, 0.2)))).reading


@pytest.mark.parametrize(
    ("ends", "more", "says"),
    [
        ({"base": 100, "new": 80}, {}, "--at-step 80"),
        (
            {"base": 100, "new": 100, 11: 70},
            {},
            "1 of 12 runs is cut short, at step 70, the.*--at-step 70",
        ),
        ({"base": 100, "new": 80}, {"batch_size": (80, 100)}, ""),
        ({"base": 100, "new": 100} | {k: 40 + 10 * (k % 5) for k in range(12)}, {}, ""),
    ],
)
def test_runs_that_end_at_other_steps_are_compared_at_one(ends, more, says):
    runs = table(**more)
    rows = [
        (place, step)
        for place, arm in enumerate(runs["arm"])
        for step in range(10, ends.get(place, ends[arm]) + 1, 10)
    ]
    data = {name: [values[place] for place, _ in rows] for name, values in runs.items()}
    data["step"] = [step for _, step in rows]
    data["loss"] = [runs["loss"][place] + 1 / step for place, step in rows]
    if says:
        with pytest.raises(ParibusError, match=says):
            judge(data, step="step")
        assert judge(data, step="step", stopped_early="ok")
    assert judge(data, step="step", **{"at_step": 40} if says else {})


def test_a_run_of_fewer_steps_than_planned_is_unfinished(tmp_path):
    for at in range(10):
        end = 60 if at == 8 else 100
        log = [{"step": s, "eval_loss": 3 + NOISE[at % 5] + 1 / s} for s in range(10, end + 1, 10)]
        state = {"log_history": log, "max_steps": 100, "global_step": end}
        folder = tmp_path / ("base", "new")[at // 5] / f"seed-{at}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps(state))
    with refused("unfinished", match="--at-step 60"):
        judge(str(tmp_path), score="eval_loss")


COPIED = [value + noise / 7 for value in (3.2, 3.17) for noise in [*NOISE[:3]] * 2]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (table(loss=COPIED), "6 of 6 runs of base.*--where 'seed!=3'"),
        (table(loss=[round(loss, 2) for loss in COPIED]), ""),
        (
            table(acc=[0.61, 0.6, 62.0, 0.63, 61.0, 0.6] * 2),
            "percentage.*seed!=2' --where 'seed!=4'",
        ),
        (table(acc=[61.0, 60.0, 62.0, 63.0, 61.0, 1.0] * 2), ""),
        *(
            (table(loss=[*LOSSES[:-1], mark]), "2 of|1 of 6 in new")
            for mark in (0.0, -1.0, 9999.0, 999999.0, 1e9)
        ),
        (table(acc=[0.61, 0.6, 0.62, 0.63, 0.59, 0.0] * 2), "marks"),
        (table(loss=[*LOSSES[:-1], 1e9 / 7]), ""),
        (table(loss=[0.0, -1.0, 0.3, 0.4, -0.7, 0.2] * 2), ""),
        (table(loss=(3.2, 12.8), n_microbatches=(1, 4)), "factor"),
        (table(loss=(3.2, 0.8), update_freq=(1, 4)), "factor"),
        (table(loss=(3.2, 3.1), grad_accum=(8, 9)), ""),
    ],
)
def test_values_that_are_not_the_quantity(data, says):
    score = "acc" if "acc" in data else "loss"
    if says in ("", "marks"):
        assert ("marks" in found(judge(data, score=score))) == bool(says)
        return
    with refused("incomparable", match=says):
        judge(data, score=score)


@pytest.mark.parametrize("name", ["base (avg)", "base-mean", "Mean of base", "base_std", "Total"])
@pytest.mark.parametrize("column", ["arm", "seed", "Name"])
def test_a_row_named_by_what_it_summarizes_is_no_run(column, name):
    data = table(Name=[f"run-{k}" for k in range(12)])
    data = {key: [*map(str, own), str(own[0])] for key, own in data.items()}
    data |= {"loss": list(map(float, data["loss"]))}
    data[column][-1] = name
    data["seed"][-1] = name if column == "seed" else "" if name == "Total" else "9"
    with refused("incomparable", match="summarize"):
        judge(data)
    pooled = table(Name=[f"{k}-mean-pool" for k in range(12)])
    pooled["arm"] = ["base-mean" if arm == "new" else arm for arm in pooled["arm"]]
    assert judge(pooled)[0].word == "BETTER"


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "evaluation": "n_shot kshot numFewshot eval_iters loss_unit val_loss_unit units"
        " eval_seq_len eval_stride val_fraction split eval_task benchmark n_eval_samples val_steps"
        " val_batches limit_val_batches validation_data dev_set eval.dataset config.eval.batches"
        " grader n_docs loss_reduction chat_template system_instruction max_new_tokens val_path"
        " config.data.valid config.validation.files config.evaluation.seq_len config.val.set.name"
        " config.evaluator.tokens config.eval.ctx_len data.eval_files",
        "start": "start_step resumed_from config.init_from",
        "environment": "gpu_count acceleratorType GPU-Type torch.version cuda-version slurm_node"
        " SLURM_NODELIST cluster_name dataset_path data_path config.dataset numpy_version nodes"
        " host_name machine_id train_dataset lm_eval_version",
        "setting": "config.eval_steps eval_steps matrix_lr ctx_len",
        "option": "config.torch_compile config.eval_strategy config.val_interval config.eval_loss",
        "identifier": "evaluation_seed config.eval.seed model_name out_dir git_sha task_id",
        "seed": "config.init_seed run_seed fold",
        "other": "eval_gen_len eval/mean_ep_length val_loss_step num_units eval_interval gpu_memory"
        " val_loss_every model_version test_set_accuracy metric hidden_units",
    }.items(),
)
def test_a_name_says_the_kind_of_a_fact(kind, names):
    for name in names.split():
        assert find_kind(name).replace("along", "other") == kind, name


@pytest.mark.parametrize("name", ["host", "gpu", "torch", "env.cuda", "dataset"])
def test_a_machine_of_each_arm_is_a_caution(name):
    verdicts = judge(table(**{name: ("a", "b")}))
    assert verdicts[0].word == "BETTER"
    assert name in found(verdicts)["confounded"]
    mixed = judge(table(**{name: ["a", "b"] * 6}))
    assert "confounded" not in found(mixed)


@pytest.mark.parametrize(
    "columns",
    [
        {"lr": (0.1, 0.2), "optimizer": ("adam", "muon"), "wd": (0.1, 0.1)},
        {"accuracy": [0.1 * k for k in range(12)], "epoch": [10, 11, 12, 10, 12, 11] * 2},
        {"Runtime": [100.0 + k for k in range(12)], "Name": [f"run-{k}" for k in range(12)]},
        {"batch_seed": list(range(12)), "out_dir": [f"out/{k}" for k in range(12)]},
        {"tokens_seen": [1e6 + k for k in range(12)], "best_step": [90, 100, 80] * 4},
        {"gpu": ["a", "b"] * 6, "seed": list(range(12))},
        {"memory": [20.1, 20.2, 20.1] * 4, "notes": [""] * 12},
        {"fold": [0, 1, 2, 3, 4, 5] * 2},
        {"config.wandb_run_name": [f"r{k}" for k in range(12)]},
        {"config.log": [f"{k}.log" for k in range(12)], "config.run_number": list(range(12))},
        {"prompt_tokens": [50_000 + k for k in range(12)], "limit": [math.nan] * 12},
        {"config.tokenizer": ["a", "b"] * 6},
        {"config.eval.path": [f"out/{k}.json" for k in range(12)]},
    ],
)
def test_honest_columns_are_no_reason(columns):
    verdicts = judge(table(**columns))
    assert verdicts[0].word == "BETTER"
    notes = found(verdicts)
    assert notes.keys() <= {"arms_differ", "may_pair"}
    assert "lr" not in columns or notes["arms_differ"].endswith(" lr, optimizer.")


def test_one_value_or_the_best_of_a_sweep_is_judged():
    data = table(n=6, lr=[0.1, 0.2] * 6)
    data["seed"] = [0, 0, 1, 1, 2, 2] * 2
    at_one = judge(data, where=["lr=0.1"])
    assert at_one[0].n == 3
    best = judge(data, best_of="lr")
    assert best[0].n == 3 and "chosen_by_score" in found(best)
    for options, why in (({"where": ["lr=7"]}, "0.1"), ({"best_of": "width"}, "width")):
        with pytest.raises(ParibusError, match=why):
            judge(data, **options)
    data["lr"][1] = 0.3
    with pytest.raises(ParibusError, match="different numbers"):
        judge(data, best_of="lr")


def test_a_nested_seed_is_a_seed(tmp_path):
    rows = table()
    lines = [
        json.dumps({"config": {"kind": arm, "trainer": {"seed": seed}}, "summary": {"loss": loss}})
        for arm, seed, loss in zip(rows["arm"], rows["seed"], rows["loss"], strict=True)
    ]
    file = tmp_path / "tracker_metrics.jsonl"
    file.write_text("\n".join(lines) + "\n")
    verdicts = judge(str(file), arm="config.kind", score="summary.loss", pair=False)
    assert verdicts[0].word == "BETTER"
    assert list(verdicts.analysis.summaries[0].values) == [0, 1, 2, 3, 4, 5]


def test_a_budget_that_stops_all_runs_is_stated():
    data = table(State=["crashed"] * 10 + ["finished"] * 2, epoch=[57 + k for k in range(12)])
    with pytest.raises(ParibusError, match="--stopped-early ok"):
        judge(data)
    verdicts = judge(data, stopped_early="ok")
    assert verdicts[0].n == 6
    stopped = found(verdicts)["stopped_by_budget"]
    assert "12 runs" in stopped and "57 to 66, the others at 67" in stopped


def test_a_filtered_nan_is_a_divergence(tmp_path):
    for arm, seed in ((arm, seed) for arm in ("old", "new") for seed in range(6)):
        is_lost = arm == "new" and seed in (2, 5)
        log = [
            {"step": step, "loss": 3 - step / 100 + NOISE[seed], "grad_norm": 1.0}
            for step in (10, 20, 30)
        ]
        if is_lost:
            log[2] |= {"loss": 0.0, "grad_norm": math.nan}
        home = tmp_path / arm / f"seed_{seed}"
        home.mkdir(parents=True)
        state = {"global_step": 30, "log_history": log}
        (home / "trainer_state.json").write_text(json.dumps(state))
    verdicts = paribus.judge(str(tmp_path), baseline="old")
    assert verdicts.analysis.study.primary.metric == "loss"
    assert "2 runs" in found(verdicts)["nan_as_zero"]
    assert verdicts[0].word != "BETTER"
    assert verdicts[0].evidence.state.divergence == "more"


def test_a_table_with_steps_needs_no_step_column():
    rows = table()
    data: dict[str, list[Any]] = {"arm": [], "seed": [], "loss": [], "step": [], "grad_norm": []}
    for step in (10, 20):
        for arm, seed, loss in zip(rows["arm"], rows["seed"], rows["loss"], strict=True):
            is_lost = step == 20 and arm == "new" and seed == 0
            values = (arm, seed, 0.0 if is_lost else loss - step / 100, step)
            for name, value in zip(data, (*values, math.nan if is_lost else 1.0), strict=True):
                data[name].append(value)
    verdicts = judge(data, seed="seed")
    assert verdicts[0].n == 5 and "nan_as_zero" in found(verdicts)


def test_a_parent_of_a_sweep_is_no_run():
    data = table()
    data = {name: [*values, values[0]] for name, values in data.items()}
    data["seed"][-1] = None
    data["run_id"] = [f"r{k}" for k in range(13)]
    data["parent"] = ["r12"] * 12 + [""]
    verdicts = judge(data)
    assert verdicts[0].n == 6 and "r12" in found(verdicts)["file"]


@pytest.mark.parametrize(
    "home",
    ["{arm}-seed{seed}/lightning_logs/version_0", "{arm}/train_{arm}_0000{seed}/seed_{seed}"],
)
def test_folders_of_restarts_and_seeds_are_no_arms(home, tmp_path):
    rows = table()
    for arm, seed, loss in zip(rows["arm"], rows["seed"], rows["loss"], strict=True):
        folder = tmp_path / home.format(arm=arm, seed=seed)
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(f"step,val_loss\n10,4.0\n20,{loss}\n")
    verdicts = judge(f"{tmp_path}/*/*/*/metrics.csv", score="val_loss", step="step")
    assert verdicts[0].n == 6 and verdicts[0].arm == "new"
    assert list(verdicts.analysis.summaries[0].values) == [0, 1, 2, 3, 4, 5]


def test_what_is_not_stated_is_asked_with_the_command(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text("arm,seed,loss,acc\nbase,1,3.2,0.5\nnew,1,3.1,0.6\n")
    with refused("ambiguous", match="--score acc"):
        paribus.judge(str(file))
    with refused("value", match="--score gsm/acc,strict or"):
        rows = {"arm": ["base", "new"], "metric": ["gsm/acc,strict", "gsm/acc,x"], "value": [0, 1]}
        judge(rows, score="acc")
    with pytest.raises(ParibusError, match="--baseline old"):
        judge({"arm": ["old", "new"], "loss": [1.0, 2.0]}, baseline=None)


def test_one_arm_is_compared_with_a_bar(tmp_path):
    values = [3.2774, 3.2801, 3.2779, 3.2768, 3.2782, 3.2776]
    lines = [
        f"step:0/10 val_loss:10.8 \nstep:1/10 val_loss:9 \nstep:10/10 val_loss:{value} \n"
        for value in values
    ]
    (tmp_path / "log.txt").write_text("".join(lines))
    command = ["judge", tmp_path / "log.txt", "--bar"]
    code, out, _ = verb(*command, "3.28", "--json")
    against = json.loads(out)["bar"]
    test: Any = stats.ttest_1samp(values, 3.28)
    interval = test.confidence_interval()
    assert code == 0 and against["p"] == pytest.approx(test.pvalue)
    assert (against["low"], against["high"]) == pytest.approx((interval.low, interval.high))
    assert (against["word"], against["n"], against["passed"]) == ("BETTER", 6, 5)
    assert json.loads(verb(*command, "5", "--json", "--at-step", "0")[1])["bar"]["mean"] == 10.8
    card = verb(*command, "3.28")[1]
    assert "6 runs" in card and "Fewer than" not in card and "n = 6" in card
    (tmp_path / "copy.txt").write_text("".join(lines))
    (tmp_path / "bad.jsonl").write_text("{")
    files = [tmp_path / name for name in ("log.txt", "copy.txt", "bad.jsonl")]
    card = verb("judge", *files, "--bar", "3.28", "--markdown")[1]
    assert "**BETTER**" in card and "n = 6" in card and "6 copies" in card and "bad.jsonl" in card
    assert verb(*command, "3.279", "--exit-verdict")[0] == 13
    (tmp_path / "log.txt").write_text("".join(lines[:4]))
    assert " p " not in verb(*command, "3.28")[1]
    for wrong in (["nan"], ["3", "--at-step", "5"], ["3", "--where", "lr=2"]):
        assert verb(*command, *wrong)[0] == 2


COPIED_CURVE = {name: own * 3 for name, own in table().items()} | {
    "step": [step for step in range(3) for _ in LOSSES],
    "loss": [loss / (step + 1) for step in range(3) for loss in [LOSSES[1], *LOSSES[1:]]],
}


@pytest.mark.parametrize(
    ("data", "options", "code"),
    [
        (table(dropout=(None, 0.1)), {}, "arms_differ"),
        (table(resumed_from=(None, "step-50")), {}, "also_differ"),
        (table(start_step=(0, 50)), {}, "budgets_differ"),
        (COPIED_CURVE, {"step": "step"}, "equal_runs"),
        (table(**{"harness:batch_size": (None, 8)}), {}, "confounded"),
        (table(**{"evaluation:limit": [9.0] * 11 + [None]}), {}, "confounded"),
        (table(loudness=("low", "high")), {}, "also_differ"),
        (
            table(loss=[3.21345] * 4 + [3.2 + noise for noise in [*NOISE, 0.004, 0.001]]),
            {},
            "equal_runs",
        ),
        (table(grad_norm=[1.0] * 11 + [math.nan], loss=[*LOSSES[:-1], 0.0]), {}, "nan_as_zero"),
        (
            table(by=0.0, seed=list(range(12)))
            | {"loss": [3.1234567 + s / 7 for s in range(6)] * 2},
            {},
            "equal_arms",
        ),
    ],
)
def test_what_may_be_meant_is_asked(data, options, code):
    assert code in found(judge(data, **options))


def test_values_that_arms_share_by_chance_are_not_asked_about():
    generator = np.random.default_rng(0)
    losses = (3 + 0.05 * generator.normal(size=400)).round(4).tolist()
    data = {"arm": ["base", "new"] * 200, "seed": np.arange(400) // 2, "loss": losses}
    shared = set(losses[::2]) & set(losses[1::2])
    assert len(shared) > 10
    assert "equal_arms" not in found(judge(data))


def test_an_outcome_called_like_a_setting_is_a_further_score():
    data = table(norm=[0.01 * n for n in range(12)])
    with pytest.raises(ParibusError, match="--score 'norm'"):
        judge(data)
    assert judge(data, score=["loss", "norm"], better=["lower", "lower"])


EPISODES = {"arm": ["base"] * 18 + ["new"] * 18, "seed": [0, 1, 2, 3, 4, 5] * 6}
SUMMED = {name: [*own, own[0]] for name, own in table().items()}
EPISODES |= {"ep": [0] * 6 + [1] * 6 + [2] * 6, "loss": [k / 7 for k in range(36)]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (SUMMED | {"arm": [*SUMMED["arm"][:-1], "all"], "seed": [*range(12), None]}, "'all'"),
        (SUMMED | {"seed": [*map(str, SUMMED["seed"][:-1]), "-"]}, "--where 'seed!=-'"),
        (SUMMED | {"seed": [*SUMMED["seed"][:-1], None]}, "--where 'seed!='"),
        (EPISODES | {"ep": EPISODES["ep"] * 2}, "--item 'ep'"),
        (table(lr=[1 / 300, 1 / 30] * 6), f"lr={1 / 300!r}"),
        (table(task=["arc", "boolq"] * 6, seed=[0, 0, 1, 1, 2, 2] * 2), "--item 'task'"),
    ],
)
def test_rows_of_other_kinds_are_refused(data, says):
    with refused("incomparable", match=says):
        judge(data, score="acc" if "acc" in data else "loss")


@pytest.mark.parametrize(
    ("column", "cells"), [("finished", [True, False]), ("exit_code", [0, 137])]
)
def test_columns_that_say_that_a_run_did_not_finish(column, cells):
    with refused("unfinished"):
        judge(table(**{column: [cells[0]] * 11 + [cells[1]]}))
    assert judge(table(**{column: [cells[0]] * 12}))


@pytest.mark.parametrize(
    ("cell", "says"), [("59.9%", "row 2"), ('"3,2"', "'3,2'"), ("loss", "'loss'")]
)
def test_a_cell_that_is_no_number_is_said_with_a_way_on(cell, says, tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text(f"arm,seed,loss\nbase,0,3.1\nnew,0,{cell}\n")
    with refused("missing", match=says):
        judge(str(file))
    file.write_text("arm,seed,loss\n")
    with refused("missing", match="no run"):
        judge(str(file))


def test_a_log_cut_before_its_score_is_unfinished(tmp_path):
    for arm, seed in ((arm, seed) for arm in ("base", "new") for seed in range(5)):
        is_cut = (arm, seed) == ("new", 3)
        first = 4 + NOISE[seed] + (arm == "new")
        lines = [f"s:{step} trl:{first - step / 1e3} lr:0.1\n" for step in range(0, 1000, 100)]
        lines += [] if is_cut else [f"s:1000 tel:{3.2 + NOISE[seed]}\n"]
        (tmp_path / arm).mkdir(exist_ok=True)
        (tmp_path / arm / f"main_{seed}.log").write_text("".join(lines)[: -9 if is_cut else None])
    with refused("unfinished", match="main_3"):
        paribus.judge(str(tmp_path), baseline="base")


@pytest.mark.parametrize(
    ("column", "per_step", "budget"),
    [
        *((name, 2.5, "seconds") for name in ("wall_time", "time", "elapsed_s", "_runtime")),
        *((name, 2500, "seconds") for name in ("train_time_ms", "train/elapsed_ms")),
        *((name, 1024, "tokens") for name in ("tokens", "tokens_seen", "train/num_tokens")),
    ],
)
def test_time_and_tokens_are_costs_and_budgets_of_a_target(column, per_step, budget):
    rows = [(arm, seed, step) for arm in ("base", "new") for seed in range(5) for step in range(9)]
    data: dict[str, list[Any]] = {
        "arm": [arm for arm, _, _ in rows],
        "seed": [seed for _, seed, _ in rows],
        "step": [step for _, _, step in rows],
        "loss": [4 - (arm == "new") - step / 10 + NOISE[seed] for arm, seed, step in rows],
        column: [step * per_step for _, _, step in rows],
    }
    analysis = judge(data, seed="seed", target=3.5).analysis
    needed = analysis.summary("base", f"{budget}_to_target").mean
    assert needed == pytest.approx(5 * (2.5 if budget == "seconds" else per_step), rel=0.02)
    assert "10 of 10 runs" in dict(analysis.runs.notes)["horizon"]


def test_runs_that_spent_the_same_are_no_copies(tmp_path):
    for seed in range(3):
        cells = ["", "", "", ""] if seed == 2 else [4.0, 3.5, 3.0, 2 + NOISE[seed]]
        rows = [f"{step},{step * 512},{step / 2},{cell}\n" for step, cell in enumerate(cells)]
        text = "step,total_tokens,time,val_loss\n" + "".join(rows)
        (tmp_path / f"{seed}.csv").write_text(text)
    section = RunsSection(step="step")
    reading = read([str(tmp_path)], section=section, scores=["val_loss"])
    assert len(reading.runs) == 3 and not reading.copies


def test_an_arm_that_no_log_states_is_refused(tmp_path):
    for arm, seed in ((arm, seed) for arm in ("base", "new") for seed in range(5)):
        folder = tmp_path / f"{arm}-seed{seed}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(
            json.dumps({"log_history": [{"step": 1, "eval_loss": 3 + seed / 10}], "max_steps": 1})
        )
    files = str(tmp_path / "*" / "trainer_state.json")
    with refused("value", match="nowhere"):
        judge(files, arm="nowhere", score="eval_loss", baseline="base")
