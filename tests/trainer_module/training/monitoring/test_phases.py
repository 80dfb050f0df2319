from stagecraft.trainer_module.training.monitoring.progress import Phases


def test_each_phase_has_its_own_seconds():
    now = 0.0
    phases = Phases(lambda: now)
    assert phases.seconds() == {}
    for phase, end in (("train", 5.0), ("evaluate", 7.0), ("train", 8.0), ("export", 20.0)):
        phases.begin(phase)
        now = end
    assert phases.seconds() == {"train": 6.0, "evaluate": 2.0, "export": 12.0}
    now = 21.0
    assert phases.seconds()["export"] == 13.0
