"""Checks ``beam.args`` against the options of Beam: in Python, and of job servers, in Java.

Errors name options and no values, which may be secrets. Beam is imported only if there are
arguments; Beam imports no TensorFlow.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, nearest
from stagecraft.pipeline.beam.runner import RUNNERS, Runner

_SETTING = "beam.args"
_FORMS = {int: "INTEGER", float: "NUMBER"}


def parsed(arguments: Sequence[str], runner: Runner) -> dict[str, Any]:
    """The options that arguments set: Beam's name, such as ``flink_master`` -> value.

    Raises:
        SettingError: Beam or the runner has no such option, or the option takes no such value.
    """
    if not arguments:
        return {}
    parser = _parser([runner])
    try:
        found, unknown = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError as error:
        option = (error.argument_name or "").partition("/")[0]
        use = _form(option, _options(parser)[option])
        raise SettingError(_SETTING, option, "has a wrong value", use) from None
    for argument in unknown:
        raise _unknown(argument.partition("=")[0], parser, runner)
    return vars(found)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of Beam's and its runners' options, and those of other options."""
    if not arguments:
        return [], []
    parser = _parser(RUNNERS.entries())
    known = list(arguments)
    try:
        _, others = parser.parse_known_args(known)
    except argparse.ArgumentError:  # Beam will refuse it
        return [], known
    for argument in others:
        known.remove(argument)
    return known, others


def _parser(runners: Iterable[Runner]) -> argparse.ArgumentParser:
    """A parser of Beam's common options and the options of some runners, without defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Google's libraries about old versions of Python
        from apache_beam.options import pipeline_options

    runners = list(runners)
    own = {name for runner in runners for name in runner.option_classes}
    others = {name for runner in RUNNERS.built_in() for name in runner.option_classes} - own
    parser: argparse.ArgumentParser = pipeline_options._BeamArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, conflict_handler="resolve"
    )
    base = pipeline_options.PipelineOptions
    classes: list[Any] = [
        each
        for name, each in vars(pipeline_options).items()
        if isinstance(each, type) and issubclass(each, base) and name not in others
    ]
    for each in classes:
        each._add_argparse_args(parser)
    for runner in runners:
        for name, kind in runner.options.items():
            if kind is bool:  # Beam's Python gives a job server no value of such an option
                parser.add_argument(f"--{name}", action="store_true")
            else:
                parser.add_argument(f"--{name}", type=kind)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {option: action for action in parser._actions for option in action.option_strings}


def _unknown(option: str, parser: argparse.ArgumentParser, runner: Runner) -> SettingError:
    if not option.startswith("-"):
        return SettingError(_SETTING, secrets.LEFT_OUT, "does not begin with --", "--NAME=VALUE")
    owners = [
        each.name
        for each in RUNNERS.built_in()
        if each.name != runner.name and option in _options(_parser([each]))
    ]
    if owners:
        problem = f"is no option of beam.runner: {runner.name}"
        return SettingError(_SETTING, option, problem, f"beam.runner: {' or '.join(owners)}")
    other = "beam.unchecked_args for options that Beam does not know"
    use = nearest(option, _options(parser), other)
    return SettingError(_SETTING, option, "does not exist in Beam", use)


def _form(option: str, action: argparse.Action) -> str:
    """How to write an option."""
    if action.nargs == 0:
        return f"{option}, without a value"
    if action.choices:
        return f"{option}={' | '.join(map(str, action.choices))}"
    kind = action.type if isinstance(action.type, type) else str
    return f"{option}={_FORMS.get(kind, 'VALUE')}"
