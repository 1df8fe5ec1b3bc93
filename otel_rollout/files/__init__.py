"""Files: modes, locks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.files.file_lock import exclusive_lock, is_being_written
    from otel_rollout.files.file_modes import make_folder, narrow, open_private
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "file_lock": ("exclusive_lock", "is_being_written"),
            "file_modes": ("make_folder", "narrow", "open_private"),
        },
    )
