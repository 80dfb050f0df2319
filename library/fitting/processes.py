"""Runs a training of ``fit`` in processes on this machine: objects and data go to files."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import shutil
import tempfile
import types
from collections.abc import Callable
from typing import IO, Any

import cloudpickle
import keras

from stagecraft import given, pickles
from stagecraft.fitting import epochs, job
from stagecraft.fitting.history import History
from stagecraft.fitting.training import Training, Weights
from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.processes import isolation, local, preemption
from stagecraft.trainer_module.processes.events import Event

_LOG = "processes.log"

_RUN = "stagecraft.fitting.processes.run_fn"

_log = logging.getLogger(__name__)


def run(training: Training) -> tuple[History, Weights]:
    """Trains in processes of their own; returns the chief's history, and weights by path.

    Sets ``paths`` of the job's builder.

    Raises:
        UserError: an object cannot be sent to other processes, or the training failed.
    """
    packed = given.pack(training.job.names)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-fit-"))
    keeps_log = False
    try:
        return _run(training, folder, packed)
    except Exception:
        keeps_log = (folder / _LOG).exists()
        raise
    finally:
        if keeps_log:
            with tempfile.NamedTemporaryFile(
                prefix="stagecraft-fit-", suffix=".log", delete=False
            ) as log:
                log.write((folder / _LOG).read_bytes())
            _log.warning("The output of the processes is in %s", log.name)
        shutil.rmtree(folder)


def _run(training: Training, folder: pathlib.Path, packed: bytes) -> tuple[History, Weights]:
    made, settings = training.job, training.job.settings
    (folder / "given.pkl").write_bytes(packed)
    given_data = [each for each in (training.data, training.validation) if each]
    with contextlib.ExitStack() as stack:
        data, *validation = [
            stack.enter_context(each.sent(str(folder / str(number))))
            for number, each in enumerate(given_data)
        ]
        sent = dataclasses.replace(
            training, data=data, validation=validation[0] if validation else None
        )
        try:
            (folder / "training.pkl").write_bytes(pickles.dumps(sent))
        except Exception as error:  # whatever __reduce__ of a callback raises
            raise UserError(
                f"callbacks: cannot be sent to the chief's process: {error}; define their classes "
                "in a module",
                setting="callbacks",
            ) from error
        fn_args = types.SimpleNamespace(
            custom_config={"settings": settings.flat(), "folder": str(folder)}
        )
        bar = _Bar(training)

        def on_event(event: Event) -> None:
            check()
            bar.show(event)

        def check() -> None:
            for each in given_data:
                if each.error is not None:
                    raise each.error

        log = stack.enter_context(open(folder / _LOG, "w", buffering=1))
        try:
            local.run_local(
                _RUN,
                fn_args,
                settings.parallel,
                write_log=_writer(log),
                on_event=on_event,
                variables=local.import_path(),
            )
        except UserError:
            check()  # the cause
            raise
    result = (folder / "result.pkl").read_bytes()
    history, weights, made.builder.paths = cloudpickle.loads(result)
    return history, weights


def run_fn(fn_args: Any) -> None:
    """Trains in one of the processes."""
    folder = pathlib.Path(fn_args.custom_config["folder"])
    given.unpack((folder / "given.pkl").read_bytes())
    training: Training = cloudpickle.loads((folder / "training.pkl").read_bytes())
    training.stop = preemption.requested
    training.verbose = 0
    built: list[keras.Model] = []

    def model(weights: Weights) -> keras.Model:
        built[:] = built or [training.job.build_model()]
        job.assign(built[0], training.job.builder.paths, weights)
        return built[0]

    with preemption.stoppable():
        history, weights = training.run(model)
    if history.topology is None or history.topology.worker:
        return
    if built and training.callbacks:  # a callback may have set others
        paths = training.job.builder.paths
        weights = {path: w.numpy() for path, w in zip(paths, built[0].weights, strict=True)}
    part = folder / "result.part"
    part.write_bytes(pickles.dumps((history, weights, training.job.builder.paths)))
    part.rename(folder / "result.pkl")


def _writer(log: IO[str]) -> Callable[[str], None]:
    return lambda line: print(line, file=log)


class _Bar:
    """Shows warnings and the end of each epoch, as the chief reports them."""

    def __init__(self, training: Training):
        self._verbose, self._epochs = training.verbose, training.epochs
        self._steps = training.data.steps

    def show(self, event: Event) -> None:
        if event.get("phase") == "warning":
            _log.warning(event["warning"])
        if event.get("phase") == "network":
            _log.warning(isolation.warning(event["reason"]))
        if event.get("phase") == "wait":
            text = "waiting for at most %s s: %s may still use %s"
            _log.warning(text, event["seconds"], event["holder"], event["file"])
        if not self._verbose or event.get("phase") != "epoch":
            return
        logs = event["logs"]
        bar = epochs.progress_bar(
            event["epoch"], self._epochs, self._steps, self._verbose, list(logs)
        )
        bar.update(self._steps, list(logs.items()), finalize=True)
