"""Which tests take processor time: `python -m pytest -p tests.cpu_times`, on a busy machine too.

Of the process that tests run in and all that descend from it: workers, templates, compilers. What
a session shares is on the account of the test that asked first.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 40
TICKS = os.sysconf("SC_CLK_TCK")
NAME = "cpu_seconds"


def cpu_seconds() -> float:
    """Of this process and its descendants, those that have ended and were waited for too."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    return sum(n for pid, n in ticks.items() if _is_ours(pid, parents)) / TICKS


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid not in (0, os.getpid()):
        pid = parents.get(pid, 0)
    return pid != 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = cpu_seconds()
    item.user_properties.append((NAME, before))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    name, before = item.user_properties[-1]
    if name == NAME and report.when == "teardown":
        report.user_properties = [(NAME, cpu_seconds() - before)]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests: dict[str, float] = {}
    files: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                tests[report.nodeid] = dict(report.user_properties).get(NAME, 0.0)
    # A teardown that passes is in no list of its own.
    for nodeid, seconds in tests.items():
        files[nodeid.partition("::")[0]] += seconds
    for title, of in (("tests", tests), ("files", files)):
        terminalreporter.section(f"processor time of {title}: {sum(of.values()):.1f} s")
        for name, seconds in sorted(of.items(), key=lambda one: -one[1])[:SHOWN]:
            terminalreporter.line(f"{seconds:8.2f} s  {name}")
