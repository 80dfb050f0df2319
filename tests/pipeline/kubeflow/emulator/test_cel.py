"""Conditions in CEL, against what the language's definition says of them."""

import pytest

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow.emulator import cel

BLESSING = {
    "artifacts": [
        {"name": "7", "uri": "minio://b/k", "metadata": {"blessed": 1.0, "by": "me", "ok": True}}
    ]
}
INPUTS = {
    "parameterValues": {"n": 2.0, "text": "it's", "list": [1.0, 2.0], "map": {"a": 1.0}},
    "artifacts": {"_Evaluator.blessing": BLESSING, "empty": {"artifacts": []}},
}
ARTIFACT = "inputs.artifacts['_Evaluator.blessing'].artifacts[0]"
N = "inputs.parameter_values['n']"


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (f"({ARTIFACT}.metadata['blessed'] == 1.0)", True),
        (f"!(({ARTIFACT}.metadata['blessed'] == 1.0))", False),
        (
            f"({ARTIFACT}.metadata['blessed'] > 0.0) && ({ARTIFACT}.metadata['blessed'] < 1.0)",
            False,
        ),
        (f"{ARTIFACT}.metadata['by'] == 'me'", True),
        (f"{ARTIFACT}.uri == (('minio://' + 'b') + '/k')", True),
        (f"{ARTIFACT}.uri.startsWith('minio://') && {ARTIFACT}.uri.endsWith('k')", True),
        (f"{N} == 2", True),
        (f"int({N}) % 2 == 0 ? true : false", True),
        (f"string({N}) == '2'", True),
        (f"-{N} < -1.5", True),
        (f"{N} * 3.0 - 1.0 >= 5.0", True),
        ("7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1", True),
        ("inputs.parameter_values['text'] == \"it\\x27s\"", True),
        ("inputs.parameter_values['text'].matches('^i') || false", True),
        (f"{N} in inputs.parameter_values['list'] && !(3.0 in [1.0, 2.0])", True),
        ("'a' in inputs.parameter_values['map']", True),
        ("inputs.parameter_values['map'].a == 1.0", True),
        ("has(inputs.parameter_values['map'].b)", False),
        ("size(inputs.parameter_values['list']) == 2", True),
        ("parseJson('{\"a\": [1]}')['a'][0] == 1.0", True),
        ("1 == 1.0 && 'a' != 1 && 1.0 / 0.0 > 9.0", True),
        ("true || inputs.parameter_values['gone'] == 1.0", True),
        ("inputs.parameter_values['gone'] == 1.0 || true", True),
        ("inputs.parameter_values['gone'] == 1.0 && false", False),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", True),
        ("true ? false : true", False),
    ],
)
def test_an_expression(expression, holds):
    assert cel.condition(expression, INPUTS) is holds


@pytest.mark.parametrize(
    "expression",
    [
        "inputs.parameter_values['gone'] == 1.0",
        "inputs.artifacts['empty'].artifacts[0].uri == ''",
        "inputs.artifacts['empty'].artifacts[1.5].uri == ''",
        "1",
        "'true'",
        "1 + 1.0 == 2.0",
        "'a' < 1",
        "1 / 0 == 1",
        "!1",
        "1 && true",
        "true ?",
        "(true",
        "true true",
        "= true",
        "",
        "unknown == 1",
        "int('x') == 1",
        "parseJson('{') == 1",
        "size(1) == 1",
        "'a'.contains(1)",
        "[1, 2][2] == 1",
        "'a' in 1",
    ],
)
def test_the_driver_fails(expression):
    with pytest.raises(cel.CelError):
        cel.condition(expression, INPUTS)


def test_what_the_emulator_lacks():
    with pytest.raises(UserError) as caught:
        cel.condition("duration('1h') == duration('1h')", INPUTS)
    assert caught.value.value == "duration('1h') == duration('1h')"
