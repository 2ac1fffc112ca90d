"""What gradients are, without the gradients."""

import torch

from subtrace_kit.gradient_kinds import kinds_of, same_kinds
from subtrace_kit.made_inputs import like
from subtrace_kit.zoo import TwoTensor


def test_kinds_are_alike_where_class_and_facts_are_at_any_depth():
    one = TwoTensor(torch.ones(2, 3), torch.zeros(2, 3))
    kinds = kinds_of([one, None, torch.ones(2).expand(3, 2)])
    assert same_kinds(kinds, kinds_of([one * 2, None, torch.zeros(2).expand(3, 2)]))
    assert not same_kinds(kinds, kinds_of([one.t().contiguous(), None, torch.ones(2).expand(3, 2)]))
    assert not same_kinds(kinds, kinds_of([one.a, None, torch.ones(2).expand(3, 2)]))
    assert not same_kinds(kinds, kinds_of([one, one, torch.ones(2).expand(3, 2)]))
    assert not same_kinds(kinds, kinds_of([one, None, torch.ones(3, 2)]))


def test_a_gradient_can_be_made_up_from_its_kind():
    wrapper, expanded = (
        like(kind) for kind in kinds_of([TwoTensor(torch.ones(2, 3), torch.ones(2, 3)), torch.ones(2).expand(3, 2)])
    )
    assert type(wrapper) is TwoTensor
    assert (wrapper.shape, wrapper.a.stride()) == ((2, 3), (3, 1))
    assert (expanded.shape, expanded.stride()) == ((3, 2), (0, 1))


class Odd:
    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __hash__ = None


def test_metadata_that_cannot_be_compared_are_not_alike():
    (kind,) = kinds_of([TwoTensor(torch.ones(2), torch.ones(2))])
    one, other = ((kind.replace(metadata=Odd()),) for _ in range(2))
    assert not same_kinds(one, other)
