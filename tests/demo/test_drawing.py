"""Drawing: reproducible, marks where things are, held-out means never trained on."""

import random

import numpy as np
import pytest
from chiasm_demo import fonts
from chiasm_demo.backgrounds import HELD_OUT_PAINTERS, TRAIN_PAINTERS
from chiasm_demo.drawing import Style, draw, load_style
from chiasm_demo.fonts import HELD_OUT_PACKAGES, TRAIN_PACKAGES, MissingFontsError, font_files
from chiasm_demo.outlines import outline
from chiasm_demo.scene import SHAPES, Item, Scene, Split, sample_scene
from PIL import ImageFont


@pytest.fixture(scope="module")
def style() -> Style:
    """The training style where its fonts are installed, else wallpapers with one bundled font."""
    try:
        return load_style(Split.TRAIN)
    except MissingFontsError as missing:
        pytest.skip(str(missing))


def test_a_seed_gives_one_picture(style: Style) -> None:
    scene = sample_scene(random.Random(5))
    first, again, other = (draw(scene, seed, style)[0] for seed in (7, 7, 8))
    assert first.size == (scene.width, scene.height)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_marks_lie_on_what_they_mark(style: Style) -> None:
    item = Item("circle", "red", "14.99")
    scene = Scene(196, 168, ((None, item), (None, None)))
    picture, marks = draw(scene, 3, style)
    (x, y, radius, shape, colour) = marks.items[0]
    assert (shape, colour) == (SHAPES.index("circle") + 1, 1)
    red, green, blue = np.asarray(picture)[int(y), int(x)].astype(int)
    assert red > green + 60
    assert red > blue + 60
    assert 8 < radius < 60
    assert marks.digits[:, 2:].astype(int).tolist() == [[1, 1], [4, 2], [9, 3], [9, 4]]
    assert (np.diff(marks.digits[:, 0]) >= 6.9).all()  # digits stay apart, left to right


def test_an_item_stays_in_its_third(style: Style) -> None:
    for seed in range(60):
        scene = sample_scene(random.Random(seed))
        _, marks = draw(scene, seed, style)
        for (slot, _), (x, y, *_) in zip(scene.items(), marks.items, strict=True):
            for place, third in ((y / scene.height, slot // 3), (x / scene.width, slot % 3)):
                assert third / 3 - 0.08 < place < (third + 1) / 3 + 0.08, (seed, slot)


def test_held_out_fonts_and_wallpapers_are_not_trained_on() -> None:
    assert not set(TRAIN_PACKAGES) & set(HELD_OUT_PACKAGES)
    assert not set(TRAIN_PAINTERS) & set(HELD_OUT_PAINTERS)


def test_held_out_typefaces_have_other_names() -> None:
    try:
        families = [
            {
                ImageFont.truetype(path, 20).getname()[0]
                for paths in font_files(packages).values()
                for path in paths
            }
            for packages in (TRAIN_PACKAGES, HELD_OUT_PACKAGES)
        ]
    except MissingFontsError as missing:
        pytest.skip(str(missing))
    assert not families[0] & families[1]
    assert len(families[0]) > 15


def test_a_missing_font_names_the_package_and_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(fonts, "_ROOT", tmp_path)
    with pytest.raises(MissingFontsError, match="apt-get install fonts-cabin fonts-play") as caught:
        font_files({name: HELD_OUT_PACKAGES[name] for name in ("fonts-cabin", "fonts-play")})
    assert caught.value.packages == ["fonts-cabin", "fonts-play"]


def test_wallpapers_fill_the_picture_and_follow_the_seed() -> None:
    for painter in (*TRAIN_PAINTERS, *HELD_OUT_PAINTERS):
        wall = painter(60, 90, np.random.default_rng(1))
        assert wall.shape == (60, 90, 3)
        assert np.array_equal(wall, painter(60, 90, np.random.default_rng(1)))
        assert np.isfinite(wall).all()


def test_outlines_differ_and_fit_the_unit_circle() -> None:
    for shape in SHAPES:
        points = np.array(outline(shape))
        assert np.hypot(*points.T).max() < 1.25
    assert len({outline(shape) for shape in SHAPES}) == len(SHAPES)
