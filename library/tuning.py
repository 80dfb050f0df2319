"""``tuner_fn``: TFX's Tuner searches over topologies and hyperparameters."""

from __future__ import annotations

import functools
import logging
import math
import os
import pathlib
import shutil
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stagecraft import training
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module.data.tasks import checks
from stagecraft.trainer_module.settings import hyperparameters
from stagecraft.trainer_module.training import record

if TYPE_CHECKING:
    from keras_tuner.engine.base_tuner import BaseTuner

    from stagecraft.trainer_module.data.tasks.task import Task


_RANGE = ("min", "max", "log", "step")

Space = Mapping[str, Any]
"""Setting, such as ``parallel.stages`` -> a list of values, or a range ``{min, max}`` with ``log:
true`` or a ``step``."""


def parse(space: Any) -> Any:
    """``keras_tuner.HyperParameters`` of a space.

    Args:
        space: a mapping from settings to values or ranges; or ``HyperParameters``, whose names
            without a dot are for the user's own code.

    Raises:
        SettingError: a name is not a setting, or the values are neither a list nor a range.
    """
    import keras_tuner

    if isinstance(space, keras_tuner.HyperParameters):
        hyperparameters.values({"values": space.values})
        return space
    if not isinstance(space, Mapping) or not space:
        use = "a mapping such as {parallel.stages: [1, 2]}"
        raise SettingError("space", space, "is not a search space", use, shown=repr(space))
    found = keras_tuner.HyperParameters()
    for name, values in space.items():
        hyperparameters.check(name)
        try:
            _add(found, name, values)
        except (TypeError, ValueError) as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(f"space.{name}", values, f"is refused: {error}") from error
    return found


def _add(found: Any, name: str, values: Any) -> None:
    if isinstance(values, Mapping):
        _add_range(found, name, values)
    elif isinstance(values, Sequence) and not isinstance(values, str) and values:
        found.Choice(name, list(values))
    else:
        use = "a list such as [1, 2], or a range such as {min: 0.001, max: 0.1, log: true}"
        raise SettingError(f"space.{name}", values, "is neither a list nor a range", use)


def _add_range(found: Any, name: str, values: Mapping[str, Any]) -> None:
    unknown = sorted(values.keys() - {*_RANGE})
    if unknown or not {"min", "max"} <= values.keys():
        use = "min and max, with log: true or a step"
        raise SettingError(f"space.{name}", dict(values), "is not a range", use)
    least, most, step = values["min"], values["max"], values.get("step")
    whole = all(isinstance(each, int) for each in (least, most))
    add = found.Int if whole else found.Float
    more = {} if step is None else {"step": step}
    add(name, least, most, sampling="log" if values.get("log") else "linear", **more)


CONFIG = "tune"
"""In ``custom_config``: keyword arguments of :func:`tuner_fn`."""

_ALGORITHMS = {
    "random_search": "RandomSearchOracle",
    "bayesian_optimization": "BayesianOptimizationOracle",
    "grid_search": "GridSearchOracle",
}

_TRIALS = 10

_log = logging.getLogger("stagecraft.progress")


class TunerFnResult(NamedTuple):
    """The result that TFX's Tuner expects of a ``tuner_fn``."""

    tuner: BaseTuner
    fit_kwargs: Mapping[str, Any]


