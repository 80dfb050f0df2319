"""The language model's features, loss, metrics and export."""

import itertools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from transformed import serialized, transformed

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components.example_gen.kinds.text import sentences
from stagecraft.schemas import features
from stagecraft.trainer_module.data.tasks.kinds.language_model import LANGUAGE_MODEL, LanguageModel
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training import assets
from stagecraft.trainer_module.training.export import export

LENGTH, SIZE, NEW = 16, 40, 5
TRAIN = TrainSettings(model="transformer_1_16_2")
PLAIN = """
import json, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("stagecraft", "tensorflow_transform", "tfx", "tfx_bsl"):
            raise ImportError(name + " is not for plain TensorFlow")
sys.meta_path.insert(0, Blocker())
import tensorflow as tf
signature = tf.saved_model.load(sys.argv[1]).signatures["continue_text"]
def continued(prompts, temperature, seed):
    found = signature(
        prompts=tf.constant(prompts),
        temperature=tf.constant(temperature),
        seed=tf.constant(seed, tf.int64),
    )
    return [text.decode() for text in found["continuations"].numpy()]
prompts = json.loads(sys.argv[2])
print(json.dumps([continued(prompts, *how) for how in ((0.0, 0), (1.0, 1), (1.0, 1), (1.0, 2))]))
"""


def _task(**arguments):
    return LanguageModel(LENGTH, SIZE, new_tokens=NEW, **arguments)


