import pytest

from stagecraft.common.errors import SettingError
from stagecraft.contrib.goodput import Faults, parse_faults


def test_what_is_not_named_keeps_its_default():
    assert parse_faults("mtbf=5000, restart=30") == Faults(mtbf=5000, restart=30)
    assert parse_faults("jitter=0") == Faults(jitter=0)
    assert parse_faults("") == Faults()


@pytest.mark.parametrize(
    ("text", "value", "use"),
    [
        ("mtbv=3", "mtbv", "mtbf"),
        ("mtbf=0", "mtbf=0", "mtbf=6334"),
        ("mtbf", "mtbf", "mtbf=6334"),
        ("restart=-1", "restart=-1", "restart=600"),
        ("checkpoint=nan", "checkpoint=nan", "checkpoint=60"),
        ("jitter=-0.1", "jitter=-0.1", "jitter=0.02"),
        ("mtbf=inf", "mtbf=inf", "mtbf=6334"),
        ("3", "3", "NAME=NUMBER, such as mtbf=6334,restart=600,checkpoint=60,jitter=0.02"),
    ],
)
def test_refusals(text, value, use):
    with pytest.raises(SettingError) as caught:
        parse_faults(text)
    assert (caught.value.setting, caught.value.value) == ("--faults", value)
    assert caught.value.suggestion == use
