import pytest
import tensorflow as tf

from stagecraft.trainer_module.training.monitoring.profile import Profile


@pytest.mark.parametrize(
    ("steps", "first", "calls", "watched"),
    [
        ("", 0, [(1, 4), (5, 8), (9, 12)], []),
        ("3:3", 0, [(1, 2), (3, 3), (4, 7), (8, 11), (12, 12)], [(2, 3)]),
        ("2:8", 0, [(1, 1), (2, 5), (6, 8), (9, 12)], [(1, 8)]),
        ("2:8", 5, [(6, 8), (9, 12)], [(5, 8)]),  # goes on
        ("2:8", 8, [(9, 12)], []),
        ("11:99", 8, [(9, 10), (11, 12)], [(10, 12)]),  # the training ends first
    ],
)
def test_which_steps(steps, first, calls, watched, monkeypatch):
    step, begun, found = first, 0, []

    def start(folder: str) -> None:
        nonlocal begun
        begun = step

    monkeypatch.setattr(tf.profiler.experimental, "start", start)
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: found.append((begun, step)))
    made = []
    with Profile(steps, "folder") as profile:
        while step < 12:
            count = profile.before(step, min(4, 12 - step))
            made.append((step + 1, step + count))
            step += count
            profile.after(step)
    assert (made, found) == (calls, watched)


def test_tensorboard_finds_it(tmp_path):
    with Profile("1:1", str(tmp_path)) as profile:
        assert profile.before(0, 5) == 1
        tf.linalg.matmul(tf.ones([8, 8]), tf.ones([8, 8]))
        profile.after(1)
    [file] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert file.stat().st_size > 0
