"""Modules in pictures: their paths mean for `draw` what they mean for `explore`."""

from handmade import example
from test_draw import layers

from subtrace_kit.draw import Picture, draw
from subtrace_kit.explorer import start


def boxes(picture: Picture) -> list[str]:
    return [row.symbol for row in picture.shown.walk() if row.depth == 0]


def test_a_module_path_is_the_same_for_draw_as_for_explore() -> None:
    trace = layers(12)
    assert boxes(draw(trace, collapse="blocks")) == ["blocks"]
    assert boxes(draw(trace, collapse="blocks.3")) == ["blocks", "blocks.# x 12"]
    assert boxes(draw(trace, expand="blocks.3"))[:3] == ["blocks", "blocks.# x 3", "blocks.3"]
    assert boxes(draw(trace)) == []
    for options in (
        {"collapse": "blocks.1.up"},
        {"expand": "blocks.3"},
        {"depth": 0},
        {"expand": "blocks", "depth": 0},
    ):
        lines = start(trace, **options).lines  # type: ignore[arg-type]
        assert [row.id for row in draw(trace, **options).shown.walk()] == [line.row.id for line in lines]  # type: ignore[arg-type]


def test_depth_0_is_modules_alone_where_there_are_any() -> None:
    assert boxes(draw(layers(12), 0)) == ["blocks"]
    assert draw(layers(12), 0).shown.size == 1
    assert draw(example(), 0).source == draw(example(), 1).source


def test_modules_of_a_slice() -> None:
    picture = draw(layers(12), start=3, stop=9, collapse="blocks.2")
    assert boxes(picture)[:5] == ["blocks", "blocks.1", "blocks.1.down", "blocks.2", "blocks.3"]
    assert "operations 3 to 8 of 24 are shown" in picture.source
