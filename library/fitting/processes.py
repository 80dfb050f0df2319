"""Runs work in processes on this machine, which get its objects by files."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import shutil
import tempfile
import time
import types
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft import copies, named_objects, pickles
from stagecraft.common.errors import UserError, said
from stagecraft.fitting import streams
from stagecraft.fitting.history import History, plain
from stagecraft.fitting.work import Work
from stagecraft.parallel_model import session, workers
from stagecraft.trainer_module.parallel.cluster import jobs
from stagecraft.trainer_module.parallel.topology import available_devices
from stagecraft.trainer_module.processes import events, launcher
from stagecraft.trainer_module.processes.events import Event
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import ParallelSettings

_LOG = "processes.log"

_RUN = "stagecraft.fitting.processes.run_fn"
_FOLDER = "folder"  # in ``custom_config``

_FILE_BYTES = 1 << 20
"""Larger arrays go to files, which all processes map."""

_log = logging.getLogger(__name__)


def run(work: Work, policies: copies.Policies | None = None) -> Any:
    """Calls ``work.run(callback)`` in processes of their own; returns what the chief's returns.

    If that is a history, the caller's model has the weights of the chief's model.

    Args:
        policies: of dtypes in the processes; None: those of the model.

    Raises:
        UserError: an object cannot be sent to other processes, or one of them failed.
    """
    parallel = _with_logical_devices(work.parallel or ParallelSettings())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stagecraft-fit-"))
    keeps_log = False
    try:
        with contextlib.ExitStack() as stack:
            servers = _send(work, folder, stack)
            (folder / "start.pkl").write_bytes(pickles.dumps((parallel, policies)))
            _start(work, parallel, folder, servers, stack)
        found, model, optimizer = pickles.loads((folder / "result.pkl").read_bytes())
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
    if isinstance(found, History):
        found.model = _trained(work, model, optimizer)
    return found


def _with_logical_devices(parallel: ParallelSettings) -> ParallelSettings:
    """The settings, with as many logical devices in other processes as this one has."""
    if parallel.virtual_devices or parallel.device_names or parallel.devices_per_worker == 1:
        return parallel
    here = available_devices(parallel)
    if here[0].startswith("GPU") or len(here) == 1:
        return parallel
    return parallel.model_copy(update={"virtual_devices": len(here)})


def _start(
    work: Work,
    parallel: ParallelSettings,
    folder: pathlib.Path,
    servers: list[streams.Server],
    stack: contextlib.ExitStack,
) -> None:
    bar = _Bar(getattr(work, "arguments", {}).get("verbose", "auto"))

    def check() -> None:
        for each in servers:
            if each.error is not None:
                raise each.error

    def on_event(event: Event) -> None:
        check()
        bar.show(event)

    log = stack.enter_context((folder / _LOG).open("w", buffering=1))
    flat = {f"parallel_{name}": value for name, value in parallel.model_dump().items()}
    config = {"settings": flat, _FOLDER: str(folder)}
    try:
        launcher.run_local(
            TrainingTask(_RUN, types.SimpleNamespace(custom_config=config)),
            parallel,
            write_log=lambda line: print(line, file=log),
            on_event=on_event,
        )
    except UserError:
        check()  # the cause
        raise


def run_fn(arguments: Any) -> None:
    """Works in one of the processes."""
    folder = pathlib.Path(arguments.custom_config[_FOLDER])
    parallel, policies = pickles.loads((folder / "start.pkl").read_bytes())
    _, devices = workers.connected(parallel)
    if policies is not None:
        keras.config.set_floatx(keras.DTypePolicy(policies.after).variable_dtype)
        keras.config.set_dtype_policy(policies.after)
    work: Any = copies.loads((folder / "work.pkl").read_bytes(), policies)
    if not jobs(parallel):
        events.emit("started")
    found = work.run(_Events())
    model = optimizer = None
    if isinstance(found, History):
        model, optimizer, found.model = found.model, getattr(found.model, "optimizer", None), None
    workers.Workers(devices).from_chief([])  # an early exit looks like a crash to peers
    if devices.worker:
        return
    part = folder / "result.part"
    part.write_bytes(pickles.dumps((found, model, optimizer)))
    part.rename(folder / "result.pkl")


def _trained(work: Work, copy: Any, optimizer: Any) -> Any:
    """The caller's model, as the chief's copy is now."""
    model = work.model
    if not isinstance(model, keras.Layer):
        return copy
    known = session.session_of(model)
    if known is not None:
        known.detach()  # from an earlier topology
    if len(model.variables) != len(copy.variables):  # it could not be built
        _log.warning(
            "%s was not built, so its layers are those of the trained copy: objects outside of the "
            "model that share layers with it are not trained; build it before, to keep them",
            model.name,
        )
        copies.become(model, copy)
        return model
    for variable, value in zip(model.variables, copy.variables, strict=True):
        variable.assign(value)
    if optimizer is not None and model.optimizer is not None:
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        for variable, value in zip(model.optimizer.variables, optimizer.variables, strict=True):
            variable.assign(value)
    model.stop_training = copy.stop_training
    return model


def _send(work: Work, folder: pathlib.Path, stack: contextlib.ExitStack) -> list[streams.Server]:
    """Writes the work's objects; returns what gives the processes the batches of datasets."""
    servers: list[streams.Server] = []

    class Sender(pickles.Pickler):
        def reducer_override(self, value: Any) -> Any:
            large = isinstance(value, np.ndarray) and value.nbytes > _FILE_BYTES
            if large and value.dtype != object:
                path = str(folder / f"array_{len(list(folder.glob('array_*')))}.npy")
                np.save(path, value)
                return np.load, (path, "r")
            if isinstance(value, types.GeneratorType):
                value = _of_generator(value)
            if isinstance(value, tf.data.Dataset):
                server = streams.Server(value)
                servers.append(server)
                stack.enter_context(server)
                return streams.remote, (
                    server.address,
                    value.element_spec,
                    int(value.cardinality()),
                )
            return super().reducer_override(value)

    with named_objects.by_value():
        try:
            packed = pickles.dumps(work, Sender)
        except Exception as error:  # whatever an object's __reduce__ raises
            raise named_objects.UnpicklableError(
                f"{_whose(work)}: cannot be sent to the other processes of the topology: "
                f"{said(error)}; define it in a module, or build the model in a function",
                setting=_whose(work),
            ) from error
    (folder / "work.pkl").write_bytes(packed)
    return servers


