"""``train``: what Stagecraft's Trainer does, in one's own ``run_fn``."""

from __future__ import annotations

import dataclasses
import difflib
import os
import pathlib
import tempfile
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stagecraft import named_objects
from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.settings import readable
from stagecraft.examples_task import ExamplesTask
from stagecraft.trainer_module.parallel import cluster
from stagecraft.trainer_module.parallel.settings import ParallelSettings
from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.processes.training_task import TrainingTask
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings, hyperparameters

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.tasks.task import Task


@dataclasses.dataclass
class Arguments:
    """Settings that name objects, and the objects' names."""

    flat: dict[str, Any]
    """``TrainingSettings.flat()``, or a part of it."""
    given: list[str] = dataclasses.field(default_factory=list)
    """Names from :mod:`stagecraft.named_objects`, for other processes."""

    def put(self, setting: str, value: Any) -> None:
        """Sets a flat setting to the name of an object; a name stays as it is."""
        if not isinstance(value, str):
            role = setting.removeprefix("train_").removesuffix("_name")
            value = named_objects.put(role, value)
            self.given.append(value)
        self.flat[setting] = value

    def put_optimizer(self, optimizer: Any) -> None:
        """Sets an optimizer, and its rates: those of Keras, not the defaults of the settings."""
        from stagecraft.objects import optimizer as given_optimizer

        if isinstance(optimizer, str):
            options = given_optimizer.of_name(optimizer)
        else:
            options, names = given_optimizer.settings(optimizer)
            self.given += names
        self.flat |= {f"train_{name}": value for name, value in options.items()}

    def settings(self) -> TrainingSettings:
        """The settings.

        Raises:
            UserError: a setting is invalid.
        """
        with readable():
            return TrainingSettings.from_flat(self.flat)


def collect(
    base: Mapping[str, Any],
    *,
    parallel: ParallelSettings | None,
    model: Any,
    optimizer: Any,
    loss: Any,
    schedule: Any = None,
    **train: Any,
) -> Arguments:
    """The settings of a call.

    Args:
        base: flat settings that the arguments replace.
        parallel: None: that of ``base``.
        model: a name, a Keras model, or a function that returns one; None: that of ``base``.
        optimizer: a name, or an optimizer of Keras; None: that of ``base``.
        loss: a name, a loss of Keras, or a function of targets and outputs; None: that of ``base``.
        train: fields of :class:`TrainSettings`.

    Raises:
        TypeError: a keyword is not a field of TrainSettings.
        UserError: the optimizer cannot be made again in another process.
    """
    for name in train:
        if name not in TrainSettings.model_fields:
            near = difflib.get_close_matches(name, TrainSettings.model_fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"{name} is not a setting of train:{hint}")
    result = Arguments(dict(base))
    if parallel is not None:
        kept = {key: value for key, value in base.items() if not key.startswith("parallel_")}
        own = parallel.model_dump(include={*ParallelSettings.model_fields})
        result.flat = kept | {f"parallel_{name}": value for name, value in own.items()}
    if {"steps", "epochs"} & train.keys():
        for name in ("train_steps", "train_epochs"):
            result.flat.pop(name, None)
    if model is not None:
        if not isinstance(model, str):
            from stagecraft.objects.model import builder

            model = builder(model)
        result.put("train_model", model)
    if loss is not None:
        result.put("train_loss", loss)
    if optimizer is not None:
        result.put_optimizer(optimizer)
    if schedule is not None:
        result.put("train_schedule", schedule)
    result.flat |= {f"train_{name}": value for name, value in train.items() if value is not None}
    return result


def write(folder: str | os.PathLike[str], schema_path: str) -> str:
    """Writes the graph of the features of a TFDV schema; starts TensorFlow.

    A feature with a shape stays a dense tensor, and another one is sparse.

    Returns:
        The folder.

    Raises:
        UserError: the schema cannot be read.
    """
    import tensorflow as tf
    from tensorflow_transform import TFTransformOutput, impl_helper
    from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

    from stagecraft.trainer_module.data import schema_reader

    schema = schema_reader.read(schema_path)
    specs = schema_utils.schema_as_feature_spec(schema).feature_spec
    if not specs:
        raise UserError(f"{schema_path}: has no features", file=schema_path)

    def same(inputs: dict[str, Any]) -> dict[str, Any]:
        """New tensors: TensorFlow Transform refuses an input as output."""
        return {
            name: tf.nest.map_structure(tf.identity, value, expand_composites=True)
            for name, value in inputs.items()
        }

    metadata = dataset_metadata.DatasetMetadata(schema)
    path = pathlib.Path(folder).absolute()
    metadata_io.write_metadata(metadata, str(path / TFTransformOutput.RAW_METADATA_DIR))
    # As TFX's Transform runs a preprocessing_fn without analyzers.
    impl_helper.analyze_in_place(
        same,
        False,
        specs,
        impl_helper.get_type_specs_from_feature_specs(specs),
        str(path),
    )
    return str(path)


