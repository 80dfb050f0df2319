"""``stagecraft kubeflow``."""

from __future__ import annotations

import click

from stagecraft.pipeline.cli.kubeflow.contexts import contexts
from stagecraft.pipeline.cli.kubeflow.pipelines import pipelines
from stagecraft.pipeline.cli.kubeflow.runs import runs


@click.group(short_help="Upload, start and watch pipelines on a Kubeflow cluster.")
def kubeflow() -> None:
    """Manage pipelines and runs on open-source Kubeflow Pipelines 2.x.

    \b
    stagecraft compile --set kubeflow.image=registry/stagecraft@sha256:…
    stagecraft kubeflow contexts set home --endpoint https://kubeflow.example.com/pipeline
    stagecraft kubeflow pipelines create quickstart.yaml
    stagecraft kubeflow runs create quickstart -p train_epochs=2 --watch
    stagecraft kubeflow runs logs RUN --step Trainer --follow

    Options have priority. Commands take all other connection values from the first source that
    applies: a context (--context or STAGECRAFT_KUBEFLOW_CONTEXT); the environment
    (KF_PIPELINES_ENDPOINT and other variables of kfp, STAGECRAFT_KUBEFLOW_TOKEN,
    STAGECRAFT_KUBEFLOW_COOKIES); the current context; the cluster of the pod that runs the command;
    the cluster of kubectl.

    The tests use a local server with the published API (v2beta1). The commands also ran against a
    real server of version 2.17. Exit codes: 0; 1 if the command or the run failed; 2 for an invalid
    command line; 130 after Ctrl-C.
    """


kubeflow.add_command(pipelines)
kubeflow.add_command(runs)
kubeflow.add_command(contexts)
