import pytest
from PIL import Image

from stagecraft.pipeline import create_pipeline
from stagecraft.pipeline.settings import PipelineSettings, SettingsError, load
from stagecraft.trainer_module.data import schema_reader

CSV = "data.example_gen=tfx.components.CsvExampleGen"
TABLE = ("task.name=regression", "task.args={features: {a: numeric}, label: b}")


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ((CSV, "data.dataset=cifar100", "data.label=coarse"), "data.dataset"),
        ((CSV, "data.shards=3"), "data.shards"),
        ((CSV, "data.source=download"), "data.source"),
        ((CSV,), "data.schema_file"),  # pictures without a schema
        ((CSV, "data.infer_schema=true"), "data.infer_schema"),  # pictures need the classes
        (("data.infer_schema=true",), "data.infer_schema"),
        (("data.infer_schema=true", "data.schema_file=a.pbtxt"), "data.infer_schema"),
        (("data.example_gen_args={input_base: a}",), "data.example_gen_args"),
        (("data.train_split=training",), "data.train_split, val_split, eval_split"),
        (TABLE, "task.name"),
        ((*TABLE, CSV), "data.schema_file"),
        (("task.name=regression", "data.source=houses.csv"), "data.source"),
        (
            ("task.name=regression", "data.val_fraction=0.5", "data.eval_fraction=0.5"),
            "data.eval_fraction",
        ),
        (
            ("task.name=regression", "task.args={features: {id: numeric}, label: label}"),
            "task.name",
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides, setting):
    with pytest.raises(SettingsError) as caught:
        load(None, overrides)
    assert caught.value.setting == setting


def test_a_table_of_a_user():
    settings = load(None, (*TABLE, CSV, "data.source=a", "data.infer_schema=true"))
    assert settings.schema_path is None
    assert load(None, (*TABLE, CSV, "data.schema_file=a.pbtxt")).schema_path == "a.pbtxt"


def test_a_table_with_the_columns_of_pictures(tmp_path):
    columns = "task.args={features: {id: numeric, image: hashed}, label: label}"
    table = ("task.name=regression", columns)
    settings = load(None, (*table, CSV, f"data.source={tmp_path}", "data.infer_schema=true"))
    made = create_pipeline(settings, tmp_path / "out").components
    [gate] = (each for each in made if each.id == "AnomalyGate")
    assert gate.exec_properties["pictures"] == 0
    assert gate.exec_properties["numbers"] == '["id", "label"]'
    [pictures] = (
        each
        for each in create_pipeline(load("quickstart"), tmp_path / "pictures").components
        if each.id == "AnomalyGate"
    )
    assert "pictures" not in pictures.exec_properties


@pytest.mark.parametrize("preset", ["cifar10", "cifar100", "taxi", "regression"])
def test_all_settings_can_be_given_again(preset):
    settings = load(preset)
    assert settings.schema_path and settings.schema_path.endswith(f"/{preset}.pbtxt")
    assert PipelineSettings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """``photos/CLASS/1.png`` of two sizes; pictures with masks in ``street``."""
    for name, size in (("photos/a", 8), ("photos/b", 9), ("street/images", 8), ("street/masks", 8)):
        (tmp_path / name).mkdir(parents=True)
        Image.new("RGB", (size, size)).save(tmp_path / name / "1.png")
    monkeypatch.chdir(tmp_path)
    return (f"data.cache_dir={tmp_path / 'cache'}",)


MASKS = ("task.name=segmentation", "train.model=unet_2", "data.source=street")
PHOTOS = "data.source=photos"


def test_a_size_for_pictures(photos):
    size = ("data.image_size=[32, 24]", "data.image_fit=crop")
    settings = load("quickstart", (*photos, PHOTOS, *size))
    picture = schema_reader.picture(settings.schema_path)
    assert picture == schema_reader.Picture((32, 24, 3), True, "crop")
    assert PipelineSettings.model_validate(settings.model_dump(mode="json")) == settings
    settings = load(None, (*photos, *MASKS, "data.image_size=[32, 24]"))
    assert schema_reader.picture(settings.schema_path) == schema_reader.Picture(
        (32, 24, 3), True, "resize"
    )


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ((PHOTOS,), "data.image_size"),  # several sizes
        (("data.image_size=[8, 8]",), "data.image_size"),  # the sample
        (("data.corrupt_images=skip",), "data.corrupt_images"),
        ((PHOTOS, "data.image_fit=crop"), "data.image_fit"),
        ((PHOTOS, "data.image_size=[8]"), "data.image_size"),
        ((PHOTOS, "data.image_size=[0, 8]"), "data.image_size"),
        ((PHOTOS, "data.image_size=8"), "data.image_size"),
        ((PHOTOS, "data.image_size=[8, 8]", "data.image_fit=zoom"), "data.image_fit"),
        ((PHOTOS, "data.image_size=[8, 8]", "data.schema_file=a.pbtxt"), "data.image_size"),
        ((*MASKS, "data.source=photos"), "data.source"),
        ((*MASKS, "data.source=s3://bucket/street"), "data.source"),
    ],
)
def test_what_does_not_fit_pictures_is_refused(overrides, setting, photos):
    with pytest.raises(SettingsError) as caught:
        load(None, (*photos, *overrides))
    assert caught.value.setting.startswith(setting)
