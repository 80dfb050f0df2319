import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.engines.collectives import Group


@pytest.mark.parametrize("hint", ["auto", "ring"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums(size, hint):
    devices = [f"CPU:{index + 1}" for index in range(size)]
    group = Group(devices, hint)
    draw = np.random.RandomState(0)
    shapes = [(3, 4), (), (0,), (7,), (5,)]
    dtypes = ["float32", "float32", "float32", "float64", "float32"]
    values = [
        [np.asarray(draw.randn(*shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        for _ in devices
    ]

    @tf.function
    def reduce() -> list[list[tf.Tensor]]:
        sums = []
        for replica, device in enumerate(devices):
            with tf.device(device):
                sums.append(group.all_reduce(replica, list(map(tf.constant, values[replica]))))
        return sums

    for _ in range(3):
        first, *others = reduce()
        for index, sum_ in enumerate(first):
            expected = np.sum([of_replica[index] for of_replica in values], axis=0)
            assert sum_.dtype == dtypes[index]
            assert sum_.shape == shapes[index]
            # Two additions, in any order.
            unit = np.finfo(dtypes[index]).eps
            np.testing.assert_allclose(sum_, expected, rtol=0, atol=8 * unit)
            for other in others:
                assert other[index].numpy().tobytes() == sum_.numpy().tobytes()


def test_two_groups_do_not_meet():
    groups = [Group(["CPU:0", "CPU:1"], "auto"), Group(["CPU:2", "CPU:3", "CPU:4"], "auto")]

    @tf.function
    def reduce() -> list[tf.Tensor]:
        sums = []
        for group, first, size in zip(groups, (0, 2), (2, 3), strict=True):
            for replica in range(size):
                with tf.device(f"CPU:{first + replica}"):
                    sums += group.all_reduce(replica, [tf.constant([float(first + replica)])])
        return sums

    assert [float(value[0]) for value in reduce()] == [1, 1, 9, 9, 9]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_one_group_sums_whatever_it_is_given(dtype):
    devices = ["CPU:0", "CPU:1"]
    group = Group(devices, "auto")
    for size in (3, 5, 3):

        @tf.function
        def reduce(size: int = size) -> list[tf.Tensor]:
            sums = []
            for replica, device in enumerate(devices):
                with tf.device(device):
                    sums += group.all_reduce(replica, [tf.fill([size], tf.cast(1, dtype))])
            return sums

        assert [value.numpy().tolist() for value in reduce()] == [[2] * size] * 2


def test_nothing_to_sum():
    assert Group(["CPU:0", "CPU:1"], "auto").all_reduce(0, []) == []
