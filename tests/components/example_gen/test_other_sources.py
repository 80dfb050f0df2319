"""ExampleGens of text, of image files by class, and of masks."""

import os
import pathlib
import random
import tracemalloc

import numpy as np
import pytest
from example_gens import value, written
from PIL import Image

from stagecraft.common.errors import SettingError, UserError
from stagecraft.components import ImageFolderExampleGen, MaskExampleGen, TextExampleGen
from stagecraft.components.anomaly_gate import checks, scan
from stagecraft.components.example_gen.kinds import folders, text
from stagecraft.schemas import features
from stagecraft.trainer_module.data import schema_reader

SPLITS = ("train", "val", "eval")


def write(component, folder: pathlib.Path) -> dict[str, list]:
    """The features of each split's examples."""
    _, splits = written(component, folder)
    assert list(splits) == list(SPLITS)
    return splits


def ids(examples: list) -> list[int]:
    return [example[features.ID].int64_list.value[0] for example in examples]


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one two  three\nfour five six seven eight nine\n" * 20)
    (folder / "b.txt").write_text("äöü ß\n" * 50)
    (folder / "notes.md").write_text("ignored")
    return folder


def test_windows_of_text_overlap_by_a_token(texts, tmp_path):
    found = write(TextExampleGen(str(texts), 11, val_fraction=0.2, shards=2), tmp_path / "out")
    windows = {
        example[features.ID].int64_list.value[0]: value(example, features.TEXT).decode()
        for examples in found.values()
        for example in examples
    }
    assert sorted(windows) == list(range(len(windows)))
    assert all(len(window) == 11 for window in windows.values())
    assert windows[0] == "one two thr"
    assert windows[1] == "ree four fi"
    assert len(found["val"]) == len(found["eval"]) == round(0.2 * len(windows))


def test_windows_of_words(texts, tmp_path):
    component = TextExampleGen(str(texts / "a.txt"), 4, unit="words", shards=1)
    found = write(component, tmp_path / "out")
    windows = {value(e, features.TEXT) for examples in found.values() for e in examples}
    assert b"one two three four" in windows
    assert all(len(window.split()) == 4 for window in windows)


@pytest.mark.parametrize("unit", ["characters", "words"])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
def test_windows_do_not_depend_on_how_a_file_is_read(unit, block, tmp_path, monkeypatch):
    draw = random.Random(block)
    content = "".join(draw.choice(("ä", "b", "€", " ", "\n", "\t ", "\u2003")) for _ in range(600))
    (tmp_path / "a.txt").write_text(content)
    monkeypatch.setattr(text, "_BLOCK", block)
    source = text.Source(str(tmp_path), ("a.txt",), 0, 0, 4, unit)
    found = [*text._windows(source._read("a.txt"), 4, unit)]
    tokens = content.split() if unit == "words" else " ".join([*content.split(), ""])
    between = " " if unit == "words" else ""
    assert found == [between.join(tokens[n : n + 4]) for n in range(0, len(tokens) - 3, 3)]


@pytest.mark.parametrize(("unit", "count"), [("characters", 31_745), ("words", 5_290)])
def test_a_long_line_takes_no_memory(unit, count, tmp_path):
    """Twice the length takes twice the time: no part is looked at again."""
    (tmp_path / "line.txt").write_text("lorem ipsum dolor " * 111_111)
    source = text.Source(str(tmp_path), ("line.txt",), 0, 0, 64, unit)
    tracemalloc.start()
    try:
        assert sum(1 for _ in text._windows(source._read("line.txt"), 64, unit)) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * text._BLOCK  # a list of the words of a block


def test_a_word_without_end_is_refused(tmp_path, monkeypatch):
    (tmp_path / "word.txt").write_text("a" * 3000)
    monkeypatch.setattr(text, "_BLOCK", 1000)
    monkeypatch.setattr(text, "_LONGEST_WORD", 2000)
    source = text.Source(str(tmp_path), ("word.txt",), 0, 0, 4, "words")
    with pytest.raises(UserError) as caught:
        [*text._windows(source._read("word.txt"), 4, "words")]
    assert (caught.value.setting, caught.value.suggestion) == ("unit", "characters")


def test_the_sample_of_text_is_always_the_same(tmp_path):
    runs = []
    for name, shards in (("one", 1), ("two", 3)):
        component = TextExampleGen("sample", 20, shards=shards, sample_train=50, sample_test=10)
        runs.append(write(component, tmp_path / name))
    one, two = runs
    assert [len(one[split]) for split in SPLITS] == [45, 5, 10]
    assert {s: ids(e) for s, e in one.items()} == {s: ids(e) for s, e in two.items()}
    assert [value(e, "text") for e in one["val"]] == [value(e, "text") for e in two["val"]]


def test_text_that_cannot_be_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.txt").write_bytes(b"good\nbad \xe4\n")
    (tmp_path / "cut.txt").write_bytes("good\n\nbad ä".encode()[:-1])
    with pytest.raises(UserError, match=r"\.txt"):
        text.resolve(properties(tmp_path / "empty"))
    with pytest.raises(UserError) as caught:
        text.resolve(properties(tmp_path / "latin.txt")).content(str(tmp_path / "s"), None)
    assert caught.value.record == "2"
    with pytest.raises(UserError) as caught:
        text.resolve(properties(tmp_path / "cut.txt")).content(str(tmp_path / "s"), None)
    assert caught.value.record == "3"
    with pytest.raises(SettingError):
        TextExampleGen("sample", 5, unit="syllables")


