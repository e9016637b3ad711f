"""The command line: a thin layer over the public functions. Nothing heavy is imported up here."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence

from cyclopts import App, CycloptsError

from paribus import __version__
from paribus.cli.mistakes import explain
from paribus.cli.plain_output import plain_output
from paribus.engine import INSTALL, missing_package
from paribus.errors import ParibusError, one_line

app = App(
    name="paribus",
    help="Controlled ablation studies of language-model training: all else equal, does it help?",
    version_flags=["--version"],
    version=f"paribus {__version__}",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # its line and its exit code are ours, see `main`
)
# Each command is loaded when it is called, so that asking for help costs nothing.
VERBS = {
    "studies": "List the studies that ship with paribus.",
    "show": "Show what a study would do: arms, cost on this machine, specification.",
    "plan": "Say what a study costs here and what it can detect, before any run.",
    "register": "Fix what would count before the first run: write registration.json.",
    "run": "Train, evaluate, compare and report a study; continues an earlier run.",
    "extend": "Register more seeds for a finished study: a second stage, combined with the first.",
    "watch": "Follow a study under way: trials, loss by arm, controls, time left.",
    "status": "Show which trials of a results folder are finished.",
    "analyse": "Test every contrast of a results folder; write analysis.json.",
    "decide": "Give the verdict on every arm of a results folder; write verdict.json.",
    "evaluate": "Let finished trials answer more zero- and few-shot tasks.",
    "null": "Measure the error rates of a study's tests on A/A replicates of its baseline.",
    "compare": "Put several studies of the same arms on one page.",
    "paper": "Set one paper on several finished studies, in the order given.",
    "bench": "Time training here: against the machine's ceiling, and where the time goes.",
    "report": "Draw page and paper of a results folder again, from its records alone.",
    "verify": "Check a results folder: seals, registration, and all that can be computed again.",
    "keep": "Keep a finished study without its weights, small enough for a repository.",
    "unpack": "Make a results folder of a kept study.",
    "export": "Write a trained model as a Hugging Face folder.",
}
# Those that start workers whatever else is said, and what chooses other workers than usual.
WORKING = frozenset({"run", "register", "null", "bench"})
CHOOSING = ("--device", "--backend", "--cpu-kernels", "--help", "-h", "--version")
OF_A_FOLDER = frozenset(
    {
        *("extend", "watch", "status", "evaluate", "compare", "paper", "verify"),
        *("keep", "unpack", "export"),
    }
)
for _verb, _help in VERBS.items():
    _module = "folder_verbs" if _verb in OF_A_FOLDER else "commands"
    app.command(f"paribus.cli.{_module}:{_verb}", name=_verb, help=_help)

tokenizer = App(name="tokenizer", help="Make a tokenizer for studies to use.")
tokenizer.command(
    "paribus.cli.tokenizer_verb:train",
    name="train",
    help="Make a byte-level BPE tokenizer of a corpus.",
)
app.command(tokenizer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code.

    0: done; 2: bad input, said in one line; 3: done, and an arm cannot be judged; 130: interrupted.
    """
    _warm_up(sys.argv[1:] if arguments is None else arguments)
    try:
        with _stopped_like_interrupted(), plain_output():
            code = app(
                arguments, exit_on_error=False, print_error=False, result_action="return_value"
            )
        return code if isinstance(code, int) else 0
    except (ParibusError, CycloptsError) as error:
        words = explain(error) if isinstance(error, CycloptsError) else str(error)
        print(f"paribus: {one_line(words)}", file=sys.stderr)
        if os.environ.get("PARIBUS_TRACEBACK"):
            traceback.print_exc()
        return 2
    except ImportError as error:
        package = missing_package(error)
        if package is None:
            raise
        words = " ".join(["paribus", *(sys.argv[1:] if arguments is None else arguments)][:2])
        print(
            f"paribus: `{one_line(words)}` trains or reads models, and '{package}' is not "
            f"installed; {INSTALL}",
            file=sys.stderr,
        )
        return 2
    except UnicodeEncodeError as error:
        if (names := sys.getfilesystemencoding()) == "utf-8":
            raise
        shown = one_line(ascii(error.object))
        print(
            f"paribus: {shown} cannot be the name of a file here, where names are {names}; run "
            "with PYTHONUTF8=1",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output has left (`paribus show x | head`): no error of ours.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"paribus: {one_line(_told(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("paribus: interrupted; run the same command again to continue", file=sys.stderr)
        return 130


def _warm_up(words: Sequence[str]) -> None:
    """Let workers import what they need, where a command will want the usual ones.

    It takes them longer than this process needs to read the command and the study.
    """
    if words and words[0] in WORKING and not any(word.startswith(CHOOSING) for word in words):
        from paribus.engine.execution.workers.processes import warm_up

        warm_up()


def _told(error: OSError) -> str:
    """An error of the system in words, with a name for what it is about."""
    if error.filename:
        return f"{error.filename}: {error.strerror or error}"
    try:
        os.getcwd()
    except OSError:
        return "the current folder was deleted; change to another one and run again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return f"cannot write to standard output: {error.strerror}; make room and run again"
    return f"system: {error.strerror or error}"


@contextlib.contextmanager
def _stopped_like_interrupted() -> Iterator[None]:
    """SIGTERM, as schedulers of clusters send it, is Ctrl-C: workers then write checkpoints."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
