"""The process that runs a pipeline, started by :mod:`stagecraft.pipeline.local.supervisor`.

The first line of standard input is a RunSpec; the end of standard input means that the supervisor
is gone. The only argument is the file descriptor for events. All other output is the log.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from typing import Any

from stagecraft.common import garbage_collection
from stagecraft.pipeline import beam, redacted_log
from stagecraft.pipeline.local import interrupt, layout, lock, protocol
from stagecraft.pipeline.local.cause import explain
from stagecraft.pipeline.local.protocol import CREATE_PIPELINE, SCRATCH, RunSpec
from stagecraft.pipeline.settings import changes_as_yaml


def main() -> None:
    """Runs the pipeline, emits the end, and exits without waiting for threads."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    redaction = redacted_log.install()
    protocol.attach(int(sys.argv.pop()))  # TFX passes the rest of sys.argv on to executors
    spec = RunSpec.from_json(sys.stdin.readline())
    redaction.hide((*spec.settings.beam.args, *spec.settings.beam.unchecked_args))
    supervised = threading.Event()
    supervised.set()
    threading.Thread(target=_watch, args=[supervised], name="lifeline", daemon=True).start()
    end: dict[str, Any] = {"status": "ok", "cause": None, "report": {}}
    with interrupt.handled():
        try:
            with lock.held(spec.output):
                _run(spec, end)
        except KeyboardInterrupt:
            end["status"] = "interrupted"
        except lock.InUseError as error:  # before anything began
            end.update(status="in use", cause=explain(error))
        except BaseException as error:
            redacted_log.print_traceback(redaction)
            end.update(status="failed", cause=explain(error))
        with interrupt.deferred():
            beam.shut_down()
            protocol.emit("end", f"{end['status']} {end['cause'] or ''}", **end)
            logging.shutdown()
    if not supervised.is_set():
        _kill_group()
    # Beam, gRPC and TensorFlow leave threads running, and Python would wait for them.
    os._exit(0 if end["status"] == "ok" else 1)


def _run(spec: RunSpec, end: dict[str, Any]) -> None:
    with garbage_collection.paused(freeze=True):
        import absl.logging
        from tfx.orchestration.pipeline import RunOptions

        from stagecraft.pipeline.checks import preflight
        from stagecraft.pipeline.local import nodes, span_states, summary
        from stagecraft.pipeline.local.runners import BeamRunner, LocalRunner
        from stagecraft.trainer_module.checkpointing.checkpoints import forget
        from stagecraft.trainer_module.models import build_model
        from stagecraft.trainer_module.parallel.topology import configure_devices

        module, _, function = spec.create.partition(":")
        create_pipeline = getattr(importlib.import_module(module), function)
    absl.logging.set_verbosity(absl.logging.INFO)
    runner = BeamRunner() if spec.runner == "beam" else LocalRunner()
    runner.command, runner.settings = spec.command, changes_as_yaml(spec.settings)
    runner.span_states = span_states.of_run(spec.settings)
    options = None
    if spec.from_node or spec.to_node:
        options = RunOptions(
            from_nodes=[spec.from_node] if spec.from_node else None,
            to_nodes=[spec.to_node] if spec.to_node else None,
        )
    # Before any component uses TensorFlow, which fixes the devices of the process.
    configure_devices(spec.settings.parallel)
    known = nodes.of(spec.settings)
    trains = nodes.between(nodes.TRAINER, known, spec.from_node, spec.to_node)
    # The components reuse the model that preflight builds.
    with build_model.files_shared(builds=trains):
        if trains and spec.create == CREATE_PIPELINE:
            for note in preflight.check(spec.settings):
                protocol.emit("note", note, text=note)
            preflight.check_devices(spec.settings.parallel)
        pipeline = create_pipeline(spec.settings, spec.output)
    if spec.fresh:
        forget(layout.checkpoints(spec.output))
    try:
        runner.run(pipeline, run_options=options)
    except Exception:
        with contextlib.suppress(Exception):  # results of the nodes that succeeded
            if runner.last_run:
                end["report"] = summary.report(runner.last_run.outputs())
        raise
    if runner.last_run:
        end["report"] = summary.report(runner.last_run.outputs())


def _watch(supervised: threading.Event) -> None:
    """Waits for the end of standard input, which means that the supervisor is gone."""
    sys.stdin.read()
    supervised.clear()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(interrupt.GRACE_SECONDS)
    if beam.cancel_jobs():  # waits if one is being cancelled
        time.sleep(interrupt.GRACE_SECONDS)
    _kill_group()


def _kill_group() -> None:
    """Ends this process and its children, as the supervisor would have done."""
    scratch = pathlib.Path(tempfile.gettempdir())
    if scratch.name.startswith(SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # with Beam's worker processes, if any


if __name__ == "__main__":
    main()
