"""Which values may share memory."""

import torch

import subtrace_kit
from subtrace_kit.memory import hands_on, shared_memory


def steps(fn, *args):
    t = subtrace_kit.trace(fn)(*args)
    return [inner for outer in t.bound_symbols for inner in (outer.subsymbols or (outer,))]


def test_views_share_memory_with_what_they_are_views_of():
    found = shared_memory(steps(lambda x: (x.t()[0] + 1).view(2, 1), torch.ones(2, 2)))
    roots = {name: set(names) for name, names in found.items()}
    assert roots == {"t": {"x"}, "getitem": {"x"}, "add": {"add"}, "view": {"add"}}


def test_the_result_of_unsafe_view_counts_as_a_view_although_its_schema_does_not_say_so():
    (step,) = steps(lambda x: torch.ops.aten._unsafe_view(x, [4]), torch.ones(2, 2))
    assert hands_on(step)
    assert shared_memory([step]) == {step.output.name: frozenset({"x"})}


def test_ops_with_memory_of_their_own():
    assert not any(map(hands_on, steps(lambda x: x.sin() + x.clone(), torch.ones(2))))
