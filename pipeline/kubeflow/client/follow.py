"""Follows a run until it is over; retries while the server fails."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any, TypeVar

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.client import progress, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.objects import Run
from stagecraft.pipeline.kubeflow.client.progress import Progress

Answer = TypeVar("Answer")

POLL_SECONDS = 2.0
"""About the interval of the persistence agent's resync, which copies Argo's state."""

PATIENCE_SECONDS = 300.0


def names(api: Api, run: Run) -> list[str]:
    """Names of a run's steps, each after its dependencies."""
    if found := runs.document_of(api, run):
        return found.order()
    displayed = [task.display_name or "" for task in run.tasks]  # newer servers add nameless tasks
    ended = [name for name in displayed if name.endswith(progress.DRIVER)]
    return [
        name.removesuffix(progress.DRIVER) for name in ended if name != f"root{progress.DRIVER}"
    ]


class Patience:
    """Retries requests while the server fails or does not answer."""

    def __init__(self, on_hiccup: Callable[[str], Any], sleep: Callable[[float], Any] = time.sleep):
        self._on_hiccup, self._sleep = on_hiccup, sleep

    def pause(self) -> None:
        """Waits until the next poll."""
        self._sleep(POLL_SECONDS)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question."""
        begun, pause = time.monotonic(), POLL_SECONDS
        while True:
            try:
                return question()
            except UserError as error:  # of this server, or of the cluster
                transient = getattr(error, "transient", False)
                if not transient or time.monotonic() - begun > PATIENCE_SECONDS:
                    raise
                self._on_hiccup(str(error))
            self._sleep(pause)
            pause = min(2 * pause, 30.0)


def follow(
    api: Api,
    run_id: str,
    step_names: list[str],
    on_progress: Callable[[str, Progress], Any],
    patience: Patience,
    on_poll: Callable[[Run], Any] = lambda run: None,
) -> Run:
    """Polls until the run is over.

    Args:
        on_progress: called when a step's state changes.
        on_poll: called after each poll, unless the run is over.
    """
    states: dict[str, str] = {}
    while True:
        run = patience.ask(lambda: runs.get(api, run_id))
        now = datetime.datetime.now(datetime.timezone.utc)
        for name, step in progress.progress(run, step_names, now).items():
            if states.get(name, "waiting") != step.state:
                states[name] = step.state
                on_progress(name, step)
        if run.is_over:
            return run
        on_poll(run)
        patience.pause()
