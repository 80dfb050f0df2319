"""Folders of pictures that other people made: every file is read right, or refused by its name."""

import io
import pathlib
import struct
import zlib

import numpy as np
import pytest
from example_gens import value, written
from PIL import Image
from tfx.types import standard_artifacts

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components import ImageFolderExampleGen, MaskExampleGen
from stagecraft.components.anomaly_gate import checks, scan
from stagecraft.components.example_gen import executor
from stagecraft.components.example_gen.kinds import folders
from stagecraft.schemas import features
from stagecraft.trainer_module.data import schema_reader

SPLITS = ("train", "val", "eval")
DRAW = np.random.default_rng(0)


def picture(height: int = 12, width: int = 10, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(DRAW.integers(0, 256, (height, width, 3), np.uint8)).convert(mode)


def save(made: Image.Image, *path: object, **arguments) -> pathlib.Path:
    file = pathlib.Path(*map(str, path))
    file.parent.mkdir(parents=True, exist_ok=True)
    made.save(file, **arguments)
    return file


def write(component, folder: pathlib.Path) -> tuple[standard_artifacts.Examples, list]:
    """The artifact, and the features of all examples."""
    artifact, splits = written(component, folder)
    return artifact, [each for split in sorted(splits) for each in splits[split]]


def small(source: pathlib.Path, **arguments) -> ImageFolderExampleGen:
    return ImageFolderExampleGen(str(source), val_fraction=0.3, shards=1, **arguments)


@pytest.fixture
def photos(tmp_path):
    """Thirty pictures of several sizes and formats."""
    folder = tmp_path / "photos"
    for number in range(30):
        kind = ("png", "jpg", "bmp", "gif", "JPEG")[number % 5]
        size = 10 + number, 30 - number // 2
        save(picture(*size), folder, ("cat", "dog")[number % 2], f"{number}.{kind}")
    return folder


def large(path: pathlib.Path) -> None:
    """A PNG that says it has 2 ** 30 pixels."""
    header = struct.pack(">4sIIBBBBB", b"IHDR", 2**15, 2**15, 8, 2, 0, 0, 0)
    chunks = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
              for chunk in (header, b"IDAT"))  # fmt: skip
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def bit(path: pathlib.Path) -> None:
    data = save(picture(), path).read_bytes()
    path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])


def turned_png(path: pathlib.Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    save(picture(), path, exif=exif)


def truncated(path: pathlib.Path) -> None:
    path.write_bytes(save(picture(60, 60), path).read_bytes()[:700])


BAD = {
    "cat/empty.png": lambda path: path.write_bytes(b""),
    "cat/text.png": lambda path: path.write_text("no picture"),
    "cat/truncated.jpg": truncated,
    "cat/truncated.png": truncated,
    "cat/truncated.bmp": truncated,
    "dog/bit.png": bit,
    "dog/large.png": large,
    "dog/turned.png": turned_png,
    "dog/bits.bmp": lambda path: save(picture(mode="1"), path),
    "dog/new.webp": lambda path: path.write_bytes(b"RIFF\0\0\0\0WEBPVP8 "),
    "dog/webp.jpg": lambda path: path.write_bytes(b"RIFF\0\0\0\0WEBPVP8 "),
    "dog/scan.tif": lambda path: save(picture(), path),
    "dog/scan.png": lambda path: save(picture(), path, format="TIFF"),
    "dog/phone.heic": lambda path: path.write_bytes(b"\0\0\0\x18ftypheic"),
}


@pytest.mark.slow
def test_all_files_that_are_no_pictures_are_named_at_once(photos, tmp_path, caplog):
    for name, make in BAD.items():
        make(photos / name)
    with pytest.raises(executor.CorruptFilesError) as caught:
        write(small(photos), tmp_path / "out")
    refused = {str(pathlib.Path(file).relative_to(photos)) for file, _ in caught.value.refused}
    assert refused == set(BAD)
    assert caught.value.setting == "data.corrupt_images"
    assert caught.value.record == ", ".join(str(photos / name) for name in sorted(BAD))
    assert not any((tmp_path / "out").glob("Split-*"))
    assert all(name in caplog.text for name in BAD)

    artifact, examples = write(small(photos, corrupt_images="skip"), tmp_path / "again")
    assert artifact.get_int_custom_property("count_skipped") == len(BAD)
    counts = [artifact.get_int_custom_property(f"count_{split}") for split in SPLITS]
    assert sum(counts) == len(examples) == 30
    names = {value(example, features.FILE_NAME).decode() for example in examples}
    assert not names & set(BAD)
    for example in examples:
        name = value(example, features.FILE_NAME).decode()
        assert value(example, features.IMAGE) == (photos / name).read_bytes()


def test_nothing_is_left_to_skip(tmp_path):
    for number in range(20):
        path = tmp_path / "photos" / ("a", "b")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with pytest.raises(executor.CorruptFilesError):
        write(small(tmp_path / "photos", corrupt_images="skip"), tmp_path / "out")
    with pytest.raises(UserError) as caught:
        folders.write_schema(str(tmp_path / "photos"), str(tmp_path / "cache"), (8, 8))
    assert caught.value.file == str(tmp_path / "photos" / "a" / "0.png")


def test_an_unknown_choice_is_refused(tmp_path):
    with pytest.raises(SettingError) as caught:
        small(tmp_path, corrupt_images="ignore")
    assert caught.value.setting == "corrupt_images"


@pytest.mark.slow
def test_pictures_of_several_sizes_need_one(photos, tmp_path):
    cache = str(tmp_path / "cache")
    with pytest.raises(SettingError) as caught:
        folders.write_schema(str(photos), cache)
    assert caught.value.setting == "data.image_size"
    path = folders.write_schema(str(photos), cache, (20, 16), "crop")
    assert schema_reader.picture(path) == schema_reader.Picture(
        (20, 16, 3), encoded=True, fit="crop"
    )
    write(small(photos), tmp_path / "out")
    files = {s: [str(f) for f in (tmp_path / "out").glob(f"Split-{s}/*")] for s in SPLITS}
    findings, _ = scan.scan(files, checks.rules(schema_reader.read(path)), named=True)
    assert findings == []


@pytest.mark.parametrize(
    ("modes", "channels", "bits"),
    [
        (("L", "1"), 1, 8),
        (("L", "RGB"), 3, 8),
        (("RGBA", "RGB"), 3, 8),
        (("RGBA", "LA"), 4, 8),
        (("P", "L"), 3, 8),
        (("I;16", "I;16"), 1, 16),
        (("I;16", "L"), 1, 8),
    ],
)
def test_channels_and_bits_fit_all_files(modes, channels, bits, tmp_path):
    for number, mode in enumerate(modes):
        made = Image.new("I;16", (10, 12)) if mode == "I;16" else picture(mode=mode)
        save(made, tmp_path, "photos", f"{number}", "1.png")
    path = folders.write_schema(str(tmp_path / "photos"), str(tmp_path / "cache"))
    assert schema_reader.picture(path) == schema_reader.Picture((12, 10, channels), True, bits=bits)


def test_turned_photos_have_the_size_that_people_see(tmp_path):
    exif = Image.Exif()
    for name, orientation, size in (("a", 6, (10, 12)), ("b", 1, (12, 10))):
        exif[0x0112] = orientation
        save(picture(*size), tmp_path, "photos", name, "1.jpg", exif=exif)
    path = folders.write_schema(str(tmp_path / "photos"), str(tmp_path / "cache"))
    assert schema_reader.picture(path).shape == (12, 10, 3)


@pytest.fixture
def masked(tmp_path):
    """Pictures with masks of three classes, as grey values and palettes."""
    folder = tmp_path / "street"
    for number in range(24):
        size = (12 + number % 3, 10)
        classes = DRAW.integers(0, 3, size).astype(np.uint8)
        mask = Image.fromarray(classes)
        if number % 2:
            mask = Image.fromarray(classes, "P")
            mask.putpalette(DRAW.integers(0, 256, 768, np.uint8).tobytes())
        save(picture(*size), folder, "images", f"{number}.jpg")
        save(mask, folder, "masks", f"{number}.png")
    return folder


def masks_of(source: pathlib.Path, **arguments) -> MaskExampleGen:
    return MaskExampleGen(str(source), 0.3, 1, num_classes=3, **arguments)


def test_masks_keep_their_classes(masked, tmp_path):
    _, examples = write(masks_of(masked), tmp_path / "out")
    assert len(examples) == 24
    for example in examples:
        name = value(example, features.FILE_NAME).decode()
        assert value(example, features.IMAGE) == (masked / name).read_bytes()
        mask = Image.open(io.BytesIO(value(example, features.MASK)))
        expected = Image.open(masked / "masks" / f"{pathlib.Path(name).stem}.png")
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), np.asarray(expected))


