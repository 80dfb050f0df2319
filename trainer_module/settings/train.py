"""The settings of model, optimizer and data. Imports no TensorFlow.

:mod:`.train_parsing` parses and checks each of them. :mod:`.train_values` derives values from them.
:mod:`.train_checks` checks them against each other.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stagecraft.trainer_module.settings.train_parsing import TrainParsing


class TrainFields(TrainParsing):
    """Model, optimizer and data: the fields."""

    model: str = Field(
        "cnn",
        description="a model of one of these families, or package.module:function returning a "
        "Keras model; for pictures, with logits [batch, classes]",
    )
    initial_weights: str | None = Field(
        None,
        description="file or folder with initial weights, instead of random ones: .keras, "
        ".weights.h5, a checkpoint (…/checkpoints/KEY/391), a pushed model (…/serving/VERSION), or "
        "the checkpoint of an Estimator (…/model.ckpt-1000)",
    )
    initial_weights_skip: str | None = Field(
        None,
        description="variables not to load from initial_weights: paths (head) or patterns "
        "(*/bias), separated by commas",
    )
    steps: int | None = Field(
        None, ge=1, description="optimizer steps; set this or epochs (neither: 10 epochs)"
    )
    epochs: float | None = Field(
        None, gt=0, le=1e6, description="passes over the train split; set this or steps"
    )
    batch_size: int = Field(128, ge=1, description="examples per optimizer step, over all devices")
    eval_batch_size: int = Field(500, ge=1, description="examples per evaluation batch")
    optimizer: str = Field(
        "sgd",
        description="optimizer that updates the weights: one of these, or package.module:name of "
        "your own Keras optimizer, or of a function that returns one; for a table, the default is "
        "adamw, with learning_rate 0.003, schedule one_cycle, batch_size 32, 30 epochs and the "
        "model dnn_64_32",
    )
    optimizer_args: str | None = Field(
        None,
        description="mapping of other arguments of the optimizer, such as {beta_1: 0.95}",
    )
    learning_rate: float = Field(0.02, gt=0, description="peak learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of sgd, also in muon")
    weight_decay: float = Field(
        5e-4,
        ge=0,
        description="decoupled weight decay per step, times the learning rate; kernels only",
    )
    weight_decay_exclude: str | None = Field(
        None,
        description="list of regular expressions; kernels whose path matches have no weight decay",
    )
    learning_rate_multipliers: str | None = Field(
        None,
        description="mapping from regular expression to factor; the factor of the first expression "
        "that matches the path of a weight multiplies its learning rate",
    )
    frozen: str | None = Field(
        None,
        description="list of regular expressions; training does not change weights whose path "
        "matches, and a layer with no other weights runs in inference mode",
    )
    freeze_after: str | None = Field(
        None,
        description="mapping from regular expression to a share of all steps, between 0 and 1; "
        "after this share, training does not change weights whose path matches; the first "
        "expression that matches counts",
    )
    clip_norm: float = Field(
        0.0,
        ge=0,
        description="maximum global norm of all gradients; larger gradients are scaled down; 0: "
        "off",
    )
    clip_value: float | None = Field(
        None, gt=0, description="maximum absolute value of each entry of a gradient"
    )
    gradient_noise: float | None = Field(
        None,
        gt=0,
        description="eta of the Gaussian noise on the clipped gradients; its variance is "
        "eta / (1 + step)^0.55 (Neelakantan et al. 2015)",
    )
    schedule: str = Field(
        "cosine",
        description="learning rate over the steps, after the warm-up: one of these, or "
        "package.module:name of your own Keras LearningRateSchedule, or of a function that returns "
        "one",
    )
    schedule_args: str | None = Field(
        None,
        description="mapping of arguments of a schedule of Keras, such as {decay_steps: 1000}",
    )
    warmup_steps: int = Field(
        0, ge=0, description="steps of linear warm-up; one_cycle: 0 means 30 % of all steps"
    )
    loss: str = Field(
        "task",
        description="loss of training and evaluations: one of these, or package.module:name "
        "of your own Keras loss, or of a function of targets and outputs; for a model with several "
        "outputs, a mapping from output to loss",
    )
    loss_args: str | None = Field(
        None,
        description="mapping of arguments of the loss, such as {delta: 0.5}; for several outputs, "
        "a mapping from output to such mappings",
    )
    loss_weights: str | None = Field(
        None, description="mapping from output of the model to the factor of its loss; default: 1"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target spread evenly over all classes"
    )
    ema_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of the moving average of the weights, which is then evaluated and "
        "exported; 0: off",
    )
    lookahead: int | None = Field(
        None,
        ge=0,
        description="steps between two pulls of the weights to slow weights, which are evaluated "
        "and exported (Zhang et al. 2019); 0: off",
    )
    augment: str = Field(
        "crop,flip",
        description="names, separated by commas, or none; their order does not matter; a task that "
        "does not augment has the default none",
    )
    mix_alpha: float = Field(
        1.0,
        gt=0,
        description="for mixup and cutmix: the share of an image in its mixture has the "
        "distribution Beta(mix_alpha, mix_alpha)",
    )
    test_time_augment: Literal["flip", "flip_translate"] | None = Field(
        None,
        description="the exported model averages its logits over views of a picture; flip: also "
        "the mirror image; flip_translate: six views, also moved by a pixel",
    )
    shuffle: Literal["auto", "memory", "stream"] = Field(
        "auto",
        description="memory: a full shuffle of examples held in memory; stream: shuffled files and "
        "a buffer; auto: memory up to memory_limit_mb",
    )
    memory_limit_mb: int = Field(
        1024, ge=1, description="maximum size, in MB, of a train split that auto holds in memory"
    )
    shuffle_buffer: int = Field(10_000, ge=1, description="examples in the buffer of stream")
    eval_every: int = Field(
        0, ge=0, description="steps between evaluations on the val split; 0: once an epoch"
    )
    checkpoint_every: int = Field(
        0, ge=0, description="steps between checkpoints; 0: at each evaluation only"
    )
    early_stopping_patience: int | None = Field(
        None,
        ge=1,
        description="the training run stops after this number of evaluations without an "
        "improvement of the task's monitored metric",
    )
    callbacks: str | None = Field(
        None,
        description="list of package.module:Class; the chief calls their methods on_train_begin, "
        "on_step, on_epoch_end and on_train_end",
    )
    keep: int = Field(2, ge=1, description="newest checkpoints to keep, besides the best one")
    resume_id: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="separates training runs on the same data and code: each resumes from its own "
        "checkpoints",
    )
    export_keras: bool = Field(
        False, description="also export the model as assets.extra/model.keras"
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="seed of weights, order, augmentation and dropout"
    )
