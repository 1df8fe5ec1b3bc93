"""Trees and tables on a terminal, for the commands and the demo."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.look.terminal.findings_drawing import print_diagnosis
    from otel_rollout.look.terminal.group_table import advantages, answer_of, prompt_of
    from otel_rollout.look.terminal.table import Cell, Column, Table, print_lines
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "findings_drawing": ("print_diagnosis",),
            "table": ("Cell", "Column", "Table", "print_lines"),
            "group_table": ("advantages", "answer_of", "prompt_of"),
        },
    )
