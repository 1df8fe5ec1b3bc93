"""The trajectory: a context manager that makes a root span."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, MutableMapping
from contextvars import Token
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from opentelemetry.context import Context
from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.trace import Link, Span, StatusCode, get_current_span

from otel_rollout import semconv
from otel_rollout.guard.log_once import pass_on, warn_once
from otel_rollout.record import runtime
from otel_rollout.record.annotate import PREFIX, TOTALS, annotate
from otel_rollout.record.attribute_values import read_tag
from otel_rollout.record.call_fields import fields_of_call, with_parameters, without_functions
from otel_rollout.record.callables import is_undecorated_yet, like, require_function
from otel_rollout.record.context import (
    SILENCE,
    Frame,
    attach,
    current_frame,
    get_current,
    in_silence,
    is_inside,
    leave,
    leave_variable,
    with_frame,
)
from otel_rollout.record.driver import RUNNING, Scope, follow, is_generator_function, is_kind, wrap
from otel_rollout.record.handle import HasHandle, Place, ended, place_of, remember, tags_of
from otel_rollout.record.recorded import Recorded, record_span
from otel_rollout.record.snapshot import take_snapshot
from otel_rollout.record.trajectory_state import TrajectoryState
from otel_rollout.settings import is_disabled

if TYPE_CHECKING:
    from otel_rollout.record.recording_span import RolloutSpan
    from otel_rollout.record.runtime import RunningPipeline
    from otel_rollout.semconv import SpanKind

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OWN: Final = (
    semconv.STATUS,
    semconv.REWARD,
    semconv.REWARD_PARTS,
    semconv.ADVANTAGE,
    semconv.FATE,
    semconv.TRAINED,
    *TOTALS,
)
"""Attributes that stay on a root beyond its limit of attributes, as tags do."""

MAX_METADATA_CHARACTERS: Final = 1000
"""`metadata` serves filters, and leaves out longer values."""


def rollout_trace_attr(
    sample_index: Any = None,
    step: Any = None,
    rollout_n: Any = None,
    name: str | Callable[..., str] = "rollout_trace",
    validate: bool | Callable[..., bool] = False,
    trace: bool | Callable[..., bool] = True,
) -> Trajectory:
    """Trace what runs inside as one trajectory: a root span with these tags, in a trace of its own.

    It works with `with`, with `async with`, and as a decorator, which makes a trajectory of each call; `as trajectory`
    gives its ids. The decorator also takes functions as arguments, which it calls with the arguments of each call:
    `@rollout_trace_attr(sample_index=lambda task, **_: task.id)`. One that raises leaves its argument out, with one
    warning. If `sample_index`, `step` or `rollout_n` isn't given, and the function has a parameter of this name, the
    call's argument counts.

    The names, their order and their defaults are the same as in verl's `rollout_trace_attr`
    (https://verl.readthedocs.io/en/latest/advance/rollout_trace.html).

    Args:
        sample_index: The prompt's index in the dataset, or a text such as a uid.
        step: The training step.
        rollout_n: The index of this rollout among the n of its prompt.
        name: The root span's name.
        validate: True in a validation pass.
        trace: False silences everything inside, other instrumentations included.

    Raises:
        TypeError: It decorates a function without parentheses.
    """
    kind = type(sample_index)
    if kind is FunctionType or kind is classmethod or kind is staticmethod:
        caller = sys._getframe(1)  # noqa: SLF001 - `inspect.stack` reads the source of every frame
        if is_undecorated_yet(sample_index, caller):
            raise TypeError("@rollout_trace_attr needs parentheses: @rollout_trace_attr(sample_index=…, step=…)")
    return Trajectory(sample_index, step, rollout_n, name, validate, trace)


def of_place(place: Place) -> Trajectory:
    """Return a trajectory that has ended or runs elsewhere."""
    tags = place.tags
    trajectory = Trajectory(
        tags.get(semconv.SAMPLE_INDEX),
        tags.get(semconv.STEP),
        tags.get(semconv.ROLLOUT_N),
        "",
        tags.get(semconv.VALIDATE) is True,
    )
    trajectory._place, trajectory._pipeline = place, runtime.pipeline  # noqa: SLF001 - of this module
    return trajectory


def of_handle(handle: str) -> Trajectory:
    """Return the trajectory of a handle; one without a trace if it is no handle."""
    place = place_of(handle)
    if place is not None:
        return of_place(place)
    trajectory = Trajectory(None, None, None, "", validate=False)
    trajectory._is_unknown = bool(handle)  # noqa: SLF001 - of this module
    return trajectory


def _decorate_again(given: tuple[Any, ...], function: Any) -> Any:
    return Trajectory(*given)(function)


class Trajectory(HasHandle):
    """One trajectory, from `rollout_trace_attr`; with tracing off, or with `trace=False`, one without a trace.

    Its own attributes are what `rollout_trace_attr` was given: `sample_index`, `step`, `rollout_n`, `name`, `validate`
    and `trace`.
    """

    def __init__(
        self, sample_index: Any, step: Any, rollout_n: Any, name: Any, validate: Any, trace: Any = True
    ) -> None:
        self.sample_index = sample_index
        self.step = step
        self.rollout_n = rollout_n
        self.name: str = name
        self.validate: bool = validate
        self.trace: bool = trace
        self._pipeline: RunningPipeline | None = None
        self._state: TrajectoryState | None = None
        self._root: RolloutSpan | None = None
        self._place: Place | None = None
        self._registry: MutableMapping[int, Trajectory] | None = None
        """The registry that has it while `start_trajectory` keeps it open."""
        self._is_unknown = False
        """True if somebody looked for it, and did not find it."""
        self._inner: Context | None = None
        """The context inside, while it is entered."""
        self._others: list[Trajectory] = []
        """The trajectories of tasks that entered it while another was in it."""
        self._token: Token[Context] | None = None

    def __repr__(self) -> str:
        tags = f"step={self.step!r} sample_index={self.sample_index!r} rollout_n={self.rollout_n!r}"
        return f"<Trajectory {self.trace_id or 'without a trace'} {tags}>"

    @property
    def _given(self) -> tuple[Any, ...]:
        return self.sample_index, self.step, self.rollout_n, self.name, self.validate, self.trace

    @property
    def trace_id(self) -> str | None:
        """The trace's id, 32 hexadecimal digits, during and after the trajectory; None if it isn't traced."""
        return None if self._place is None else f"{self._place.root.trace_id:032x}"

    @property
    def handle(self) -> str:
        """A text by which `annotate` finds the trajectory, at any time and in any process; empty if it isn't traced.

        A pickled trajectory is this handle.
        """
        if self._place is None:
            return "unknown" if self._is_unknown else ""
        return self._place.handle

    @property
    def url(self) -> str | None:
        """The URL of the trajectory's page in the first backend that has one; None if none has, or not yet.

        Some URLs have an id that the backend gives to a project: they are known once it has got the first spans.
        """
        pipeline, place = self._pipeline, self._place
        if pipeline is None or place is None:
            return None
        ids = f"{place.root.trace_id:032x}", f"{place.root.span_id:016x}"
        for exporter in pipeline.exporters.values():
            look_up = getattr(exporter, "trajectory_url", None)
            if look_up is not None and (url := look_up(*ids, pipeline.project_name)):
                return str(url)
        return None

    def annotate(self, **facts: Any) -> None:
        """Set attributes of the trajectory, at any time and in any process: `otel_rollout.annotate` with this one.

        Args:
            **facts: As `otel_rollout.annotate` takes them: `reward`, `rewards`, `advantage`, `fate` and others.
        """
        annotate(**facts, trajectory=self)

    def record(
        self,
        name: str,
        kind: SpanKind = "CHAIN",
        *,
        start_time: int | None = None,
        end_time: int | None = None,
        input: Any = None,  # noqa: A002 - the field's word for it
        output: Any = None,
        error: BaseException | str | None = None,
        parent: Span | None = None,
        **attributes: Any,
    ) -> Span | None:
        """Add a span of something that is done; also after the trajectory's end.

        Args:
            name: Its name.
            kind: Its OpenInference span kind, as `rollout_trace_op` takes it.
            start_time: Its start in nanoseconds since 1970; `end_time` if None.
            end_time: Its end; now if None.
            input: Its input, such as the messages; any value.
            output: Its output; any value.
            error: The error that it failed with.
            parent: The span that it was part of, from an earlier call; the root if None.
            **attributes: Its attributes: texts, numbers, booleans, or lists of one of these.

        Returns:
            The span, which has ended; None if the trajectory isn't traced.
        """
        pipeline, place = runtime.pipeline, self._place
        if pipeline is None or place is None:
            return None
        given = Recorded(name, kind, start_time, end_time, input, output, error, attributes)
        try:
            state = self._state or TrajectoryState(place.tags)
            return record_span(pipeline, state, parent or self._root or ended(place.root), given)
        except BaseException:
            pass_on("recording a span")
            return None

    def end(
        self, error: BaseException | str | None = None, *, status: str | None = None, end_time: int | None = None
    ) -> None:
        """End a trajectory of `start_trajectory`.

        Args:
            error: The error that it failed with.
            status: `completed`, `error`, `cancelled` or `truncated`; without it, `error` decides.
            end_time: Its end in nanoseconds since 1970; now if None.
        """
        if self._registry is None or self._registry.pop(id(self), None) is None:
            return
        if status is not None:
            self.annotate(status=status)
        if isinstance(error, str) and self._root is not None:
            self._root.set_status(StatusCode.ERROR, error)
            self.annotate(status=status or "error")
        self._end(None if isinstance(error, str) else error, end_time)

    def __reduce__(self) -> tuple[Callable[..., Trajectory], tuple[Any, ...]]:
        """Pickle as the handle; one that has not begun, as what it was given."""
        if self._place is None and not self._is_unknown:
            return Trajectory, self._given
        return of_handle, (self.handle,)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function or a coroutine function: each call is a trajectory with these tags.

        Raises:
            TypeError: It is a class or not callable. Or it is a generator function: its caller runs between its steps,
                which is no part of a trajectory.
        """
        target: Any = function
        if isinstance(target, (classmethod, staticmethod)):
            return cast("_Function", type(target)(self(target.__func__)))
        require_function(target, "rollout_trace_attr")
        if is_kind(is_generator_function, target) or is_kind(inspect.isasyncgenfunction, target):
            raise TypeError("rollout_trace_attr doesn't decorate generator functions: use `with` around the loop")
        given = self._given
        of_call = with_parameters(given, target)
        label = getattr(target, "__qualname__", type(target).__qualname__)

        def begin(held: list[Any]) -> _DecoratedCall:
            return _DecoratedCall(Trajectory(*fields_of_call(label, of_call, held[1], held[0])))

        return cast("_Function", like(target, wrap(target, begin), functools.partial(_decorate_again, given)))

    async def __aenter__(self) -> Trajectory:  # noqa: PYI034 - Python 3.10 has no Self
        return self.__enter__()

    async def __aexit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, exception, traceback)

    def __enter__(self) -> Trajectory:  # noqa: PYI034 - Python 3.10 has no Self
        pipeline = runtime.pipeline
        if pipeline is None:
            _note_missing_init()
            return self
        if self._inner is not None:
            return self._enter_again()
        self._pipeline, self._place = pipeline, None
        try:
            self._start(pipeline)
        except BaseException as error:
            self._break_off(error, "starting a trajectory")
        return self

    def _enter_again(self) -> Trajectory:
        """Enter a trajectory of its own: another task is in this one."""
        other = Trajectory(*self._given)
        other.__enter__()
        self._others.append(other)
        return other

    def _start(self, pipeline: RunningPipeline) -> None:
        context = get_current()
        if current_frame(context) is SILENCE:
            self._inner = context
            return
        is_traced = self.trace and self._make_root(pipeline, context) is not None
        self._inner = with_frame(context, Frame(self._state, self._root)) if is_traced else in_silence(context)
        self._token = attach(self._inner)

    def _start_alone(self, start_time: int | None, registry: MutableMapping[int, Trajectory]) -> None:
        """Start it for `start_trajectory`, which keeps what is open."""
        self._pipeline = pipeline = runtime.pipeline
        if pipeline is None:
            _note_missing_init()
        context = get_current()
        if pipeline is None or not self.trace or current_frame(context) is SILENCE:
            return
        try:
            if self._make_root(pipeline, context, start_time) is not None:
                self._registry = registry
                registry[id(self)] = self
        except BaseException as error:
            self._break_off(error, "starting a trajectory")

    def _make_root(
        self, pipeline: RunningPipeline, context: Context, start_time: int | None = None
    ) -> RolloutSpan | None:
        """Start the root; return None if the sampler drops the trajectory."""
        sample_index, step, rollout_n, name, validate, _ = without_functions(self._given)
        tags = tags_of(step, sample_index, rollout_n, validate=validate, experiment_name=pipeline.experiment_name)
        state = TrajectoryState(tags)
        ambient = get_current_span(context).get_span_context()
        links = [Link(ambient)] if ambient.is_valid else []
        self._state = state
        name = str(read_tag(name))
        self._root = root = pipeline.tracer.start_root(name, state, links, start_time)
        if root is None:
            return None
        state.root = root
        self._place = Place(root.get_span_context(), tags, pipeline.settings.run_id)
        attributes = {
            semconv.SPAN_KIND: "AGENT",
            semconv.OPERATION_NAME: semconv.OPERATION_NAMES["AGENT"],
            semconv.AGENT_NAME: name,
            semconv.CONVERSATION_ID: f"{root.get_span_context().trace_id:032x}",
        }
        group = state.group(pipeline.run)
        if group is not None:
            attributes[semconv.SESSION_ID] = group
        root.set_attributes(attributes)
        pipeline.open_trajectories.started(state)
        remember(self._place)
        return root

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        entered = self._entered_here() if self._others else self
        if entered is not self:
            self._others.remove(entered)
        entered._end(exception)  # noqa: SLF001 - of this class

    def _entered_here(self) -> Trajectory:
        """Return the trajectory that this task has entered."""
        current = get_current()
        return next((each for each in self._others if is_inside(current, each._inner)), self)  # noqa: SLF001 - likewise

    def _end(self, exception: BaseException | None, end_time: int | None = None) -> None:
        try:
            self._leave()
            root, state, pipeline = self._root, self._state, self._pipeline
            if root is None or state is None or pipeline is None:
                return
            if root.is_recording():
                self._finish(pipeline, root, state, exception)
                root.end(end_time)
            self._forget(state)
        except BaseException as error:
            self._break_off(error, "ending a trajectory")

    def _break_off(self, error: BaseException, where: str) -> None:
        """Leave the context and end the root, after an exception in the middle of another step; raise the program's."""
        self._leave()
        root, state, pipeline = self._root, self._state, self._pipeline
        if root is not None and root.is_recording() and pipeline is not None:
            root.set_attribute(semconv.STATUS, root.fail(error))
            root.end()
        if state is not None:
            self._forget(state)
        pass_on(where)

    def _forget(self, state: TrajectoryState) -> None:
        if self._pipeline is not None:
            self._pipeline.open_trajectories.ended(state)
        # The root refers to its trajectory: breaks the cycle, which only the collector would free.
        state.root = None
        # So do ops that never end.
        state.open_ops.clear()
        self._root = self._state = None

    def _pause(self) -> None:
        """Leave the context until `_resume`."""
        if self._token is not None:
            leave_variable(self._token)
            self._token = None

    def _resume(self) -> None:
        if self._inner is not None and self._token is None:
            self._token = attach(self._inner)

    def _leave(self) -> None:
        token, inner = self._token, self._inner
        if token is not None and inner is not None:
            leave(token, inner)
        self._token = self._inner = None

    @staticmethod
    def _finish(
        pipeline: RunningPipeline, root: RolloutSpan, state: TrajectoryState, exception: BaseException | None
    ) -> None:
        status = "completed" if exception is None else root.fail(exception)
        annotations: dict[str, Any] = {semconv.STATUS: status, **state.annotations}
        if exception is None and annotations[semconv.STATUS] == "error":
            root.set_status(StatusCode.ERROR, "annotated as error")
        for key, total in zip(TOTALS, (state.turns, state.input_tokens, state.output_tokens), strict=True):
            if total:
                annotations.setdefault(key, total)
        own: dict[str, Any] = {key: annotations.pop(key) for key in _OWN if key in annotations}
        parts = own.pop(semconv.REWARD_PARTS, None)
        # Phoenix filters on their short names.
        metadata = {
            key.removeprefix(PREFIX): value
            for key, value in {**state.tags, **own, **annotations}.items()
            if not isinstance(value, (str, tuple)) or len(value) <= MAX_METADATA_CHARACTERS
        }
        own[semconv.METADATA] = take_snapshot(metadata)
        if parts is not None:
            own[semconv.REWARD_PARTS] = take_snapshot(parts)
        pipeline.tracer.set_annotations(root, own, annotations)


