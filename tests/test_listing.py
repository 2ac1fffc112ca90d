from handmade import MUL, SIN, W, X, call, example, make, mul, plain

from subtrace_kit.listing import Listing, Names
from subtrace_kit.view import view


def test_values_inside_are_found_by_their_holder_or_their_operation() -> None:
    inside = call("aten.f.default", (W,), plain("deep"))
    listing = Listing(view(make([mul(), call("torch.f", (MUL,), SIN, inside)], inputs=(X, W))))
    names = Names(listing)
    assert [names[name].type for name in ("mul_1", "x_a", "deep", "w")] == ["f32[4]"] * 4
    assert "nothing" not in names
    assert names["mul"].cls == "Pair"


def test_rows_are_found_by_their_place() -> None:
    listing = Listing(view(example()))
    assert list(listing) == [row.id for row in view(example()).walk()]
    assert len(listing) == 10
    assert all(listing[key].id == key for key in listing)
    assert [listing.parent(key) for key in ("op_0", "op_0_0_1", "nothing")] == ["", "op_0_0", ""]
    assert [key in listing for key in ("op_0_0_9", "op_7", "op_0_x", "op", "")] == [False] * 5
