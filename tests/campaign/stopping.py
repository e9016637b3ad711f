"""A run that is interrupted on the way."""

from __future__ import annotations

import paribus


def stopped_after(n_finished: int):
    """Return a runner that is interrupted once so many trials of a stage are finished."""

    def run(study, folder, **options):
        def watch(progress) -> None:
            if progress.n_finished >= n_finished:
                raise KeyboardInterrupt

        return paribus.run(study, folder, watch=watch, **options)

    return run
