"""Hooks for the functions of any trainer: they observe its calls without an edit of the trainer.

from otel_rollout.hooks import Hook, after, install_hooks, start_tracing

def start(call, result):
    start_tracing("their_trainer", "my-project", call.receiver.config.run_name)

install_hooks([Hook("their_trainer", "Trainer.__init__", "nothing is traced", after(start), while_off=True)])
"""

from otel_rollout.hooks.guard import call_library, guarded
from otel_rollout.hooks.hook import Arguments, Call, Hook, Observer, Patch, after
from otel_rollout.hooks.import_hook import install_hooks
from otel_rollout.hooks.patching import install_hook, is_replaced, observe
from otel_rollout.hooks.start import start_tracing

__all__ = [
    "Arguments",
    "Call",
    "Hook",
    "Observer",
    "Patch",
    "after",
    "call_library",
    "guarded",
    "install_hook",
    "install_hooks",
    "is_replaced",
    "observe",
    "start_tracing",
]
