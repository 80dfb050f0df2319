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
        (f"dyn(1) == 1.0 && dyn('a') != 1 && 1.0 / 0.0 > 9.0 && {N} != 'a'", True),
        ("0x10 == 16 && 0x2u == 2u && r'\\d' == '\\\\d' && '\\101\\U0001F600' == 'A😀'", True),
        ("'a1'.matches(r'^a\\d$') && matches('a', 'A') == false && 'abc'.size() == 3", True),
        ("string(1000000.0) == '1e+06' && string(123456.0) == '123456'", True),
        ("string(0.0001) == '0.0001' && string(0.00001) == '1e-05'", True),
        ("string(1234567.5) == '1.2345675e+06' && string(-0.5) + string(true) == '-0.5true'", True),
        ("bool('True') && bool('t') && !bool('0')", True),
        (f"has({ARTIFACT}.uri) && has(inputs.parameter_values.n)", True),
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
        "true || gone == 1",
        "1 == 1.0",
        "'a' != 1",
        "[1] == [1.0]",
        "1u == 1",
        "1 < 1.0",
        "true || 1 + 'a' == 2",
        "true || 1.5 % 1.0 == 2.0",
        "true || (true ? 1 : 'a') == 1",
        "true || [1][1.0] == 1",
        f"true || {ARTIFACT}.uri == 5",
        f"true || {ARTIFACT}.address == ''",
        "true || inputs.parameters['n'] == 1",
        "true || size('a', 'b') == 1",
        "bool('yes')",
        "int(true) == 1",
        "string([1]) == ''",
        "has(inputs.parameter_values['map'])",
        "has(inputs.artifacts['empty'].artifacts[0].uri)",
        "has()",
        r"'a1'.matches('\d')",
    ],
)
def test_the_driver_fails(expression):
    with pytest.raises(cel.CelError):
        cel.condition(expression, INPUTS)


@pytest.mark.parametrize(
    "expression",
    [
        "duration('1h') == duration('1h')",
        "[1].exists(x, x > 0)",
        "{'a': 1}.a == 1",
        "b'a' == b'a'",
    ],
)
def test_what_the_emulator_lacks(expression):
    with pytest.raises(UserError) as caught:
        cel.condition(expression, INPUTS)
    assert caught.value.value == expression