def test_the_schema_of_masks(masked, tmp_path):
    cache = str(tmp_path / "cache")
    with pytest.raises(SettingError) as caught:
        folders.write_schema(str(masked), cache, masks=True)
    assert caught.value.setting == "data.image_size"
    path = folders.write_schema(str(masked), cache, (8, 8), masks=True)
    assert schema_reader.picture(path) == schema_reader.Picture((8, 8, 3), True, "resize")
    schema_reader.check_features(path, (features.IMAGE, features.MASK, features.ID))


BAD_MASKS = {
    "images/alone.jpg": lambda path: save(picture(), path),
    "masks/alone_too.png": lambda path: save(Image.new("L", (10, 12)), path),
    "masks/1.bmp": lambda path: save(Image.new("L", (10, 13)), path),
    "masks/2.png": lambda path: save(Image.new("L", (9, 9)), path),
    "masks/3.png": lambda path: save(Image.new("L", (10, 12), 3), path),
    "masks/4.png": lambda path: save(picture(13, 10), path),
    "masks/6.png": lambda path: save(picture(12, 10), path, format="JPEG"),
    "masks/7.png": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "images/8.jpg": lambda path: path.write_bytes(b""),
}


def test_masks_that_do_not_fit_are_named_at_once(masked, tmp_path):
    for name, make in BAD_MASKS.items():
        make(masked / name)
    with pytest.raises(executor.CorruptFilesError) as caught:
        write(masks_of(masked), tmp_path / "out")
    refused = {str(pathlib.Path(file).relative_to(masked)) for file, _ in caught.value.refused}
    assert refused == {*BAD_MASKS} - {"masks/1.bmp"} | {"masks/1.png"}
    artifact, examples = write(masks_of(masked, corrupt_images="skip"), tmp_path / "again")
    assert artifact.get_int_custom_property("count_skipped") == len(BAD_MASKS)
    assert len(examples) == 24 - len(BAD_MASKS) + 2


@pytest.mark.parametrize("kept", [(), ("images",), ("masks",)])
def test_folders_that_are_missing(kept, masked, tmp_path):
    for name in {"images", "masks"} - {*kept}:
        (masked / name).rename(tmp_path / name)
    component = masks_of(masked)
    with pytest.raises(SettingError) as caught:
        component.EXECUTOR_SPEC.executor_class.resolve(component.exec_properties)
    assert caught.value.setting == "data.source"


def test_masks_without_any_picture(masked):
    for path in (masked / "images").iterdir():
        path.unlink()
    with pytest.raises(UserError) as caught:
        folders.pairs(str(masked))
    assert caught.value.file == str(masked)
