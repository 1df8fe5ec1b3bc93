"""weave's own calls inside a trajectory: functions with `@weave.op`, and the clients that weave patches.

weave has a stack of calls of its own: without this its calls don't see our spans and become separate traces. weave
still sends them itself, to the project of `weave.init`, which should be the exporter's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace

from otel_rollout.guard.log_once import internal_error, warn_once

KNOWN_VERSIONS: Final = ("0.54.",)
"""weave has no public way to name a parent that it didn't make; the classes used here are these versions'."""


@contextmanager
def nested_weave_ops() -> Iterator[None]:
    """Nest weave's calls inside the block under the current span, a trajectory or an op of otel-rollout.

    Does nothing if weave isn't initialised, its version isn't known, or no span is current. May be used again inside an
    op, whose span is then the parent. An error in here never reaches the block.
    """
    leave = _enter()
    try:
        yield
    finally:
        if leave is not None:
            try:
                leave()
            except Exception:
                internal_error("leaving weave's stack of calls")


def _enter() -> Callable[[], object] | None:
    """Make the current span the parent of weave's calls; return the undo function, None if nothing was done."""
    try:
        current = trace.get_current_span().get_span_context()
        # weave is never imported here.
        stack: Any = sys.modules.get("weave.trace.context.call_context")
        clients: Any = sys.modules.get("weave.trace.context.weave_client_context")
        if stack is None or clients is None or not current.is_valid or not current.trace_flags.sampled:
            return None
        version = str(getattr(sys.modules.get("weave"), "__version__", ""))
        if not version.startswith(KNOWN_VERSIONS):
            known = ", ".join(f"{one}x" for one in KNOWN_VERSIONS)
            warn_once("weave nesting", "weave %s is not known: its calls are not nested; %s are", version, known)
            return None
        client = clients.get_weave_client()
        if client is None:
            return None
        parent = sys.modules["weave.trace.call"].Call(
            _op_name="otel_rollout",
            id=f"{current.span_id:016x}",
            trace_id=f"{current.trace_id:032x}",
            project_id=f"{client.entity}/{client.project}",
            parent_id=None,
            inputs={},
        )
        manager = stack.set_call_stack([parent])
        manager.__enter__()
    except Exception:
        internal_error("nesting weave's calls")
        return None
    return lambda: manager.__exit__(None, None, None)
