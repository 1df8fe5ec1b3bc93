"""Trace folders as Arrow tables, which pandas and polars take, and as Parquet; needs the extra `data`."""

from otel_rollout.dataframes.frames import conversations, errors, messages, rewards, spans, trajectories

__all__ = ["conversations", "errors", "messages", "rewards", "spans", "trajectories"]
