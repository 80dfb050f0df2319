"""The ``stagecraft`` command."""

from __future__ import annotations

import sys
from typing import Any

import click

from stagecraft.pipeline.cli.compare import compare
from stagecraft.pipeline.cli.compile import compile_command
from stagecraft.pipeline.cli.config import config
from stagecraft.pipeline.cli.doctor import doctor
from stagecraft.pipeline.cli.drill import drill
from stagecraft.pipeline.cli.emulate import emulate
from stagecraft.pipeline.cli.history import history
from stagecraft.pipeline.cli.kubeflow.group import kubeflow
from stagecraft.pipeline.cli.lint import lint
from stagecraft.pipeline.cli.parity import parity
from stagecraft.pipeline.cli.plan import plan
from stagecraft.pipeline.cli.render import render
from stagecraft.pipeline.cli.report import report
from stagecraft.pipeline.cli.run import run
from stagecraft.pipeline.cli.tfx import tfx


class _Main(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; Ctrl-C ends all of them alike, also while they import.

        Modules of the user's, such as that of ``train.model``, are found in the present folder, as
        they are in the processes of a run.
        """
        before = [*sys.path]
        sys.path.append("")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            sys.path[:] = before


@click.group(
    cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def main() -> None:
    """Train an image classifier through a TFX pipeline, from archive to pushed model.

    \b
    stagecraft run                   the quickstart: a generated sample, about two minutes
    stagecraft run --data download   the same on CIFAR-10
    stagecraft report RUN            a page about a run: curves, mistakes, devices, lineage
    stagecraft history               past runs: data, settings, topology, accuracy
    stagecraft compare A B           two of them side by side
    stagecraft config --describe     everything that can be set
    stagecraft plan                  what a topology costs, before training
    stagecraft parity                prove that topologies compute what one device does
    stagecraft drill                 what happens when a process is killed, a disk full, …
    stagecraft compile               the pipeline as a file for Kubeflow Pipelines
    stagecraft emulate FILE          run that file here, as Kubeflow would
    stagecraft render                a training's Kubernetes objects
    stagecraft kubeflow              upload that file, start runs of it, watch them
    stagecraft doctor                what this machine can run
    """


main.add_command(run)
main.add_command(report)
main.add_command(history)
main.add_command(compare)
main.add_command(config)
main.add_command(plan)
main.add_command(parity)
main.add_command(drill)
main.add_command(compile_command)
main.add_command(lint)
main.add_command(emulate)
main.add_command(render)
main.add_command(kubeflow)
main.add_command(tfx)
main.add_command(doctor)
