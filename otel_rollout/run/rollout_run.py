"""A training run as its trace folders have it: steps, groups, trajectories, each from the trajectories' summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Lock

from otel_rollout.analysis.group_summary import GroupSummary
from otel_rollout.analysis.step_summary import StepSummary
from otel_rollout.analysis.trajectory_summary import TrajectorySummary
from otel_rollout.errors import NoTracesError
from otel_rollout.run.loaded_steps import LoadedStep, LoadedSteps
from otel_rollout.run.step_file import StepFile, find_groups, read_step_file
from otel_rollout.run.step_making import SummarisedRun, make_steps
from otel_rollout.run.step_places import FileSizes, Places, StepPlace, find_places
from otel_rollout.run.step_reading import NO_LOOSE_TRACES, LooseTraces, parts_of, read_loose, read_step
from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory
from otel_rollout.trace_folder.stored_file import Part
from otel_rollout.trace_folder.trace_files import StepKey

__all__ = ["Run"]
