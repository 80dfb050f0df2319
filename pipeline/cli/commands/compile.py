"""``stagecraft compile``."""

from __future__ import annotations

import pathlib

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console


@click.command("compile", cls=Command, short_help="Compile the pipeline for Kubeflow Pipelines.")
@options.settings_options
@options.data_option
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="The YAML file to write. Default: NAME.yaml, where NAME is the name of the pipeline.",
)
def compile_command(
    config: str, overrides: tuple[str, ...], data: str | None, output: pathlib.Path | None
) -> None:
    """Compile the pipeline for open-source Kubeflow Pipelines 2.x.

    The command writes a YAML file, and checks this file with the rules of stagecraft lint. Upload
    the file with stagecraft kubeflow or in the UI of Kubeflow Pipelines. To try the file on this
    machine, use stagecraft emulate. The kubeflow section of the settings sets container images,
    resources and volumes of steps; stagecraft config --describe lists these settings.

    \b
    stagecraft compile --config cifar10 --data s3://bucket/cifar-10-binary.tar.gz \\
        --set kubeflow.image=registry/stagecraft@sha256:… \\
        --set kubeflow.pipeline_root=s3://bucket/pipelines
    stagecraft compile --set kubeflow.steps.Trainer.gpus=2

    These settings are parameters of the pipeline, so each run can set them: epochs, steps, learning
    rate, batch size and seed; strategy, replicas, stages and microbatches of the topology; the URI
    of the data, unless you compiled the pipeline for the sample. Steps that access the object store
    of Kubeflow Pipelines get the keys of this store. Exit code: 0; 1 if the pipeline cannot be
    compiled.
    """
    from stagecraft.pipeline.checks import early_checks
    from stagecraft.pipeline.kubeflow import document, visible_secrets
    from stagecraft.pipeline.local.layout import OutputError

    settings = options.load_settings(config, overrides, data or None)
    early_checks.check_files(settings)
    output = output or pathlib.Path(f"{settings.name}.yaml")
    try:
        document.check_output(output)
        from stagecraft.pipeline.checks import preflight
        from stagecraft.pipeline.kubeflow.compile import compile_pipeline  # with TensorFlow
        from stagecraft.trainer_module.models import build_model

        with build_model.files_shared():
            compile_pipeline(settings, output, console.warning)
            task, train = settings.task.found, settings.train
            arguments = preflight.model_arguments(settings)
            read = build_model.files_read(train.model, arguments, task, train.model_args)
    except OSError as error:
        raise OutputError(output, error) from error
    if warning := visible_secrets.warning(settings, str(output)):
        console.warning(warning)
    weights = train.from_files.initial_weights
    needed = [("initial weights", weights)] if weights else []
    needed += [("the model reads", file) for file in sorted({*task.files, *read})]
    console.fields(
        [
            ("written", str(output)),
            ("image", settings.kubeflow.image),
            ("pipeline root", settings.kubeflow.pipeline_root),
            *(
                (
                    name,
                    f"{file}: the container image or a volume must have the same file at this path",
                )
                for name, file in needed
            ),
            ("try it here", f"stagecraft emulate {output}"),
        ]
    )
