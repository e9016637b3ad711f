"""Checkpoints of stacks: complete or absent, two kept, and never loaded where anything differs."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from paribus.engine.execution.trial.stacks import (
    StackCheckpoints,
    UnusableError,
    begun_stacks,
    keep_stacks,
)

TRIALS = (("baseline", 1), ("baseline", 2), ("größer", 1))
IDENTITY = "abc"


def states(t: int) -> list[dict[str, np.ndarray]]:
    """Three replicas; names with a slash, several types and shapes, an empty and a 0-d array."""
    return [
        {
            "weights/blocks.0.w": np.arange(6, dtype=np.float32).reshape(2, 3) + t + replica,
            "exp_avg/blocks.0.w": np.full((2, 3), 0.5 * t, np.float32),
            "measured": np.full((t, 2), np.nan, np.float32),
            "count": np.array(t, np.int64),
            "nothing": np.zeros((0, 4), np.float32),
        }
        for replica in range(3)
    ]


def write(results: Path, *steps: int) -> StackCheckpoints:
    stack = StackCheckpoints(results, TRIALS, IDENTITY)
    for t in steps:
        stack.write(t, states(t), {"seconds": 1.5 * t})
    return stack


def usable(stack: StackCheckpoints) -> list[int]:
    """Steps of those that can be gone on from, newest first."""
    steps = []
    for path in stack.paths():
        with contextlib.suppress(UnusableError):
            checkpoint = stack.read(path)
            for ours, theirs in zip(checkpoint.states(), states(checkpoint.t), strict=True):
                assert ours.keys() == theirs.keys()
                for name in ours:
                    np.testing.assert_array_equal(ours[name], theirs[name], strict=True)
            steps.append(checkpoint.t)
    return steps


def test_what_was_written_is_read_and_two_are_kept(tmp_path):
    stack = write(tmp_path, 10, 200, 300)
    assert usable(stack) == [300, 200]
    assert begun_stacks(tmp_path) == {TRIALS: 300}
    assert stack.read(stack.paths()[0]).state == {"seconds": 450.0}
    write(tmp_path, 300)  # again, such as after the run went on from the one before
    assert usable(stack) == [300, 200]
    stack.remove_after(200)
    assert usable(stack) == [200]
    keep_stacks(tmp_path, [TRIALS])
    assert usable(stack) == [200]
    keep_stacks(tmp_path, [])
    assert not list(tmp_path.iterdir())


def test_a_bit_flipped_anywhere_is_found(tmp_path):
    stack = write(tmp_path, 10, 20)
    newest = stack.path / "step-20"
    flips = 0
    for path in sorted(newest.iterdir()):
        content = path.read_bytes()
        for position in range(0, len(content), 41):
            for bit in (0, 6):
                damaged = bytearray(content)
                damaged[position] ^= 1 << bit
                path.write_bytes(damaged)
                assert usable(stack) == [10], (path.name, position, bit)
                flips += 1
        path.write_bytes(content)
    assert usable(stack) == [20, 10]
    assert flips > 100


@pytest.mark.parametrize("damage", ["cut", "missing", "no about", "renamed"])
def test_other_damage_is_found(tmp_path, damage):
    stack = write(tmp_path, 10, 20)
    newest = stack.path / "step-20"
    shard = newest / "replica-0.safetensors"
    if damage == "cut":
        shard.write_bytes(shard.read_bytes()[:-1])
    elif damage == "renamed":
        newest.rename(stack.path / "step-30")  # its state is of step 20
    else:
        (shard if damage == "missing" else newest / "about.json").unlink()
    assert usable(stack) == [10]


def test_another_identity_and_other_trials_are_refused(tmp_path):
    stack = write(tmp_path, 10)
    (path,) = stack.paths()
    with pytest.raises(UnusableError, match="different study"):
        StackCheckpoints(tmp_path, TRIALS, "other").read(path)
    stranger = StackCheckpoints(tmp_path, TRIALS[:2], IDENTITY)
    shutil.copytree(stack.path, stranger.path)
    assert usable(stranger) == []
    assert begun_stacks(tmp_path) == {TRIALS: 10}  # nor is the copy taken for a stack


def test_a_linked_folder_of_checkpoints_is_left_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere" / "step-1"
    elsewhere.mkdir(parents=True)
    (tmp_path / "checkpoints").symlink_to(elsewhere.parent)
    keep_stacks(tmp_path, [])
    assert elsewhere.is_dir()
