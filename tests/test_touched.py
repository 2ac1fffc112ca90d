from handmade import MUL, W, X, call, mul, plain, sin

from subtrace_kit.touched import count, inner_of, likeness, mentions, modules, touched


def test_what_an_operation_reads_is_what_its_row_says() -> None:
    reads, writes = touched(mul())
    assert (list(reads), writes) == (["x", "w"], ())
    assert inner_of(X) == ["x_a", "x_b"]
    assert inner_of(W) == []


def test_names_inside_are_mentioned() -> None:
    bound = call("torch.f", (X,), MUL, call("aten.f.default", (plain("s"),), plain("t"), module="b"), module="a")
    assert [mentions(bound, name) for name in ("x", "x_b", "mul_1", "s", "t", "w")] == [True] * 5 + [False]
    paths: dict[str, None] = {}
    modules(bound, paths)
    assert list(paths) == ["a", "b"]
    assert [count(bound), count(mul()), count(sin())] == [2, 5, 5]


def test_what_does_the_same_is_alike() -> None:
    assert likeness(mul()) == likeness(mul())
    assert likeness(mul()) != likeness(sin())
    assert likeness(call("torch.f", (W,), plain("t"))) != likeness(call("torch.f", (W,), plain("t", (5,))))
