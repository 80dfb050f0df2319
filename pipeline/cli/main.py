"""The ``stagecraft`` command."""

from __future__ import annotations

import sys
from typing import Any

import click

import stagecraft
from stagecraft.common import lazy
from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli.commands.compare import compare
from stagecraft.pipeline.cli.commands.compile import compile_command
from stagecraft.pipeline.cli.commands.config import config
from stagecraft.pipeline.cli.commands.doctor import doctor
from stagecraft.pipeline.cli.commands.emulate import emulate
from stagecraft.pipeline.cli.commands.history import history
from stagecraft.pipeline.cli.commands.lint import lint
from stagecraft.pipeline.cli.commands.parity import parity
from stagecraft.pipeline.cli.commands.plan import plan
from stagecraft.pipeline.cli.commands.push import push
from stagecraft.pipeline.cli.commands.render import render
from stagecraft.pipeline.cli.commands.report import report
from stagecraft.pipeline.cli.commands.run import run
from stagecraft.pipeline.cli.commands.schema import schema
from stagecraft.pipeline.cli.commands.tfx import tfx
from stagecraft.pipeline.cli.commands.watch import watch
from stagecraft.pipeline.cli.kubeflow.group import kubeflow
from stagecraft.pipeline.cli.project.init import init
from stagecraft.pipeline.cli.terminal import console


class _Main(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; Ctrl-C ends all of them alike, also while they import.

        Commands find the user's modules, such as the one of ``train.model``, in the current
        folder, as the processes of a run do.
        """
        try:
            lazy.check_distribution()
        except UserError as error:
            console.error(str(error))
            sys.exit(1)
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
@click.version_option(stagecraft.__version__, prog_name="stagecraft")
def main() -> None:
    """Train a model in a TFX pipeline, from data to a pushed model.

    \b
    stagecraft init DIR              a project of your own, from a template
    stagecraft run                   the quickstart: a generated sample, about two minutes
    stagecraft run --data download   the same on CIFAR-10
    stagecraft watch                 a run for each new span of data, such as a folder a day
    stagecraft report RUN            the report of a run: curves, errors, devices, lineage
    stagecraft history               past runs: data, settings, topology, accuracy
    stagecraft compare A B           two runs side by side
    stagecraft push --rollback       an earlier version of the pushed model, served again
    stagecraft config --describe     every setting
    stagecraft schema                a schema of your own data, inferred, as a file to edit
    stagecraft plan                  the estimated cost of a topology, before training
    stagecraft parity                a proof that topologies compute what one device computes
    stagecraft compile               the pipeline as a file for Kubeflow Pipelines
    stagecraft lint FILE             what Kubeflow Pipelines refuses in that file
    stagecraft emulate FILE          a run of that file on this machine, as on Kubeflow
    stagecraft render                the Kubernetes objects of a training run
    stagecraft kubeflow              upload pipelines, start runs, watch them
    stagecraft doctor                what this machine or a cluster can run
    """


for command in (
    *(init, run, watch, report, history, compare, push, config, schema, plan, parity),
    *(compile_command, lint, emulate, render, kubeflow, tfx, doctor),
):
    main.add_command(command)
