"""When one value can stand for another."""

import torch

from subtrace_kit.equality import same_tensors
from subtrace_kit.zoo import TwoTensor


def test_tensors_are_the_same_by_class_and_values_at_any_depth():
    nan = torch.tensor([1.0, float("nan")])
    one = TwoTensor(nan, TwoTensor(torch.zeros(2), torch.ones(2)))
    assert same_tensors(one, TwoTensor(nan.clone(), TwoTensor(torch.zeros(2), torch.ones(2))))
    assert not same_tensors(one, TwoTensor(nan.clone(), TwoTensor(torch.zeros(2), torch.zeros(2))))
    assert not same_tensors(one, TwoTensor(nan.clone(), torch.ones(2)))
    assert not same_tensors(nan, torch.ones(2))
    assert not same_tensors(torch.ones(2), torch.ones(1))
    assert same_tensors(None, None)
    assert not same_tensors(None, nan)
