"""DTensor: objects made in C++, and a mesh, which is no tensor, among the inner tensors. One process, no network."""

import contextlib

import pytest
import torch

import subtrace_kit

distributed = pytest.importorskip("torch.distributed.tensor")
DTensor, Replicate, Shard = distributed.DTensor, distributed.Replicate, distributed.Shard

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def mesh():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield distributed.init_device_mesh("cpu", (2,))
    with contextlib.suppress(Exception):
        torch.distributed.destroy_process_group()


def local(value):
    return value._local_tensor if isinstance(value, DTensor) else value


def sharded(mesh, seed, *, gradient=False):
    torch.manual_seed(seed)
    tensors = DTensor.from_local(torch.randn(2, 4), mesh, [Shard(0)]), DTensor.from_local(torch.randn(4, 4), mesh)
    return tuple(tensor.detach().requires_grad_(gradient) for tensor in tensors)


PROGRAMS = {
    "matmul": lambda x, w: torch.relu(x @ w) + 1,
    "reduction": lambda x, w: (x * x).sum(1),
    "local": lambda x, w: x.to_local() * 2,
    "gathered": lambda x, w: x.redistribute(x.device_mesh, [Replicate()]) * 2,
    "placed": lambda x, w: DTensor.from_local(x.to_local() * 2, x.device_mesh, [Shard(0)]) + x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_sharded_tensors(mesh, name):
    program = PROGRAMS[name]
    trace = subtrace_kit.trace(program)(*sharded(mesh, 0))
    for run in (trace, subtrace_kit.lower(trace)):
        found, wanted = run(*sharded(mesh, 1)), program(*sharded(mesh, 1))
        assert type(found) is type(wanted)
        assert torch.equal(local(found), local(wanted))
        if isinstance(wanted, DTensor):
            assert (found.placements, found.device_mesh) == (wanted.placements, wanted.device_mesh)


def test_gradients_of_sharded_tensors(mesh):
    program = PROGRAMS["matmul"]
    trace = subtrace_kit.trace(program)(*sharded(mesh, 0, gradient=True))
    grads = []
    for run in (program, trace, subtrace_kit.lower(trace)):
        args = sharded(mesh, 1, gradient=True)
        run(*args).sum().backward()
        grads.append([local(t.grad) for t in args])
    for found in grads[1:]:
        assert all(map(torch.equal, found, grads[0]))


def test_a_lowered_trace_waits_for_its_collectives(mesh):
    low = subtrace_kit.lower(subtrace_kit.trace(PROGRAMS["gathered"])(*sharded(mesh, 0)))
    names = [b.symbol.name for b in low.bound_symbols]
    gathered = names.index("_c10d_functional.all_gather_into_tensor")
    assert "_c10d_functional.wait_tensor" in names[gathered:]


def test_another_placement_is_refused(mesh):
    x, _ = sharded(mesh, 0)
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    with pytest.raises(subtrace_kit.TraceError, match="metadata"):
        trace(DTensor.from_local(torch.randn(4, 4), mesh, [Shard(1)]).redistribute(mesh, [Shard(1)]).detach())
    assert local(trace(sharded(mesh, 1)[0])).shape == (2, 4)
