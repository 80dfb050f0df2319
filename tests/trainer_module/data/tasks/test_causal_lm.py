"""The continuation of prompts, by a model of fixed logits."""

import types

import hub_presets
import pytest

from stagecraft.trainer_module import registries

PROMPTS = ["", "the food was", "the food was bad but the room was fine again"]


def continued(word, args):
    """Continuations of the prompts by a model that always says the word."""
    import tensorflow as tf

    task = registries.task("causal_lm", args)
    size = task.sample_arguments["vocabulary_size"]
    token = task.resources()[0].tokenizer.token_to_id(word)

    def call(inputs):
        shape = tf.shape(inputs["token_ids"])
        return tf.one_hot(tf.fill(shape, token), size)

    served = types.SimpleNamespace(model=object(), call=call)
    function, specs = task.plain_signatures(served)["continue_text"]
    traced = tf.function(function, autograph=False).get_concrete_function(**specs)
    made = traced(
        prompts=tf.constant(PROMPTS), temperature=tf.constant(0.0), seed=tf.constant(0, tf.int64)
    )
    return [text.decode() for text in made["continuations"].numpy()]


def qwen(folder):
    """A tokenizer without a start token, saved; the preset has no model."""
    from stagecraft.trainer_module.data.tasks.texts import sample

    byte_pairs = sample.gpt2_tokenizer(hub_presets.hub())
    tokenizer = hub_presets.hub().models.QwenTokenizer(
        vocabulary=dict(byte_pairs.vocabulary), merges=list(byte_pairs.merges)
    )
    assert tokenizer.start_token_id is None
    tokenizer.save_to_preset(str(folder))


@pytest.mark.parametrize("new_tokens", [1, 7])
@pytest.mark.parametrize("has_start", [True, False])
def test_prompts_of_any_length_are_continued_by_all_new_tokens(tmp_path, has_start, new_tokens):
    hub_presets.hub()
    args = {"length": 8, "new_tokens": new_tokens}
    if not has_start:
        qwen(tmp_path)
        args |= {"text": "text", "preset": str(tmp_path)}
    assert continued("good", args) == ["good" * new_tokens] * len(PROMPTS)
