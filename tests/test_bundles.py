from subtrace_kit.bundles import MANY, bundled, bundles
from subtrace_kit.flow import Edge


def edges(readers: dict[str, str]) -> list[Edge]:
    return [Edge(source, target, source) for source, targets in readers.items() for target in targets.split()]


def test_a_few_captured_values_stay_apart() -> None:
    assert bundles(edges(dict.fromkeys(["cap_0", "cap_1", "cap_2", "in_0"], "op_0"))) == ()


def test_those_with_the_same_readers_are_together() -> None:
    given = edges({"cap_0": "op_0", "cap_1": "op_0", "cap_2": "op_0 op_1", "cap_3": "op_0", "cap_4": "op_0"})
    (found,) = bundles(given)
    assert (found.node, found.members) == ("caps_0", ("cap_0", "cap_1", "cap_3", "cap_4"))
    assert [(e.source, e.target, e.name) for e in bundled(given, (found,))] == [
        ("caps_0", "op_0", "4 captured tensors"),
        ("cap_2", "op_0", "cap_2"),
        ("cap_2", "op_1", "cap_2"),
    ]


def test_of_very_many_any_two_are_together() -> None:
    found = bundles(edges({f"cap_{i}": f"op_{i // 2}" for i in range(MANY + 2)}))
    assert [len(bundle.members) for bundle in found] == [2] * (MANY // 2 + 1)


def test_an_arrow_of_a_bundle_is_double_where_one_in_it_is_a_wrapper() -> None:
    given = [Edge(f"cap_{i}", "op_0", f"w{i}", wrapper=i == 2) for i in range(4)]
    assert [edge.wrapper for edge in bundled(given, bundles(given))] == [True]
