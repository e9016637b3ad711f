"""Command-line interface, a thin layer over the public functions.

The modules of this package import heavy dependencies lazily, so that `--help` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, Parameter

from paribus import __version__
from paribus.cli.options import console
from paribus.engine import INSTALL, PACKAGES
from paribus.errors import ParibusError, one_line, print_any_character

app = App(
    name="paribus",
    help="Controlled ablations of language-model training: all else equal, does it help?\n\n"
    "To get started: paribus run quickstart",
    version_flags=["--version"],
    version=f"paribus {__version__}",
    help_format="plaintext",
    # Help shows no default of a flag that is off, or of a text that is empty.
    default_parameter=Parameter(show_default=lambda value: value or None, negative=()),
    suppress_keyboard_interrupt=False,  # its line and its exit code are ours, see `main`
)
# In the order of help, which is their docstrings; a module is imported when its verb is asked for.
FIRST = {
    "run": "commands",
    "judge": "judge_verb",
    "check": "commands",
    "plan": "commands",
    "report": "commands",
    "status": "folder_verbs",
}
MORE = {
    "register": "commands",
    "extend": "folder_verbs",
    "cancel": "folder_verbs",
    "evaluate": "folder_verbs",
    "verify": "folder_verbs",
    "archive": "folder_verbs",
    "export": "folder_verbs",
    "values": "folder_verbs",
    "ledger": "folder_verbs",
    "campaign": "campaign_verbs",
}
VERBS = FIRST | MORE
MORE_GROUP = Group("More", sort_key=1)
for _place, (_name, _module) in enumerate(VERBS.items()):
    _group = MORE_GROUP if _name in MORE else None
    _path = f"paribus.cli.{_module}:{_name}"
    app.command(_path, name=_name, sort_key=_place, group=_group)
for _flag in ("--help", "--version"):
    app[_flag].group = MORE_GROUP


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Exit codes are 0: success; 1: `values --check` found a problem; 2: invalid input, with a
    one-line message; 3: a verdict is INVALID, or `verify` found a problem; 10: `campaign try`
    rejected the idea; 130: interrupted. `--exit-verdict` encodes the verdict (`decision.word`).
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in app.help_flags:
        for name in VERBS:
            app[name]  # imported for its line
    print_any_character()
    if threading.current_thread() is threading.main_thread():
        # Schedulers of clusters send SIGTERM: like Ctrl-C, so that workers write checkpoints.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    code, notes = 2, list[str]()
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else 0
    except ParibusError as error:
        problem, notes = str(error), getattr(error, "__notes__", [])
    except CycloptsError as error:
        verb = " ".join(["paribus", *(error.command_chain or ())])
        problem = f"{error} See {verb} --help"
        if "Unknown option: --seeds" in problem:
            problem = 'unknown option --seeds; use --set "seeds=[1, 2, 3]", or `paribus extend`'
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        verb = " ".join(["paribus", *arguments][:2])
        problem = f"`{verb}` requires '{package}', which is not installed; {INSTALL}"
    except BrokenPipeError:
        # The reader of our output has left (`paribus check | head`): no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = error.filename or "standard output or the system"
        problem = f"{where}: {error.strerror or error}"
    except KeyboardInterrupt:
        code, problem = 130, "interrupted; run the same command again to continue"
    finally:
        console.stderr = False  # where this command printed is no business of the next one
    print(*notes, f"paribus: {one_line(problem)}", sep="\n", file=sys.stderr)
    return code