class _DecoratedCall(Scope):
    """One call of a function that `rollout_trace_attr` decorates: the scope of its trajectory."""

    __slots__ = ("_trajectory",)

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        trajectory.__enter__()

    def finish(self, result: Any) -> Any:
        """End the trajectory with the result, or with the end of a coroutine that the function returns."""
        if type(result) in RUNNING and inspect.isawaitable(result):
            references = sys.getrefcount(result)
            later = follow(self, result, references)
            if later is not None:
                return later
        self._trajectory.__exit__(None, None, None)
        return result

    def fail(self, error: BaseException) -> None:
        """End the trajectory with the exception that leaves the function."""
        self._trajectory.__exit__(type(error), error, None)

    def pause(self) -> None:
        """Leave the trajectory's context."""
        self._trajectory._pause()  # noqa: SLF001 - of this module

    def resume(self) -> None:
        """Enter it again."""
        self._trajectory._resume()  # noqa: SLF001 - of this module


def _note_missing_init() -> None:
    """Log one line if a variable asks for traces of this process, in which nobody has called `init`."""
    if runtime.is_init_called:
        return
    runtime.is_init_called = True
    asked = os.environ.get(OTEL_TRACES_EXPORTER, "").strip()
    if asked not in ("", "none") and not is_disabled():
        warn_once(
            "init was not called",
            "a trajectory runs untraced: %s=%s asks for traces, but otel_rollout.init() was not called in this process",
            OTEL_TRACES_EXPORTER,
            asked,
        )