def properties(path: pathlib.Path) -> dict:
    sizes = {"sample_train": 1, "sample_test": 1, "window": 5}
    return {"source": str(path), "unit": "characters", **sizes}


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    draw = np.random.default_rng(0)
    for number in range(60):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.{('png', 'jpg')[number % 3 == 0]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (12, 10, 3), np.uint8)).save(path)
    (folder / ".hidden").mkdir()
    (folder / "cat" / "notes.md").write_text("not a picture")
    return folder


def test_class_folders_of_any_name(tmp_path):
    """Names that a terminal obeys, and that a text proto does not take as they are."""
    names = ["a\nb", "\x1b[31mred", "x\u202ey", 'quote"\\', "tab\t", "größe"]
    for name in names:
        path = tmp_path / "pictures" / name / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)
    schema = folders.write_schema(str(tmp_path / "pictures"), str(tmp_path / "cache"))
    assert schema_reader.class_names(schema) == tuple(sorted(names))


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    for name in (b"cat", b"d\xf6g"):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(os.path.join(folder, b"1.png"))
    with pytest.raises(UserError) as caught:
        folders.listing(str(tmp_path))
    assert caught.value.record == r"d\udcf6g/1.png"
    str(caught.value).encode()


def test_image_files_keep_their_bytes_and_classes(pictures, tmp_path):
    component = ImageFolderExampleGen(str(pictures), val_fraction=0.2, shards=2)
    found = write(component, tmp_path / "out")
    names = folders.listing(str(pictures)).names
    seen = [example for examples in found.values() for example in examples]
    assert sorted(ids(seen)) == list(range(60))
    for example, index in zip(seen, ids(seen), strict=True):
        assert value(example, features.IMAGE) == (pictures / names[index]).read_bytes()
        assert example[features.LABEL].int64_list.value[0] == names[index].startswith("dog")
    assert min(map(len, found.values())) >= 4


def test_a_file_stays_in_its_split_when_others_come(pictures):
    def by_name():
        found = folders.resolve({"source": str(pictures)}).content("", None)
        parts = found.split_ids(0.2)
        return {found.names[index]: split for split in SPLITS for index in parts[split]}

    before = by_name()
    (pictures / "ant").mkdir()
    (pictures / "cat" / "2.png").rename(pictures / "ant" / "1.png")
    after = by_name()
    assert before.keys() ^ after.keys() == {"cat/2.png", "ant/1.png"}
    assert all(before[name] == split for name, split in after.items() if name in before)


def test_the_schema_has_the_folders_names_and_shape(pictures, tmp_path):
    path = folders.write_schema(str(pictures), str(tmp_path / "cache"))
    assert schema_reader.class_names(path) == ("cat", "dog")
    assert schema_reader.picture(path) == schema_reader.Picture((12, 10, 3), encoded=True)
    assert folders.write_schema(str(pictures), str(tmp_path / "cache")) == path
    assert folders.is_by_class(str(pictures))
    assert not folders.is_by_class(str(pictures / "cat"))


def test_the_gate_names_a_picture_of_another_size(pictures, tmp_path):
    schema = schema_reader.read(folders.write_schema(str(pictures), str(tmp_path / "cache")))
    Image.fromarray(np.zeros((9, 10, 3), np.uint8)).save(pictures / "dog" / "1.png")
    component = ImageFolderExampleGen(str(pictures), val_fraction=0.2, shards=1)
    write(component, tmp_path / "out")
    files = {s: [str(f) for f in (tmp_path / "out").glob(f"Split-{s}/*")] for s in SPLITS}
    findings, _ = scan.scan(files, checks.rules(schema), named=True)
    (finding,) = findings
    assert "12 x 10" in finding.expected
    assert "9 x 10" in finding.found and finding.found.startswith("1 ")
    assert finding.file == "dog/1.png"


def test_one_class_is_refused(tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    Image.new("RGB", (10, 12)).save(tmp_path / "photos" / "cats" / "1.png")
    with pytest.raises(UserError) as raised:
        folders.write_schema(str(tmp_path / "photos"), str(tmp_path / "cache"))
    assert raised.value.file == str(tmp_path / "photos")


def test_a_folder_without_classes_is_refused(tmp_path):
    with pytest.raises(UserError) as caught:
        folders.resolve({"source": str(tmp_path)})
    assert caught.value.setting == "source"


def test_masks_are_the_pixels_of_the_shape(tmp_path):
    component = MaskExampleGen(shards=1, sample_train=30, sample_test=10)
    found = write(component, tmp_path / "out")
    assert [len(found[split]) for split in SPLITS] == [27, 3, 10]
    masks = np.array([list(value(e, features.MASK)) for e in found["train"]])
    assert masks.shape == (27, 32 * 32)
    assert set(np.unique(masks)) == {0, 1}
    assert 0.05 < masks.mean() < 0.5