_GIVEN = "given"  # in ``custom_config``: the file of objects for other processes


def train(
    fn_args: Any,
    *,
    task: Task | str | None = None,
    model: Any = None,
    parallel: ParallelSettings | None = None,
    optimizer: Any = None,
    loss: Any = None,
    schedule: Any = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> None:
    """Trains in a ``run_fn`` of yours, also with the Trainer of TFX, and exports the model.

    Trains on ``train_files``, selects the best checkpoint on ``eval_files``, and exports it with
    Transform's graph to ``serving_model_dir``. Writes checkpoints, TensorBoard logs and
    ``record.json`` to ``model_run_dir``. A later call with the same folder resumes.

    If the settings ask for several processes, or for virtual devices that this process can no
    longer make, this function starts processes on this host.

    Args:
        fn_args: of ``run_fn``. Needs ``train_files``, ``eval_files``, ``serving_model_dir``,
            ``model_run_dir``, and ``transform_graph_path`` or ``schema_path``: without Transform,
            the model receives the raw features. ``custom_config["settings"]``, if it
            exists, holds flat settings; the arguments replace them. ``train_steps`` is the number
            of steps if neither ``steps`` nor ``epochs`` is set. ``hyperparameters`` of a Tuner
            replace settings of their names, such as ``parallel.stages``.
        task: what the model learns: a Task, such as :class:`stagecraft.ExamplesTask`, or the name
            of one; None: that of the settings.
        model: a name, such as ``resnet20`` or ``package.module:function``; a function that returns
            a Keras model, called with those arguments of the task that it has; or a Keras model,
            which keeps its weights. With an ExamplesTask, loss, metrics and optimizer of
            ``compile`` are the defaults.
        parallel: the topology; None: that of the settings.
        optimizer: a name or an optimizer of Keras. Its learning rate, weight decay and schedule
            have Keras's defaults, unless other arguments set them.
        loss: the name of a loss as in ``train.loss``, a ``keras.losses.Loss``, or a function of
            targets and outputs; None: that of the task.
        schedule: a name, or a ``LearningRateSchedule`` of Keras.
        checkpoint_dir: folder of the checkpoints; None: ``working_dir``, or ``checkpoints`` in
            ``model_run_dir``.
        settings: fields of TrainSettings, such as ``batch_size=64``.

    Raises:
        TypeError: a keyword is not a setting.
        UserError: an error in arguments, data, model, disk, devices or loss.
    """
    from stagecraft import process_state

    with process_state.restored():
        prepared = prepare(
            fn_args, task, model, parallel, optimizer, loss, schedule, checkpoint_dir, **settings
        )
        parallel = prepared.settings.parallel
        if parallel.launcher == "kubernetes" and not (cluster.is_set() or launcher.is_begun()):
            raise SettingError(
                "parallel.launcher",
                "kubernetes",
                "needs the Trainer of Stagecraft, which makes the cluster job",
                "stagecraft.components.Trainer with this run_fn, or parallel.launcher: auto",
            )
        if launcher.are_needed(parallel):
            run_apart(prepared)
        else:
            from stagecraft.trainer_module.run_fn import run_fn

            run_fn(prepared.fn_args)


class Prepared(NamedTuple):
    """A training that can begin."""

    fn_args: types.SimpleNamespace
    """The arguments that ``run_fn`` reads; JSON can hold it."""
    settings: TrainingSettings
    given: Sequence[str]
    """Names of objects for other processes."""


def prepare(
    fn_args: Any,
    task: Task | str | None = None,
    model: Any = None,
    parallel: ParallelSettings | None = None,
    optimizer: Any = None,
    loss: Any = None,
    schedule: Any = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Prepared:
    """Checks the arguments of :func:`train`; does not train.

    Raises:
        TypeError: a keyword is not a setting.
        UserError: an argument is invalid.
    """
    config = getattr(fn_args, "custom_config", None) or {}
    base = config.get("settings") if isinstance(config, dict) else None
    optimizer, compiled, metrics = _compiled(model, task, optimizer, loss)
    found = collect(
        base if isinstance(base, dict) else {},
        parallel=parallel,
        model=model,
        optimizer=optimizer,
        loss=loss,
        schedule=schedule,
        **settings,
    )
    graph = _transform_graph(fn_args)
    if isinstance(task, ExamplesTask):
        task = task.of_graph(graph).with_defaults(compiled, metrics)
    if task is not None:
        found.flat.pop("task_args", None)
        found.put("task_name", task)
    if not {"train_steps", "train_epochs"} & found.flat.keys():
        steps = getattr(fn_args, "train_steps", None)
        found.flat |= {"train_steps": steps} if steps else {}
    found.flat = hyperparameters.override(found.flat, getattr(fn_args, "hyperparameters", None))
    wanted = found.settings()
    return Prepared(_fn_args(fn_args, graph, wanted, checkpoint_dir), wanted, found.given)


def run_apart(prepared: Prepared) -> None:
    """Trains in processes on this host, and waits for their end.

    Raises:
        UserError: the training cannot go on; the message is the first cause.
    """
    fn_args = prepared.fn_args
    with tempfile.TemporaryDirectory() as folder:
        packed = pathlib.Path(folder, "given")
        packed.write_bytes(named_objects.pack(prepared.given))
        fn_args.custom_config |= {_GIVEN: str(packed)}
        launcher.run_local(
            TrainingTask(f"{__name__}.{run_given.__name__}", fn_args),
            prepared.settings.parallel,
        )


def run_given(fn_args: Any) -> None:
    """The ``run_fn`` of processes that :func:`train` starts."""
    from stagecraft.trainer_module.run_fn import run_fn

    named_objects.unpack(pathlib.Path(fn_args.custom_config[_GIVEN]).read_bytes())
    run_fn(fn_args)


def _compiled(model: Any, task: Any, optimizer: Any, loss: Any) -> tuple[Any, Any, list[Any]]:
    """Optimizer, loss and metrics; what is None, as the model is compiled."""
    from stagecraft.objects import model as given_model
    from stagecraft.trainer_module.models.layers import overrides

    if isinstance(model, str) or model is None:
        return optimizer, loss, []
    if not hasattr(model, "compiled") and callable(model):
        lacks = isinstance(task, ExamplesTask) and (optimizer is None or not (loss or task.loss))
        if not lacks or cluster.is_set():  # a worker must connect before TensorFlow starts
            return optimizer, loss, []
        model = given_model.compiled(model)
    if not getattr(model, "compiled", False):
        return optimizer, loss, []
    if not isinstance(task, ExamplesTask):
        overrides.check([model])  # refuses: only this task learns what compile says
    config = given_model.compile_arguments(model)
    return optimizer or model.optimizer, loss or config["loss"], config.get("metrics") or []


def _transform_graph(fn_args: Any) -> str:
    accessor = getattr(fn_args, "data_accessor", None)
    if getattr(accessor, "data_view_decode_fn", None) is not None:
        raise UserError(
            "fn_args: the examples have a data view, but Stagecraft reads tf.Examples; use an "
            "ExampleGen that writes tf.Examples",
            setting="examples",
        )
    path = getattr(fn_args, "transform_graph_path", None)
    path = path or getattr(fn_args, "transform_output", None)
    if path:
        return str(path)
    schema = _schema(fn_args)
    if schema is None or cluster.is_set():  # a worker must connect before TensorFlow starts
        raise UserError(
            "fn_args: transform_graph_path is not set; use "
            "transform_graph=transform.outputs['transform_graph'] in the Trainer, or without "
            "TF_CONFIG schema=schema_gen.outputs['schema']",
            setting="transform_graph",
        )
    return write(os.path.join(fn_args.model_run_dir, "transform_graph"), schema)


def _schema(fn_args: Any) -> str | None:
    path = getattr(fn_args, "schema_path", None) or getattr(fn_args, "schema_file", None)
    return str(path) if path else None


def _fn_args(
    fn_args: Any,
    graph: str,
    wanted: TrainingSettings,
    checkpoint_dir: str | os.PathLike[str] | None,
) -> types.SimpleNamespace:
    """The arguments that ``run_fn`` reads, in a form that JSON can hold."""
    schema = _schema(fn_args)
    folder = checkpoint_dir or getattr(fn_args, "working_dir", None)
    return types.SimpleNamespace(
        train_files=list(fn_args.train_files),
        eval_files=list(fn_args.eval_files),
        transform_graph_path=graph,
        schema_path=schema or os.path.join(graph, "metadata", "schema.pbtxt"),
        serving_model_dir=str(fn_args.serving_model_dir),
        model_run_dir=str(fn_args.model_run_dir),
        working_dir=str(folder) if folder else None,
        custom_config={"settings": wanted.flat(), **_of_trainer(fn_args)},
    )


def _of_trainer(fn_args: Any) -> dict[str, Any]:
    """Returns the entries of ``custom_config`` that Stagecraft's Trainer alone makes."""
    from stagecraft.trainer_module.data.input_data import WEIGHTS

    config = getattr(fn_args, "custom_config", None) or {}
    return {WEIGHTS: config[WEIGHTS]} if WEIGHTS in config else {}
