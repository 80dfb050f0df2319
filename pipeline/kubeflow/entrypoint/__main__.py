"""``python -m stagecraft.pipeline.kubeflow.entrypoint run|resolve|latest-blessed …``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys

from stagecraft.common.errors import UserError
from stagecraft.components.object_store import filesystem
from stagecraft.pipeline import redacted_log
from stagecraft.pipeline.kubeflow.entrypoint import step_log
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.spec import (
    BEAM_ARGS,
    CHOICE,
    LATEST_BLESSED,
    RESOLVE,
    RESOLVED_INPUTS,
    RUN,
    SPAN_WINDOW,
)
from stagecraft.trainer_module.processes import preemption


def main() -> None:
    """Runs a step. Exit code: 0; 1 when it failed; 143 after SIGTERM."""
    preemption.handle_sigterm()  # a training saves first
    os.environ.setdefault("_KFP_RUNTIME", "true")  # kfp imports no client and no compiler
    step_log.configure()
    arguments, beam_args = _parser().parse_known_args()
    beam_args += json.loads(os.environ.get(BEAM_ARGS, "[]"))
    redacted_log.install(beam_args)
    invocation = Invocation(
        arguments.json_serialized_invocation_args,
        arguments.json_serialized_inputs_spec_args,
        arguments.outputs,
    )
    folder = arguments.pipeline_folder
    filesystem.register()
    try:
        if arguments.operation == RUN:
            from stagecraft.pipeline.kubeflow.entrypoint.run import run

            run(
                invocation,
                folder,
                arguments.executor_class_path,
                arguments.resolved_inputs,
                beam_args,
            )
        elif arguments.operation == RESOLVE:
            from stagecraft.pipeline.kubeflow.entrypoint.run import resolve

            resolve(invocation, arguments.driver_class_path, arguments.output_types)
        elif arguments.operation == SPAN_WINDOW:
            from stagecraft.pipeline.kubeflow.entrypoint.records import look_up_window

            look_up_window(invocation, folder, arguments.size)
        else:
            from stagecraft.pipeline.kubeflow.entrypoint.records import look_up

            look_up(
                invocation,
                folder,
                arguments.output_types,
                arguments.choice,
                arguments.resolved_inputs,
            )
    except UserError as error:
        logging.error("%s: %s", arguments.task, error)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("operation", choices=(RUN, RESOLVE, LATEST_BLESSED, SPAN_WINDOW))
    parser.add_argument("--task", required=True, help="name of the step")
    parser.add_argument("--pipeline_folder", required=True, help="address of the pipeline's data")
    parser.add_argument("--outputs", type=json.loads, default=[], help="names of outputs")
    parser.add_argument("--executor_class_path", help="dotted path of the executor")
    parser.add_argument("--driver_class_path", help="dotted path of the driver")
    parser.add_argument("--output_types", type=json.loads, default={}, help="types by output")
    parser.add_argument("--size", type=int, default=1, help="spans of a window")
    parser.add_argument(CHOICE, default="", help="train.initial_weights; empty: a baseline")
    parser.add_argument(RESOLVED_INPUTS, type=json.loads, default={}, help="types by input")
    parser.add_argument("--json_serialized_invocation_args", required=True, help="ExecutorInput")
    parser.add_argument("--json_serialized_inputs_spec_args", default="{}", help="types of inputs")
    return parser


if __name__ == "__main__":
    main()