def tuner_fn(
    fn_args: Any,
    *,
    space: Space | None = None,
    trials: int | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> TunerFnResult:
    """Builds the search of TFX's Tuner over settings, such as ``parallel.stages``.

    Each trial is a training with its own folder and processes on this host. The objective is the
    task's monitor on ``eval_files``. A combination that Stagecraft refuses, such as more stages
    than devices, is a failed trial, and its log line says why.

    In a pipeline, ``Tuner(tuner_fn="stagecraft.tuner_fn", custom_config={...})`` needs no code:
    ``custom_config["settings"]`` holds flat settings, and ``custom_config["tune"]`` the keywords of
    this function. In a module, ``def tuner_fn(fn_args): return sc.tuner_fn(fn_args, ...)`` takes
    objects as well.

    Args:
        fn_args: of the Tuner.
        space: a mapping from settings to a list of values, or to a range such as ``{"min": 0.001,
            "max": 0.1, "log": True}``; or ``keras_tuner.HyperParameters``.
        trials: the greatest number of trials; default 10; for ``grid_search``, the whole grid.
        algorithm: ``random_search`` (default), ``bayesian_optimization`` or ``grid_search``.
        seed: of the search; default 0. The same seed gives the same trials.
        directory: of the trials; default: in ``working_dir``. A search in a folder that survives
            continues.
        arguments: as :func:`stagecraft.train` takes them.

    Raises:
        UserError: an argument is invalid.
    """
    config = getattr(fn_args, "custom_config", None) or {}
    given: dict[str, Any] = {"space": space, "trials": trials, "algorithm": algorithm}
    given |= {"seed": seed, "directory": directory, **arguments}
    options = {"algorithm": "random_search", "seed": 0, "directory": fn_args.working_dir}
    options |= config.get(CONFIG) or {}
    options |= {name: value for name, value in given.items() if value is not None}
    found, folder = parse(options.pop("space", None)), options.pop("directory")
    search = [options.pop(name, None) for name in ("algorithm", "trials", "seed")]
    folder = pathlib.Path(folder).absolute()
    of_trial = functools.partial(_of_trial, fn_args, folder, options)
    oracle = _oracle(found, _first(of_trial, found), *search)
    return TunerFnResult(_tuner_class()(of_trial, oracle, folder), {})


def _of_trial(
    fn_args: Any, folder: pathlib.Path, arguments: Mapping[str, Any], name: str, values: Any
) -> training.Prepared:
    """The training of a trial."""
    home = folder / "trials" / name
    fields = {key: value for key, value in vars(fn_args).items() if key[0] != "_"}
    fields |= {
        "serving_model_dir": str(home / "serving"),
        "model_run_dir": str(home / "run"),
        "working_dir": str(home / "checkpoints"),
        "hyperparameters": {"values": dict(values)},
    }
    return training.prepare(types.SimpleNamespace(**fields), **arguments)


def _first(of_trial: Callable[[str, Any], training.Prepared], found: Any) -> Task:
    """The task of all trials.

    Raises:
        UserError: the settings are invalid without the space, too.
    """
    try:
        prepared = of_trial("first", found.values)
    except UserError:
        prepared = of_trial("first", {})
    task: Task = prepared.settings.task.found
    return task


def _oracle(found: Any, task: Task, algorithm: str, trials: int | None, seed: int) -> Any:
    import keras_tuner

    if algorithm not in _ALGORITHMS:
        use = f"one of {', '.join(_ALGORITHMS)}"
        raise SettingError("algorithm", algorithm, "does not exist", use)
    checks.whole("seed", seed, 0)
    checks.whole("trials", 1 if trials is None else trials, 1)
    if trials is None:  # TFX's Tuner needs a number
        sizes = [len(list(each.values)) for each in found.space]
        trials = math.prod(sizes) if algorithm == "grid_search" else _TRIALS
    direction = "max" if task.higher_is_better(task.monitor) else "min"
    return getattr(keras_tuner.oracles, _ALGORITHMS[algorithm])(
        objective=keras_tuner.Objective(task.monitor, direction),
        max_trials=trials,
        hyperparameters=found,
        allow_new_entries=False,
        tune_new_entries=False,
        seed=seed + 1,  # KerasTuner takes 0 for none
        max_consecutive_failed_trials=None,  # a refused combination says nothing about the next
    )


@functools.cache
def _tuner_class() -> Any:
    """The class, whose base needs the import of KerasTuner, and so of TensorFlow."""
    from keras_tuner.engine.base_tuner import BaseTuner

    class TrainingTuner(BaseTuner):
        """Runs each trial as a training in processes of its own."""

        def __init__(
            self,
            of_trial: Callable[[str, Any], training.Prepared],
            oracle: Any,
            folder: pathlib.Path,
        ):
            self._of_trial = of_trial
            self.refused: dict[str, str] = {}
            """Trial -> why it failed."""
            super().__init__(oracle, directory=str(folder), project_name="search")

        def run_trial(self, trial: Any, *_: Any, **__: Any) -> dict[str, float]:
            """Trains, and returns the monitor of the best checkpoint; nan: the trial failed."""
            name = self.oracle.objective.name
            try:
                prepared = self._of_trial(trial.trial_id, trial.hyperparameters.values)
                training.run_apart(prepared)
                best = record.read(prepared.fn_args.model_run_dir)["best"]
            except UserError as error:
                self.refused[trial.trial_id] = trial.message = str(error)
                _log.warning("Trial %s failed: %s", trial.trial_id, error)
                return {name: math.nan}  # for an error, KerasTuner would print a traceback
            # The search needs the value alone, and models are large.
            shutil.rmtree(prepared.fn_args.serving_model_dir, ignore_errors=True)
            shutil.rmtree(prepared.fn_args.working_dir, ignore_errors=True)
            return {name: best[name]}

        def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
            """Runs the trials.

            Raises:
                UserError: none of them succeeded.
            """
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "All-NaN", RuntimeWarning)  # a failed trial
                super().search(*fit_args, **fit_kwargs)
            trials = self.oracle.trials.values()
            if all(trial.status != "COMPLETED" for trial in trials):
                causes = dict.fromkeys(str(trial.message) for trial in trials)
                raise UserError(
                    f"tuner_fn: all {len(trials)} trials failed: {next(iter(causes), '')}",
                    setting="space",
                )

    return TrainingTuner
