"""The local web pages of a trace folder."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.look.view.application import STATIC, make_application
    from otel_rollout.look.view.export import export_run
    from otel_rollout.look.view.run_state import RunState
    from otel_rollout.look.view.server import listen
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "application": ("STATIC", "make_application"),
            "export": ("export_run",),
            "run_state": ("RunState",),
            "server": ("listen",),
        },
    )
