"""Where the data come from (``data:``). Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen import spans
from stagecraft.components.example_gen.archives import files
from stagecraft.schemas.features import (
    ALL,
    DATASETS,
    EVAL,
    IMAGE,
    LABEL,
    MASK,
    SAMPLE,
    TRAIN,
    VAL,
)
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import Settings, TaskSettings

SAMPLE_SOURCE, DOWNLOAD = "sample", "download"

EXAMPLE_GEN = "Cifar10ExampleGen"
"""Id of the node that makes examples of an archive of CIFAR."""

ANY_EXAMPLE_GEN = "ExampleGen"
"""Id of the node that makes examples of other data."""


class DataSettings(Settings):
    """The data (``data:``)."""

    source: str = Field(
        "sample",
        description="sample (generated, no network), download (CIFAR's published archive), or the "
        "data that the task or example_gen reads, such as an archive (.tar.gz) or a folder: a "
        "path, or a gs://, s3:// or minio:// URI",
    )
    span: str = Field(
        "latest",
        description="the span to read, if source has {SPAN}, or {YYYY}, {MM} and {DD}: latest, a "
        "number, or a date such as 2026-11-27; if source has {VERSION}, in its newest version",
    )
    window: PositiveInt = Field(
        1,
        description="number of spans to train on: the one to read, and those before it that "
        "earlier runs read; only the one to read is evaluated",
    )
    dataset: Literal["cifar10", "cifar100"] = Field("cifar10", description="layout of the data")
    label: Literal["fine", "coarse"] = Field(
        "fine", description="which of CIFAR-100's two labels to learn"
    )
    val_fraction: float = Field(
        0.1, gt=0, le=0.5, description="share of the train part held out as the val split"
    )
    shards: int = Field(
        48,
        ge=1,
        description="files per split; a fixed number, so that the data does not depend on the "
        "number of workers",
    )
    sample_train: int = Field(5_000, ge=10, description="examples in the train part of the sample")
    sample_test: int = Field(1_000, ge=10, description="examples in the test part of the sample")
    cache_dir: str = Field("~/.cache/stagecraft", description="folder for downloads, for all runs")
    schema_file: str | None = Field(
        None,
        description="TFDV schema (text proto) that the data must match; default: the schema of the "
        "dataset, or of the task's sample",
    )
    infer_schema: bool = Field(
        False, description="infer the schema from the train split in each run; excludes schema_file"
    )
    example_gen: str | None = Field(
        None,
        description="dotted path of an ExampleGen component, such as tfx.components.CsvExampleGen; "
        "source is its input_base; default: the ExampleGen of CIFAR's archives, or of the task",
    )
    example_gen_args: dict[str, Any] = Field(
        {},
        description="mapping of other arguments of example_gen; a mapping such as input_config "
        "becomes its proto",
    )
    train_split: str = Field("train", min_length=1, description="split that trains the model")
    val_split: str = Field(
        "val", min_length=1, description="split that chooses the best checkpoint"
    )
    eval_split: str = Field(
        "eval", min_length=1, description="split that judges the model; no training uses it"
    )
    eval_fraction: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="share of all examples in the eval split, if example_gen_args names fewer than "
        "two splits; "
        "val_fraction is then the share of the val split",
    )
    image_size: tuple[PositiveInt, PositiveInt] | None = Field(
        None,
        description="height and width that Transform and the exported model give all pictures of a "
        "folder; default: that of the files, which must be the same",
    )
    image_fit: Literal["resize", "crop", "pad"] = Field(
        "resize",
        description="how pictures get image_size: resize stretches them, crop keeps the middle, "
        "pad adds a black border",
    )
    corrupt_images: Literal["refuse", "skip"] = Field(
        "refuse",
        description="what happens if files of a folder are no pictures: refuse them, or skip and "
        "count them",
    )
    preprocessing_fn: str | None = Field(
        None,
        description="package.module:function for Transform; default: the function of the task",
    )

    @field_validator("source")
    @classmethod
    def _check_scheme(cls, value: str) -> str:
        try:
            if not value.startswith("package:"):
                files.check_scheme(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("span", mode="before")
    @classmethod
    def _check_span(cls, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        return str(value)

    @model_validator(mode="after")
    def _check_spans(self) -> DataSettings:
        spans.number_of(self.span)
        if spans.has(self.source):
            spans.check(self.source)
        if not self.has_spans:
            use = "data.source: FOLDER/{SPAN}, or FOLDER/{YYYY}-{MM}-{DD}"
            self._refuse_changed(("span", "window"), "needs a source with spans", use)
        if self.window > 1 and self.infer_schema:
            problem = "needs one schema for all spans, but data.infer_schema infers one from each"
            use = "data.schema_file, a file that 'stagecraft schema' writes"
            raise SettingError("data.window", self.window, problem, use)
        return self

    @property
    def has_spans(self) -> bool:
        """Whether the data have spans."""
        inputs = self.example_gen_args.get("input_config")
        splits = inputs.get("splits") if isinstance(inputs, dict) else None
        patterns = [each.get("pattern") for each in splits or () if isinstance(each, dict)]
        return any(map(spans.has, [self.source, *patterns]))

    @property
    def local_path(self) -> str:
        """The source; of spans on this machine, the path of the one to read.

        Raises:
            MissingSpanError: there is none.
        """
        if not spans.has(self.source) or files.is_remote(self.source):
            return self.source
        return spans.find([os.path.expanduser(self.source)], self.span).paths[0]

    @model_validator(mode="after")
    def _check(self) -> DataSettings:
        if self.example_gen is None:
            self._refuse_changed(
                ("example_gen_args",), "needs data.example_gen", "both, or neither"
            )
        else:
            self._refuse_changed(
                ("dataset", "label", "shards", "sample_train", "sample_test", "cache_dir"),
                f"is only for archives of CIFAR, not for data.example_gen: {self.example_gen}",
                "data.example_gen_args",
            )
        if self.val_fraction + self.eval_fraction > 0.999:
            raise SettingError(
                "data.eval_fraction",
                self.eval_fraction,
                f"and data.val_fraction: {self.val_fraction:g} leave no examples to train on",
                "smaller shares",
            )
        if self.dataset == "cifar10" and self.label == "coarse":
            raise SettingError(
                "data.label", "coarse", "exists only in cifar100", "data.dataset: cifar100"
            )
        if self.source == "sample" and self.dataset != "cifar10":
            raise SettingError(
                "data.source", "sample", "needs the ten classes of cifar10", "data.dataset: cifar10"
            )
        if self.infer_schema and self.schema_file:
            raise SettingError(
                "data.infer_schema", True, "and data.schema_file exclude each other", "one of them"
            )
        return self

    def _refuse_changed(self, names: Sequence[str], problem: str, use: str) -> None:
        """Refuses other values than the defaults: a file may repeat defaults."""
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise SettingError(f"data.{name}", value, problem, use)

    @property
    def splits(self) -> tuple[str, str, str]:
        """Names of the splits to train on, to select on, and to evaluate on."""
        return self.train_split, self.val_split, self.eval_split

    @property
    def dataset_name(self) -> str:
        """Key of ``stagecraft.schemas.features.DATASETS``."""
        return "cifar100_coarse" if self.label == "coarse" else self.dataset

    def generator(self, task: Task) -> Literal["cifar", "folder", "task", "sample", "named"]:
        """The component that makes the examples.

        ``example_gen``; the task's own component; its program; for pictures, a local folder of
        image files by class, or Cifar10ExampleGen.
        """
        if self.example_gen is not None:
            return "named"
        if task.example_gen is not None:
            return "task"
        if task.sample() is not None:
            return "sample"
        return "folder" if self._image_folder(task) else "cifar"

    def _image_folder(self, task: Task) -> Literal["classes", "masks"] | None:
        """Kind of the labels of a local folder of image files; None: it is no such folder."""
        if self.source in (SAMPLE_SOURCE, DOWNLOAD) or self.example_gen is not None:
            return None
        if task.is_table:  # its columns may have the names of pictures
            return None
        if files.is_remote(self.source):  # settings are read where nobody may read the data
            return None
        from stagecraft.components.example_gen.kinds import folders  # with NumPy

        try:
            path, names = os.path.expanduser(self.local_path), set(task.features)
        except spans.MissingSpanError:  # a run names those that exist
            return None
        if {IMAGE, LABEL} <= names and task.example_gen is None and folders.is_by_class(path):
            return "classes"
        return "masks" if {IMAGE, MASK} <= names and folders.has_masks(path) else None

    def schema_of(self, task: Task) -> str | None:
        """Path of the schema that the data of a task must match; None: it is inferred."""
        if self.infer_schema:
            return None
        if self.schema_file is None and (kind := self._image_folder(task)):
            from stagecraft.components.example_gen.kinds import folders  # with NumPy

            return folders.write_schema(
                self.local_path,
                self.cache_dir,
                self.image_size,
                self.image_fit,
                masks=kind == "masks",
            )
        return self.schema_file or task.schema_file or self.dataset_schema

    def check_task(self, task: TaskSettings) -> None:
        """Refuses data that do not fit the task.

        Raises:
            SettingError: as said.
        """
        found, generator = task.found, self.generator(task.found)
        own = "data.example_gen, such as tfx.components.CsvExampleGen, with data.source: FOLDER"
        if generator == "cifar" and (found.is_table or not set(found.schema_features) <= set(ALL)):
            raise SettingError("task.name", task.name, "has no sample", own)
        if generator == "sample" and self.source != SAMPLE_SOURCE:
            raise SettingError(
                "data.source", self.source, "cannot be read without data.example_gen", own
            )
        if generator == "named" and self.source == DOWNLOAD:
            raise SettingError(
                "data.source",
                self.source,
                f"is CIFAR's archive, but data.example_gen is {self.example_gen}",
                "data.source: FOLDER, or remove data.example_gen",
            )
        if generator == "cifar" and self.splits != (TRAIN, VAL, EVAL):
            raise SettingError(
                "data.train_split, val_split, eval_split",
                ", ".join(self.splits),
                "are not the splits of Cifar10ExampleGen",
                f"{TRAIN}, {VAL}, {EVAL}",
            )
        self._check_images(found)
        self._check_schema(task, generator)

    def _check_images(self, task: Task) -> None:
        if self._image_folder(task) is None:
            use = "data.source: FOLDER, a local folder of image files by class or with masks"
            problem = f"is only for folders of image files, not for data.source: {self.source}"
            self._refuse_changed(("image_size", "image_fit", "corrupt_images"), problem, use)
            is_own = self.source != SAMPLE_SOURCE and self.example_gen is None
            is_own = is_own and self.schema_file is None and not task.is_table
            if is_own and MASK in task.features:
                problem = "is no local folder with the folders images and masks"
                use = "such a folder, or data.schema_file"
                raise SettingError("data.source", self.source, problem, use)
        elif self.schema_file is not None:
            problem = "has no effect with data.schema_file, whose feature image has such tags"
            use = 'annotation { tag: "image_shape=224x224x3" tag: "image_fit=crop" } there'
            self._refuse_changed(("image_size", "image_fit"), problem, use)
        elif self.image_size is None:
            use = "data.image_size: [224, 224]"
            self._refuse_changed(("image_fit",), "needs data.image_size", use)

    def _check_schema(self, task: TaskSettings, generator: str) -> None:
        if self.infer_schema and task.found.needs_schema:
            raise SettingError(
                "data.infer_schema",
                True,
                f"does not fit the task {task.name}, which reads more than types from the schema",
                "data.schema_file",
            )
        if self.infer_schema and not task.found.knows_arguments:
            raise SettingError(
                "data.infer_schema",
                True,
                f"needs a task that builds its model without a schema, but {task.name} has no "
                "sample_arguments",
                "data.schema_file, or sample_arguments in its class",
            )
        if self.schema_of(task.found) is None or self.schema_file or task.found.schema_file:
            return
        if generator not in ("cifar", "folder"):
            raise SettingError(
                "data.schema_file",
                self.schema_file,
                "names no schema, but this data needs one",
                "data.infer_schema: true, or a file that 'stagecraft schema' writes",
            )

    @property
    def dataset_schema(self) -> str:
        """Path of the schema of the archives, or of their sample."""
        sample = self.source == SAMPLE_SOURCE
        return (SAMPLE if sample else DATASETS[self.dataset_name]).schema_file