def _whose(work: Work) -> str:
    """The first argument that cannot be pickled."""
    for name, value in sorted(vars(work).items(), key=lambda pair: pair[0] == "model"):
        each = value if isinstance(value, dict) else {name: value}
        for key, part in each.items():
            if isinstance(part, (tf.data.Dataset, types.GeneratorType)):
                continue
            try:
                pickles.dumps(part)
            except Exception:  # whatever an object's __reduce__ raises
                return str(key)
    return "model"


def _of_generator(generator: Any) -> tf.data.Dataset:
    from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter

    return GeneratorDataAdapter(generator).get_tf_dataset()


class _Events(keras.callbacks.Callback):
    """Tells the caller's process how far the training is."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """At most once a second."""
        if time.monotonic() - self._told > 1:
            self._told = time.monotonic()
            events.emit("progress", phase="train", step=batch + 1, total=self.params.get("steps"))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """With the numbers of the epoch."""
        numbers = {name: plain(value) for name, value in (logs or {}).items()}
        events.emit("progress", phase="epoch", epoch=epoch, logs=numbers, **self.params)


class _Bar:
    """Shows warnings and the end of each epoch, as the chief reports them."""

    def __init__(self, verbose: Any):
        self._verbose = 1 if verbose == "auto" else int(verbose)
        self._began = time.time()

    def show(self, event: Event) -> None:
        if event.get("level") == logging.WARNING:
            _log.warning("%s", event["text"])
        if not self._verbose or event.get("phase") != "epoch":
            return
        logs, steps = event["logs"], event.get("steps")
        print(f"Epoch {event['epoch'] + 1}/{event.get('epochs')}")
        bar = keras.utils.Progbar(
            steps, verbose=self._verbose, stateful_metrics=list(logs), unit_name="step"
        )
        bar._start, self._began = self._began, time.time()
        shown = [(name, value) for name, value in logs.items() if isinstance(value, float)]
        bar.update(steps or 1, shown, finalize=True)
