"""Tensors stay as they were: nothing that reading does is noticed in a tensor, a mode or a compiled graph."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from otel_rollout import annotate, flush, rollout_trace_attr, rollout_trace_op
from otel_rollout.record import take_snapshot
from tests.payload_values import read

torch: Any = pytest.importorskip("torch", reason="torch is not installed")


class TestTensors:
    """Tensors that are captured."""

    @pytest.mark.parametrize("make", [lambda: torch.zeros(4), lambda: torch.arange(5000), lambda: torch.zeros(9, 9)])
    def test_the_storage_can_still_be_resized(self, make: Any) -> None:
        """FSDP frees a parameter's storage by resizing it, and `out=` grows it."""
        tensor = make()
        take_snapshot({"tensor": tensor})
        tensor.untyped_storage().resize_(0)
        tensor.resize_(7)
        assert tensor.shape == (7,)

    def test_modes_see_nothing(self) -> None:
        """The program's modes get no call of ours."""
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[Any] = []

        class Functions(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(func)
                return func(*args, **(kwargs or {}))

        class Dispatches(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(func)
                return func(*args, **(kwargs or {}))

        tensor = torch.arange(4.0)
        with Functions(), Dispatches():
            take_snapshot({"tensor": tensor})
        assert seen == []

    def test_graphs_have_no_node_of_ours(self) -> None:
        """A graph that is made while a tensor is captured has the program's operations alone."""
        from torch.fx.experimental.proxy_tensor import make_fx

        def double(tensor: Any) -> Any:
            take_snapshot(tensor)
            return tensor * 2

        graph = make_fx(double)(torch.arange(4.0))
        assert [str(node.target) for node in graph.graph.nodes if node.op == "call_function"] == ["aten.mul.Tensor"]

    def test_a_tensor_without_storage(self) -> None:
        """Inside vmap a tensor stands for others, and is named."""
        seen: list[Any] = []

        def double(tensor: Any) -> Any:
            seen.append(read(tensor))
            return tensor * 2

        assert torch.vmap(double)(torch.ones(2, 3)).shape == (2, 3)
        assert "without storage" in seen[0]

    def test_a_subclass(self) -> None:
        """A subclass is named, and none of its functions runs: it may be spread over machines."""

        class Spread(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_: Any, **__: Any) -> Any:
                raise AssertionError("it was read")

        assert read(torch.zeros(2).as_subclass(Spread)).endswith("Spread>")

    def test_on_a_device(self) -> None:
        """A tensor that isn't in the processor's memory is described: reading it would wait for the device."""
        described = read(torch.zeros(2, 3, device="meta"))
        assert described == {"type": "torch.Tensor", "dtype": "float32", "shape": [2, 3], "device": "meta"}

    def test_large_ones(self) -> None:
        """A large tensor is described by its first and last elements, in whatever order they lie in memory."""
        rows = torch.arange(4000.0).reshape(40, 100)
        for tensor, head in ((rows, [0.0, 1.0, 2.0]), (rows.t(), [0.0, 100.0, 200.0])):
            described = read(tensor)
            assert described["shape"] == list(tensor.shape)
            assert described["head"][:3] == head
            assert described["tail"][-1] == 3999.0

    def test_traces_have_no_operation_of_ours(self) -> None:
        """`torch.jit.trace` records the program's operations alone."""

        def double(tensor: Any) -> Any:
            take_snapshot(tensor)
            return tensor * 2

        with warnings.catch_warnings():
            # torch.jit is deprecated, and still used.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(double, torch.arange(4.0))
        kinds = [node.kind() for node in traced.graph.nodes() if node.kind() != "prim::Constant"]
        assert kinds == ["aten::mul"]

    def test_token_ids(self, rollout_spans: Any) -> None:
        """The token ids of an LLM's answer are counted, if the tensor has one dimension."""

        @rollout_trace_op(kind="LLM")
        def generate(ids: Any) -> Any:
            return {"token_ids": torch.tensor(ids)}

        generate([1, 2, 3])
        generate([[1, 2, 3]])
        flush()
        counts = [dict(span.attributes).get("gen_ai.usage.output_tokens") for span in rollout_spans.spans]
        assert counts == [3, None]

    def test_many_are_cut(self) -> None:
        """Tensors are read up to a number, and the rest is counted."""
        taken = take_snapshot([torch.zeros(2) for _ in range(5000)])
        assert taken.left_out > 4000


@pytest.mark.parametrize("fullgraph", [False, True])
def test_ops_inside_a_compiled_function(rollout_spans: Any, fullgraph: bool) -> None:
    """An op and `annotate` inside `torch.compile` are left out: one graph, without a break or a recompilation."""
    from torch._dynamo.utils import counters

    @rollout_trace_op
    def double(tensor: Any) -> Any:
        return tensor * 2

    def model(tensor: Any) -> Any:
        annotate(reward=1.0)
        return double(tensor).sum()

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
    for number in range(3):
        with rollout_trace_attr(sample_index=number):
            assert compiled(torch.ones(2) * number) == 4 * number
    assert counters["stats"]["unique_graphs"] == 1