def _windows(count):
    text = " ".join(itertools.islice(sentences(), 40))
    return [text[start : start + LENGTH + 1] for start in range(0, count * LENGTH, LENGTH)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    rows = [
        {features.TEXT: text.encode(), features.ID: index}
        for index, text in enumerate(_windows(30))
    ]
    folder = tmp_path_factory.mktemp("tokens")
    return transformed(_task(), LANGUAGE_MODEL.schema_file, rows, folder)


@pytest.fixture(scope="module")
def model():
    return assemble(TRAIN, _task().sample_arguments, task=_task())


def test_tokens_are_those_of_the_vocabulary(graph):
    vocabulary = ["", "", *(each.decode() for each in graph.vocabulary_by_name(features.TOKENS))]
    window = _windows(1)[0]
    texts = tf.constant([window.encode(), b"a\n  \tcat", b"\xc3\xa9", b""])
    tokens = graph.transform_features_layer()({features.TEXT: texts})[features.TOKENS].numpy()
    assert tokens.shape == (4, LENGTH + 1)
    shown = ["".join(vocabulary[token] for token in row) for row in tokens]
    assert shown[:2] == [window, "a cat"]
    assert tokens[1, 5:].tolist() == [0] * (LENGTH - 4)
    assert tokens[2, :2].tolist() == [1, 0]
    assert not tokens[3].any()


def test_words(tmp_path):
    task = _task(unit="words")
    rows = [{features.TEXT: b"the cat sees the dog", features.ID: 0}]
    found = transformed(task, task.schema_file, rows, tmp_path)
    assert found.vocabulary_by_name(features.TOKENS)[0] == b"the"
    texts = tf.constant([b" the  cat\n the unicorn"])
    tokens = found.transform_features_layer()({features.TEXT: texts})[features.TOKENS].numpy()
    assert tokens[0, [0, 2, 3, 4]].tolist() == [2, 2, 1, 0]


def test_loss_and_perplexity_do_not_count_padding(model):
    task = _task()
    tokens = np.random.default_rng(0).integers(1, SIZE, (3, LENGTH + 1))
    tokens[1, 5:] = 0
    batch = task.batch({features.TOKENS: tf.constant(tokens)}, tf.ones([3]))
    outputs = model(batch.inputs)
    each = keras.losses.sparse_categorical_crossentropy(batch.targets, outputs, from_logits=True)
    each = np.asarray(each, np.float64)
    means = [each[0].mean(), each[1, :4].mean(), each[2].mean()]
    losses = task.losses(outputs, batch.targets, tf.float32, None)
    np.testing.assert_allclose(losses, means, rtol=1e-6)
    _, perplexity = task.metrics()
    sums = perplexity.sums(outputs, batch.targets, batch.weights, tf.float64).numpy()
    total = np.exp((each[0].sum() + each[1, :4].sum() + each[2].sum()) / (2 * LENGTH + 4))
    assert perplexity.result(sums) == pytest.approx(total, rel=1e-6)
    assert not perplexity.higher_is_better


def test_a_token_sees_only_those_before(model):
    tokens = np.random.default_rng(0).integers(2, SIZE, (1, LENGTH))
    changed = tokens.copy()
    changed[0, 7] = (changed[0, 7] - 1) % SIZE
    one, other = (np.asarray(model(each)) for each in (tokens, changed))
    np.testing.assert_allclose(one[0, :7], other[0, :7], atol=1e-5)
    assert np.abs(one[0, 7] - other[0, 7]).max() > 1e-3


def test_the_embedding_is_one_weight(model):
    shapes = [tuple(variable.shape) for variable in model.trainable_variables]
    assert shapes.count((SIZE, 16)) == 1


@pytest.mark.slow
def test_the_export_continues_a_prompt_in_plain_tensorflow(graph, model, tmp_path):
    task = _task()
    weights = {variable.path: variable.numpy() for variable in model.variables}
    export(tmp_path / "model", model, weights, graph, task, task.schema_file)
    prompts = ["the cat ", "a", "", "the quiet bird near the river sees"]
    command = [sys.executable, "-I", "-c", PLAIN, tmp_path / "model", json.dumps(prompts)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    greedy, drawn, again, other = json.loads(ran.stdout)
    assert [len(text) for text in greedy] == [NEW] * 4
    samples = json.loads((tmp_path / "model" / assets.SAMPLES).read_text())
    frequent = [token.decode() for token in graph.vocabulary_by_name(features.TOKENS)]
    assert list(samples) == [token for token in frequent if token.strip()][:4]
    assert all(len(text) == NEW for text in samples.values())
    assert drawn == again != other

    vocabulary = ["", "", *(each.decode() for each in graph.vocabulary_by_name(features.TOKENS))]
    for prompt, found in zip(prompts, greedy, strict=True):
        tokens = [vocabulary.index(token) for token in prompt]
        for _ in range(NEW):
            window = tokens[-LENGTH:]
            padded = [*window, *[0] * (LENGTH - len(window))]
            logits = np.asarray(model(np.array([padded])))[0, max(len(window) - 1, 0)]
            tokens.append(2 + int(logits[2 : len(vocabulary)].argmax()))
        assert "".join(vocabulary[token] for token in tokens[-NEW:]) == found

    loaded = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    example = serialized({features.TEXT: b"the cat"})
    assert loaded(examples=tf.constant([example]))["logits"].shape == (1, LENGTH, SIZE)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({"length": 0}, "task.args.length"),
        ({"vocabulary_size": 2}, "task.args.vocabulary_size"),
        ({"unit": "syllables"}, "task.args.unit"),
        ({"new_tokens": 0}, "task.args.new_tokens"),
        ({"length": 10.5}, "task.args.length"),
        ({"length": "10"}, "task.args.length"),
    ],
)
def test_arguments_out_of_range(arguments, setting):
    with pytest.raises(SettingError) as caught:
        LanguageModel(**arguments)
    assert caught.value.setting == setting


@pytest.mark.parametrize("name", ["transformer_0_16_2", "transformer_2_16_3"])
def test_sizes_that_no_transformer_has(name):
    with pytest.raises(ValueError, match="transformer_"):
        TrainSettings(model=name)


def test_outputs_must_be_logits_of_each_token():
    with pytest.raises(UserError, match="\\(3, 40\\)"):
        _task().check_outputs("nets:build", np.zeros((3, SIZE)), _task().sample_arguments)
