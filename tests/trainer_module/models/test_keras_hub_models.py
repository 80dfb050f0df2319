"""Models of KerasHub by name: their sizes, initial weights and adapters, and what is refused."""

import importlib.util
import pathlib
import subprocess
import sys

import hub_presets
import numpy as np
import pytest

from stagecraft.common import lazy
from stagecraft.common.errors import SettingError, UserError
from stagecraft.trainer_module import hub, registries
from stagecraft.trainer_module.settings import TrainSettings

TEXT = {"text": "text", "label": "label", "label_vocabulary": ["bad", "good"], "length": 24}
BACKBONE = {name: size for name, size in hub_presets.BERT.items() if name != "vocabulary_size"}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Folder of a preset, and its model."""
    folder = tmp_path_factory.mktemp("bert")
    return folder, hub_presets.bert(folder)


def assembled(model, task="text_classification", args=None, **train):
    from stagecraft.trainer_module.models.assemble import assemble

    found = registries.task(task, args)
    settings = TrainSettings(model=f"keras_hub:{model}", **train)
    return assemble(settings, found.sample_arguments, task=found)


def values(model):
    return {weight.path: np.asarray(weight.value) for weight in model.weights}


def test_without_keras_hub_the_error_says_how_to_install_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "keras_hub" else find(name)
    )
    with pytest.raises(SettingError) as raised:
        hub.check_class("keras_hub:BertTextClassifier")
    assert raised.value.setting == "train.model"
    assert lazy.install("hub") in raised.value.suggestion
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(SettingError) as raised:
        hub.library("task.args.preset", "folder")
    assert raised.value.setting == "task.args.preset"
    assert lazy.install("hub") in raised.value.suggestion


@pytest.mark.parametrize(
    ("given", "near"),
    [("BertTextClasifier", "BertTextClassifier"), ("GPT2CausaLM", "GPT2CausalLM")],
)
def test_an_unknown_class_is_refused_with_the_nearest(given, near):
    if importlib.util.find_spec("keras_hub") is None:
        pytest.skip("needs KerasHub: pip install '.[hub]'")
    program = (
        "import sys; from stagecraft.trainer_module import hub\n"
        "try: hub.check_class(sys.argv[1])\n"
        "except Exception as error: print(error.suggestion)\n"
        "print('tensorflow' in sys.modules or 'keras_hub' in sys.modules)"
    )
    words = [sys.executable, "-c", program, f"keras_hub:{given}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"keras_hub:{near}", "False"]


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({"text": "text", "label": "label", "num_classes": 2}, "task.args.preset"),
        ({**TEXT, "text": [], "preset": "x"}, "task.args.text"),
        ({**TEXT, "length": 1, "preset": "x"}, "task.args.length"),
        ({**TEXT, "preset": 7}, "task.args.preset"),
        ({**TEXT, "preset": "x", "download": "no"}, "task.args.download"),
        ({"label_vocabulary": ["bad", "good"]}, "task.args.label_vocabulary"),
        ({**TEXT, "preset": "x", "label": "token_ids"}, "task.args.label"),
        ({**TEXT, "preset": "x", "weight": "padding_mask"}, "task.args.weight"),
    ],
)
def test_a_task_without_a_tokenizer_or_text_is_refused(args, setting):
    with pytest.raises(SettingError) as raised:
        registries.task("text_classification", args)
    assert raised.value.setting == setting


@pytest.mark.parametrize(
    ("args", "setting"),
    [
        ({"text": "text"}, "task.args.preset"),
        ({"text": "text", "preset": "x", "length": 8, "new_tokens": 8}, "task.args.new_tokens"),
        ({"text": ["a", "b"], "preset": "x"}, "task.args.text"),
    ],
)
def test_a_language_model_without_a_place_for_its_text_is_refused(args, setting):
    with pytest.raises(SettingError) as raised:
        registries.task("causal_lm", args)
    assert raised.value.setting == setting


@pytest.mark.parametrize("content", [None, {}, {"notes.txt": "hello"}])
def test_a_preset_that_is_none_is_refused_without_a_download(tmp_path, content):
    folder = tmp_path / "preset"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
    for task in ("text_classification", "causal_lm"):
        args = (
            {**TEXT, "preset": str(folder)}
            if task != "causal_lm"
            else {
                "text": "text",
                "preset": str(folder),
            }
        )
        with pytest.raises(SettingError) as raised:
            _ = registries.task(task, args).files
        assert (raised.value.setting, raised.value.value) == ("task.args.preset", str(folder))


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "vocab.txt"])
def test_the_files_of_a_tokenizer_are_known_by_their_names(tmp_path, name):
    wanted = [tmp_path / each for each in ("config.json", name)]
    for file in (*wanted, tmp_path / "model.safetensors"):
        file.write_text("{}")
    task = registries.task("causal_lm", {"text": "text", "preset": str(tmp_path)})
    assert task.files == sorted(map(str, wanted))


@pytest.mark.parametrize("name", ["Task", "Backbone", "BertTokenizer"])
def test_a_class_that_is_no_model_is_refused(name):
    hub_presets.hub()
    with pytest.raises(SettingError) as raised:
        hub.check_class(f"keras_hub:{name}")
    assert raised.value.setting == "train.model"


@pytest.mark.slow
class TestWithKerasHub:
    """One process imports KerasHub once."""

    def test_a_preset_of_the_task_gives_the_sizes(self, bert):
        folder, _ = bert
        for name in ("BertTextClassifier", "TextClassifier", "BertBackbone"):
            model = assembled(name, args={**TEXT, "preset": str(folder)})
            assert type(model).__name__ == "BertTextClassifier" and not model.compiled
            assert model.backbone.num_layers == 2 and model.preprocessor is None

    def test_a_configuration_gives_the_sizes(self, bert):
        args = {**TEXT, "preset": str(bert[0]), "label_vocabulary": ["a", "b", "c"]}
        given = {"backbone": {**BACKBONE, "num_layers": 1}, "dropout": 0.3}
        model = assembled("BertTextClassifier", args=args, model_args=given)
        assert model.output.shape[-1] == 3 and model.dropout == 0.3
        assert model.backbone.num_layers == 1
        assert model.backbone.vocabulary_size == bert[1].backbone.vocabulary_size

    @pytest.mark.parametrize(
        ("model", "given", "setting", "value", "suggestion"),
        [
            ("BertTextClassifier", {"dropuot": 1}, "train.model_args", "dropuot", "dropout"),
            (
                "BertTextClassifier",
                {"backbone": {**BACKBONE, "num_layer": 1}},
                "train.model_args.backbone",
                "num_layer",
                "num_layers",
            ),
            (
                "BertTextClassifier",
                {"backbone": {"num_layers": 1}},
                "train.model_args.backbone",
                None,
                "num_heads: VALUE",
            ),
            ("BertTextClassifier", {"backbone": 3}, "train.model_args.backbone", 3, None),
            (
                "BertTextClassifier",
                {"activation": "softmax"},
                "train.model_args.activation",
                "softmax",
                None,
            ),
            ("BertTextClassifier", {"lora_rank": 0}, "train.model_args.lora_rank", 0, None),
            (
                "BertTextClassifier",
                {"lora_rank": 2, "lora_targets": ["qeury"]},
                "train.model_args.lora_targets",
                "qeury",
                None,
            ),
            (
                "BertTextClassifier",
                {"preset": "nowhere"},
                "train.model_args.preset",
                "nowhere",
                None,
            ),
            ("TextClassifier", {"backbone": BACKBONE}, "train.model", None, None),
            ("RobertaTextClassifier", {}, "task.args.preset", None, None),
            ("BertMaskedLM", {}, "train.model", None, None),
            (
                "BertTextClassifier",
                {"backbone": {**BACKBONE, "num_heads": 0}},
                "train.model_args.backbone",
                None,
                None,
            ),
            ("DistilBertTextClassifier", {"backbone": BACKBONE}, "train.model", None, None),
            (
                "BertTextClassifier",
                {"backbone": {**BACKBONE, "max_sequence_length": 8}},
                "task.args.length",
                24,
                "8",
            ),
            (
                "BertTextClassifier",
                {"backbone": BACKBONE, "load_weights": True},
                "train.model_args.load_weights",
                True,
                None,
            ),
            (
                "BertTextClassifier",
                {"load_weights": "no"},
                "train.model_args.load_weights",
                "no",
                None,
            ),
            ("BertTextClassifier", {"download": True}, "train.model_args.download", True, None),
            ("BertTextClassifier", {"preset": 7}, "train.model_args.preset", 7, None),
            (
                "BertTextClassifier",
                {"lora_rank": 2, "lora_targets": "query"},
                "train.model_args.lora_targets",
                "query",
                None,
            ),
            (
                "BertTextClassifier",
                {"lora_rank": 2, "lora_targets": ["bert_backbone"]},
                "train.model_args.lora_targets",
                "bert_backbone",
                None,
            ),
        ],
    )
    def test_wrong_arguments_are_named(self, bert, model, given, setting, value, suggestion):
        args = {**TEXT, "preset": str(bert[0])}
        with pytest.raises(UserError) as raised:
            assembled(model, args=args, model_args=given)
        assert raised.value.setting == setting
        assert value is None or raised.value.value == value
        assert suggestion is None or raised.value.suggestion == suggestion

    def test_a_base_class_without_sizes_suggests_a_class_that_takes_them(self, bert):
        with pytest.raises(SettingError) as raised:
            assembled("TextClassifier")
        assert raised.value.setting == "train.model_args"
        assert "TextClassifier with" in raised.value.suggestion

    def test_the_task_gives_the_number_of_positions(self, bert):
        sizes = {name: size for name, size in BACKBONE.items() if name != "max_sequence_length"}
        args = {**TEXT, "preset": str(bert[0]), "length": 20}
        model = assembled("BertTextClassifier", args=args, model_args={"backbone": sizes})
        assert model.backbone.max_sequence_length == 20
        assert registries.task("text_classification", {"length": 48}).sample_arguments[
            "length"
        ] == (48)

    def test_a_downloaded_preset_keeps_its_head(self, bert, monkeypatch):
        from keras_hub.src.utils import preset_utils

        folder, model = bert
        found, name = preset_utils.get_file, "hf://me/bert"
        monkeypatch.setattr(
            preset_utils,
            "get_file",
            lambda preset, path: found(str(folder) if preset == name else preset, path),
        )
        given = {"preset": name, "download": True, "load_weights": True}
        args = {**TEXT, "preset": str(folder)}
        read = values(assembled("BertTextClassifier", args=args, model_args=given))
        for path, value in values(model).items():
            np.testing.assert_array_equal(read[path], value)

    def test_files_of_another_preset_are_not_those_of_a_model(self, bert, tmp_path):
        from stagecraft.trainer_module.models import build_model

        hub_presets.bert(tmp_path)
        found = []
        for folder in (bert[0], tmp_path):
            task = registries.task("text_classification", {**TEXT, "preset": str(folder)})
            name = "keras_hub:BertTextClassifier"
            found.append(build_model.files_read(name, task.sample_arguments, task))
        for files, folder in zip(found, (bert[0], tmp_path), strict=True):
            assert files and all(pathlib.Path(file).is_relative_to(folder) for file in files)

    def test_adapters_of_embeddings(self, bert):
        folder, model = bert
        found = assembled(
            "BertTextClassifier",
            args={**TEXT, "preset": str(folder)},
            model_args={"lora_rank": 2, "lora_targets": ["token_embedding"]},
            initial_weights=str(folder),
        )
        read, wanted = values(found), values(model)
        assert {path.split("/")[-1] for path in read.keys() - wanted.keys()} == {
            "lora_embeddings_a",
            "lora_embeddings_b",
        }
        for path, value in wanted.items():
            np.testing.assert_array_equal(read[path], value)

    def test_a_mixture_of_experts(self, tmp_path):
        """Its layers have no names of their own; the loss that balances it is no mean."""
        from stagecraft.trainer_module.engines import divisibility
        from stagecraft.trainer_module.models.assemble import assemble
        from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
        from stagecraft.trainer_module.pipeline_parallel.stage import Stage
        from stagecraft.trainer_module.settings import ParallelSettings

        task = registries.task("causal_lm", {"length": 8, "new_tokens": 4})
        saved = hub_presets.hub().models.MixtralBackbone(
            vocabulary_size=task.sample_arguments["vocabulary_size"],
            num_layers=2,
            num_query_heads=2,
            num_key_value_heads=1,
            hidden_dim=16,
            intermediate_dim=32,
            num_experts=4,
        )
        saved.save_to_preset(str(tmp_path))
        train = TrainSettings(
            model="keras_hub:MixtralCausalLM",
            model_args={"preset": str(tmp_path)},
            initial_weights=str(tmp_path),
        )
        model = assemble(train, task.sample_arguments, precision="mixed_bfloat16", task=task)
        assert model.backbone.compute_dtype == "bfloat16"
        for found, wanted in zip(model.backbone.weights, saved.weights, strict=True):
            np.testing.assert_array_equal(np.asarray(found.value), np.asarray(wanted.value))
        model = assemble(train, task.sample_arguments, task=task)
        with pytest.raises(ModelRefusedError) as raised:
            divisibility.check([Stage(model, parts=2)], ParallelSettings())
        assert "sparse" in raised.value.part or "moe" in raised.value.part

    def test_both_a_preset_and_a_configuration_are_refused(self, bert):
        given = {"backbone": BACKBONE, "preset": str(bert[0])}
        with pytest.raises(SettingError) as raised:
            assembled("BertTextClassifier", args={**TEXT, "preset": str(bert[0])}, model_args=given)
        assert raised.value.setting == "train.model_args.backbone"

    @pytest.mark.parametrize("kind", ["folder", "model.keras", "model.weights.h5"])
    @pytest.mark.parametrize("lora", [False, True])
    def test_initial_weights_of_each_kind(self, bert, tmp_path, kind, lora):
        folder, model = bert
        source = folder if kind == "folder" else tmp_path / kind
        if kind == "model.keras":
            model.save(source)
        elif kind != "folder":
            model.save_weights(source)
        given = {"lora_rank": 2} if lora else {}
        found = assembled(
            "BertTextClassifier",
            args={**TEXT, "preset": str(folder)},
            model_args=given,
            initial_weights=str(source),
        )
        read, wanted = values(found), values(model)
        adapters = {path for path in read if "lora_kernel" in path}
        assert read.keys() - adapters == wanted.keys() and bool(adapters) == lora
        for path, value in wanted.items():
            np.testing.assert_array_equal(read[path], value)
        trained = {weight.path for weight in found.trainable_weights}
        assert adapters <= trained
        frozen = {path for path in wanted if path.endswith(("kernel", "embeddings"))} - {
            "logits/kernel"
        }
        assert bool(frozen & trained) != lora

    def test_a_preset_without_a_head_leaves_the_head_to_a_skip(self, bert, tmp_path):
        folder, model = bert
        model.backbone.save_to_preset(str(tmp_path))
        args = {**TEXT, "preset": str(folder)}
        from stagecraft.trainer_module.models.initial_weights.loading import MismatchError

        with pytest.raises(MismatchError) as raised:
            assembled("BertTextClassifier", args=args, initial_weights=str(tmp_path))
        assert all(path.startswith("logits") for path in raised.value.missing)
        found = assembled(
            "BertTextClassifier",
            args=args,
            initial_weights=str(tmp_path),
            initial_weights_skip=("logits",),
        )
        path = "token_embedding/embeddings"
        np.testing.assert_array_equal(values(found)[path], values(model)[path])

    def test_safetensors_of_hugging_face(self, bert, tmp_path):
        numpy = pytest.importorskip("safetensors.numpy", reason="needs safetensors")
        saved = hub_presets.bert(tmp_path / "saved", max_sequence_length=512)
        tensors = _hugging_face(saved.backbone)
        numpy.save_file(tensors, tmp_path / "model.safetensors")
        sizes = bert[1].backbone
        config = {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "vocab_size": sizes.vocabulary_size,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "hidden_size": 16,
            "intermediate_size": 32,
            "max_position_embeddings": 512,
        }
        import json

        (tmp_path / "config.json").write_text(json.dumps(config))
        found = assembled(
            "BertTextClassifier",
            args={**TEXT, "preset": str(bert[0])},
            model_args={"preset": str(tmp_path)},
            initial_weights=str(tmp_path),
            initial_weights_skip=("logits",),
        )
        path = "token_embedding/embeddings"
        np.testing.assert_array_equal(values(found)[path], values(saved)[path])

    def test_load_weights_is_keras_hubs_own_way(self, bert):
        folder, model = bert
        args = {**TEXT, "preset": str(folder)}
        found = assembled("BertTextClassifier", args=args, model_args={"load_weights": True})
        for path, value in values(model).items():
            np.testing.assert_array_equal(values(found)[path], value)

    def test_a_preset_of_another_precision_takes_that_of_the_run(self, bert):
        from stagecraft.trainer_module.models.assemble import assemble

        task = registries.task("text_classification", {**TEXT, "preset": str(bert[0])})
        train = TrainSettings(model="keras_hub:BertTextClassifier")
        model = assemble(train, task.sample_arguments, precision="mixed_bfloat16", task=task)
        assert model.backbone.compute_dtype == model.output_dense.compute_dtype == "bfloat16"

    def test_patterns_freeze_parts_and_divide_the_rate(self, bert):
        model = assembled(
            "BertTextClassifier",
            args={**TEXT, "preset": str(bert[0])},
            frozen=("embedding", "transformer_layer_0/"),
            learning_rate_multipliers={"transformer_layer_1/": 0.1},
        )
        trained = {weight.path.split("/")[0] for weight in model.trainable_weights}
        assert trained == {"transformer_layer_1", "pooled_dense", "logits"}

    def test_pictures_by_the_converter_of_a_preset(self, tmp_path):
        hub_presets.vit(tmp_path)
        task = registries.task("image_classification", {"preset": str(tmp_path)})
        from stagecraft.schemas.features import SAMPLE
        from stagecraft.trainer_module.models.assemble import assemble

        arguments = task.model_arguments(SAMPLE.schema_file)
        assert tuple(arguments["input_shape"]) == (16, 16, 3)
        train = TrainSettings(model="keras_hub:ImageClassifier", initial_weights=str(tmp_path))
        model = assemble(train, arguments, task=task)
        assert type(model).__name__ == "ViTImageClassifier"
        import tensorflow as tf

        pixels = tf.cast(tf.fill([2, 32, 32, 3], 255), tf.uint8)
        converted = hub.image_converter(str(tmp_path), False)(pixels)
        np.testing.assert_allclose(converted, np.ones((2, 16, 16, 3)), atol=1e-5)

    def test_a_damaged_preset_is_named(self, bert, tmp_path):
        import shutil

        broken = tmp_path / "broken"
        shutil.copytree(bert[0], broken)
        (broken / "model.weights.h5").write_bytes(b"no weights")
        with pytest.raises(UserError) as raised:
            assembled(
                "BertTextClassifier",
                args={**TEXT, "preset": str(bert[0])},
                initial_weights=str(broken),
            )
        assert raised.value.setting == "train.initial_weights"
        (broken / "config.json").write_text("{")
        with pytest.raises(UserError) as raised:
            assembled("BertTextClassifier", args={**TEXT, "preset": str(broken)})
        assert raised.value.setting == "task.args.preset"

    def test_a_function_of_the_users_gets_the_arguments(self, monkeypatch, tmp_path, bert):
        (tmp_path / "my_nets.py").write_text(
            "import keras\n"
            "def build(inputs, length, vocabulary_size, outputs, width=4):\n"
            "    given = {n: keras.Input((length,), name=n, dtype='int32') for n in inputs}\n"
            "    table = keras.layers.Embedding(vocabulary_size, width)\n"
            "    hidden = keras.layers.Add()([table(each) for each in given.values()])\n"
            "    hidden = keras.layers.GlobalAveragePooling1D()(hidden)\n"
            "    return keras.Model(given, keras.layers.Dense(outputs)(hidden))\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        from stagecraft.trainer_module.models.assemble import assemble

        task = registries.task("text_classification", {**TEXT, "preset": str(bert[0])})

        def made(**given):
            train = TrainSettings(model="my_nets:build", model_args=given)
            return assemble(train, task.sample_arguments, task=task)

        assert made(width=6).layers[-1].kernel.shape[0] == 6
        for name, near in (("widht", "width"), ("outputs", None)):
            with pytest.raises(SettingError) as raised:
                made(**{name: 3})
            assert (raised.value.setting, raised.value.value) == ("train.model_args", name)
            assert near is None or raised.value.suggestion == near


def _hugging_face(backbone):
    """The weights of a BERT under the names of Hugging Face, as KerasHub's converter reads them."""
    found = {}

    class Recorder:
        def port_weight(self, keras_variable, hf_weight_key, hook_fn=None):
            value = np.asarray(keras_variable.value)
            if hook_fn is not None:  # transposes and reshapes: the inverse of a kernel
                value = value.reshape(value.shape[0], -1) if value.ndim == 3 else value
                value = np.ascontiguousarray(value.T)
            found[hf_weight_key] = value

    from keras_hub.src.utils.transformers import convert_bert

    convert_bert.convert_weights(backbone, Recorder(), {})
    return found


def test_model_args_have_no_effect_on_a_family():
    task = registries.task("image_classification")
    from stagecraft.trainer_module.models import build_model

    with pytest.raises(SettingError) as raised:
        build_model.build("cnn", task.sample_arguments, task, {"width": 3})
    assert raised.value.setting == "train.model_args"
    assert pathlib.Path(hub.__file__).is_file()
