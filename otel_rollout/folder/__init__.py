"""The trace folder: trajectories on disk, as archive, spool and source of replay."""

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
        "layout": ("index_path", "bundle_folder"),
        "lines": ("MAX_INDEX_LINE_BYTES", "seal_of"),
        "losses": ("append_losses", "describe_losses", "read_losses"),
        "op_durations": ("OpDurations",),
        "retention": ("FolderBound",),
        "running_file": ("RunningFile",),
        "stored_file": ("StoredFile", "ReadProblem"),
        "trace_files": ("find_trace_files",),
    },
)
