"""The trace folder: trajectories on disk, as archive, spool and source of replay."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.folder.append_file import AppendFile, FileGoneError
    from otel_rollout.folder.compression import BodyTooLargeError, decompress
    from otel_rollout.folder.frames import append_frame, frame_of, read_frame, scan_frames
    from otel_rollout.folder.index import IndexEntry, entry_of, index_line
    from otel_rollout.folder.index_reading import read_index
    from otel_rollout.folder.journal import Journal
    from otel_rollout.folder.layout import bundle_folder, index_path, running_path
    from otel_rollout.folder.lines import MAX_INDEX_LINE_BYTES, seal_of
    from otel_rollout.folder.losses import append_losses, describe_losses, read_losses
    from otel_rollout.folder.op_durations import OpDurations
    from otel_rollout.folder.retention import FolderBound
    from otel_rollout.folder.running_file import RunningFile
    from otel_rollout.folder.stored_file import ReadProblem, StoredFile
    from otel_rollout.folder.trace_files import find_trace_files
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "append_file": ("FileGoneError", "AppendFile"),
            "compression": ("BodyTooLargeError", "decompress"),
            "frames": ("append_frame", "frame_of", "read_frame", "scan_frames"),
            "index": ("IndexEntry", "entry_of", "index_line"),
            "index_reading": ("read_index",),
            "journal": ("Journal",),
            "layout": ("index_path", "bundle_folder", "running_path"),
            "lines": ("MAX_INDEX_LINE_BYTES", "seal_of"),
            "losses": ("append_losses", "describe_losses", "read_losses"),
            "op_durations": ("OpDurations",),
            "retention": ("FolderBound",),
            "running_file": ("RunningFile",),
            "stored_file": ("StoredFile", "ReadProblem"),
            "trace_files": ("find_trace_files",),
        },
    )
