"""The trace folder: trajectories on disk, as archive, spool and source of replay."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.folder.append_file import FileGoneError
    from otel_rollout.folder.frames import DamagedFrameError, FrameExtent, FrameFile, TornFrame, read_frame, scan_frames
    from otel_rollout.folder.index import IndexEntry
    from otel_rollout.folder.index_reading import read_index
    from otel_rollout.folder.journal import Journal
    from otel_rollout.folder.layout import index_path
    from otel_rollout.folder.lines import seal_of
    from otel_rollout.folder.op_durations import OpDurations
    from otel_rollout.folder.records import scan_records
    from otel_rollout.folder.running_file import RunningFile
    from otel_rollout.folder.stored_file import StoredFile
    from otel_rollout.folder.summaries import summaries_of
    from otel_rollout.folder.trace_files import find_trace_files
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "append_file": ("FileGoneError",),
            "frames": ("DamagedFrameError", "FrameExtent", "FrameFile", "TornFrame", "read_frame", "scan_frames"),
            "index": ("IndexEntry",),
            "index_reading": ("read_index",),
            "journal": ("Journal",),
            "layout": ("index_path",),
            "lines": ("seal_of",),
            "op_durations": ("OpDurations",),
            "records": ("scan_records",),
            "running_file": ("RunningFile",),
            "stored_file": ("StoredFile",),
            "summaries": ("summaries_of",),
            "trace_files": ("find_trace_files",),
        },
    )
