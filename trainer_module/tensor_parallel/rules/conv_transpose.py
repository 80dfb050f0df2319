"""Transposed convolutions: by filters, or by input channels."""

from __future__ import annotations

from stagecraft.trainer_module.tensor_parallel.rules.conv import ConvRule


class ConvTransposeRule(ConvRule):
    """Splits ``kernel [*kernel_size, filters, channels]`` and ``bias [filters]``."""

    name = "conv_transpose"
    description = "Conv1DTranspose, Conv2DTranspose, Conv3DTranspose: filters, or input channels"
    layers = ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")

    channels_axis, filters_axis = -1, -2


CONV_TRANSPOSE = ConvTransposeRule()
