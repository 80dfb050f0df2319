"""``stagecraft config``."""

from __future__ import annotations

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console


@click.command(
    cls=Command, quiet=False, short_help="Print the resolved settings, or describe all settings."
)
@options.settings_options
@click.option("--describe", is_flag=True, help="Describe every setting: type, default, meaning.")
def config(config: str, overrides: tuple[str, ...], describe: bool) -> None:
    """Print the settings of a run as YAML.

    Settings are a tree. A preset or a file sets some settings, --set changes individual settings,
    and all others have defaults. The command refuses the same settings as `stagecraft run`, but
    does not check the data, the model or the devices.

    \b
    stagecraft config                              the quickstart preset, resolved
    stagecraft config --config cifar10 --set train.epochs=30
    stagecraft config > my.yaml                    a file to start from
    stagecraft run --config my.yaml
    stagecraft config --describe                   every setting

    A file needs only the settings that differ from the defaults:

    \b
    name: mine
    train:
      model: resnet20
      epochs: 20
    evaluate:
      min_accuracy: 0.7
    """
    from stagecraft.pipeline.cli import describe_settings  # --help needs none of it

    if describe:
        console.say("\n\n".join(describe_settings.paragraphs()))
    else:
        console.say(describe_settings.as_yaml(options.load_settings(config, overrides)))
