"""``stagecraft config``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import settings_options


@click.command(short_help="Print the resolved settings, or describe all there are.")
@settings_options
@click.option("--describe", is_flag=True, help="Every setting: type, default and meaning.")
def config(config: str, overrides: tuple[str, ...], describe: bool) -> None:
    """Print the settings that a run would have, as YAML.

    Settings are a tree. A preset or a file gives some of them, --set changes single ones, all
    others have defaults. Settings that do not go together are refused here as by `stagecraft run`,
    which also looks at the data, the model and the devices.

    \b
    stagecraft config                              the quickstart preset, resolved
    stagecraft config --config cifar10 --set train.epochs=30
    stagecraft config > my.yaml                    a file to start from
    stagecraft run --config my.yaml
    stagecraft config --describe                   every setting that there is

    A file needs only what differs from the defaults:

    \b
    name: mine
    train:
      model: resnet20
      epochs: 20
    evaluate:
      min_accuracy: 0.7
    """
    from stagecraft.pipeline.cli import console, describe_settings  # --help needs none of it
    from stagecraft.pipeline.settings import SettingsError, load
    from stagecraft.schemas.errors import UserError

    try:
        if describe:
            console.say("\n\n".join(describe_settings.paragraphs()))
            return
        settings = load(config, overrides)
    except (SettingsError, UserError) as error:
        console.error(str(error))
        sys.exit(1)
    console.say(describe_settings.as_yaml(settings))
