"""The local web pages of a trace folder."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.look.view.access import host_of
    from otel_rollout.look.view.application import STATIC, make_application
    from otel_rollout.look.view.export import data_name, export_run, script_of
    from otel_rollout.look.view.run_state import RunState
    from otel_rollout.look.view.server import listen, make_server
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "application": ("STATIC", "make_application"),
            "export": ("export_run", "data_name", "script_of"),
            "run_state": ("RunState",),
            "server": ("listen", "make_server"),
            "access": ("host_of",),
        },
    )
