"""The kept studies: each agrees with itself, with its study file, and with plain numpy."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import paribus
from paribus.engine.format import PRECISION
from paribus.results import ResultsFolder, load_results
from paribus.results.formats import write_json
from paribus.study import load_study, read_study
from paribus.study.study import substance

from . import headline
from .agreeing import disagreements
from .scripts import HOME, study_of

KEPT = sorted(
    file.parent for form in ("*", "gallery/*") for file in HOME.glob(f"{form}/registration.json")
)
QUICK = ("embedding-norm",)  # read in every run of the tests
MOST_MIB = 8.0

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


# The same answers without what numpy and OpenBLAS have for newer processors.
OLDER = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
}
DERIVES = """
import json, sys
from paribus.results import load_results
from paribus.verification.verify import derived
print(json.dumps(list(derived(load_results(sys.argv[1]), []))))
"""


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(kept, id=kept.name, marks=() if kept.name in QUICK else pytest.mark.slow)
        for kept in KEPT
    ],
)
def test_kept_studies_agree_everywhere(kept, tmp_path):
    size = sum(file.stat().st_size for file in kept.rglob("*") if file.is_file())
    assert size <= MOST_MIB * 2**20
    copy = shutil.copytree(kept, tmp_path / kept.name)
    analysis = paribus.analyse(load_results(copy)).to_dict()
    write_json(copy / "analysis.json", analysis)  # compared with what other processors compute
    assert list(paribus.verify(copy).findings) == []
    records = ResultsFolder(copy).records
    assert list(disagreements(records, analysis)) == []
    study = ResultsFolder(copy).read_study()
    if study.tuning:
        assert headline.best_values(records) == study.tuning.chosen
    if kept.name not in QUICK:
        command = [sys.executable, "-c", DERIVES, str(copy)]
        answer = subprocess.run(command, env=os.environ | OLDER, capture_output=True, check=True)
        assert json.loads(answer.stdout) == []


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_a_kept_study_is_the_one_in_its_file(kept):
    ran = read_study(kept / "study.json", folder=HOME, foreign=False)
    asked = load_study(
        study_of(kept.relative_to(HOME).as_posix()), {PRECISION: ran.training.precision}
    )
    was = substance(ran.model_dump(mode="json"))
    if ran.training.budget == "bytes":  # which settles how many steps that is with each tokenizer
        for name, arm in asked.arms.items():
            if "training.iterations" not in arm.set:
                was["arms"][name]["set"].pop("training.iterations", None)
    assert was == substance(asked.model_dump(mode="json"))
