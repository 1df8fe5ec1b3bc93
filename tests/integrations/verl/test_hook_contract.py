"""The contract of every hook, whatever a next verl makes of the hooked function.

The tests go over the plugin's own table: a hook that is added there is tested here, or has nothing recorded and fails.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import dataclasses
import functools
import gc
import inspect
import itertools
import logging
import signal
import sys
from typing import Any

import pytest

from otel_rollout import rollout_trace_attr
from otel_rollout.guard import forget_warnings
from otel_rollout.hooks import Call, Hook, call_library, guarded, install_hook, is_replaced, observe, recorded
from otel_rollout.hooks.verl import CARRIER, generation, rollout_trace
from otel_rollout.testing import InMemorySpanExporter
from tests.integrations.verl import stand_ins
from tests.integrations.verl.stand_ins import HOOKS, PATCHES, Form, StandIn, install

OURS = {"RolloutTraceConfig.init": {"backend", "max_samples_per_step_per_worker"}}
"""Arguments that a hook takes out: verl's own tracing stays off where ours is on."""


@pytest.fixture(autouse=True)
def _as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", raising=False)
    forget_warnings()
    monkeypatch.setattr("atexit.register", lambda *_: None)


async def use(hook: Hook, returned: Any) -> Any:
    """Do with what a function returns what a program does, and return what it then has."""
    if inspect.iscoroutine(returned) or asyncio.isfuture(returned):
        returned = await returned
    if inspect.isasyncgen(returned):
        return [item async for item in returned]
    if inspect.isgenerator(returned):
        return list(returned)
    if hook.target == "rollout_trace_attr" and hasattr(type(returned), "__enter__"):
        with returned as value:
            return value
    if hook.target.endswith("__init__"):
        return type(returned).__name__
    return returned


async def run(stand_in: StandIn, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the program's outcome: a value, or an exception."""
    before = dict(contextvars.copy_context().items())
    try:
        outcome = ("returned", await use(stand_in.hook, stand_in.call(args, kwargs)))
    except BaseException as error:
        outcome = ("raised", error)
    assert dict(contextvars.copy_context().items()) == before
    return outcome


def same(left: Any, right: Any) -> bool:
    """Return whether two values are identical, or plain containers of identical values."""
    if type(left) is type(right) is dict:
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if type(left) in (tuple, list) and type(left) is type(right):
        return len(left) == len(right) and all(map(same, left, right))
    return left is right or (isinstance(left, (int, str)) and left == right)


def check(
    hook: Hook, form: Form, flavour: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Have a stand-in called without us and with us, and compare all that the program gets."""
    result = form.result()
    if not (inspect.isgenerator(result) or inspect.isasyncgen(result)):
        form = dataclasses.replace(form, result=lambda: result)
    plain, hooked = StandIn(hook, form), StandIn(hook, form)
    monkeypatch.setitem(sys.modules, hook.module, hooked.module)
    args, kwargs = plain.arguments(flavour)
    is_copied = flavour is not stand_ins.hostile
    given = copy.deepcopy((args, kwargs)) if is_copied and flavour in (stand_ins.plausible, stand_ins.empty) else None
    with caplog.at_level(logging.WARNING, "otel_rollout"):
        install(hooked)
        if not form.is_missing:
            kinds = [inspect.getattr_static(each.owner, each.name) for each in (plain, hooked)]
            assert inspect.iscoroutinefunction(kinds[0]) == inspect.iscoroutinefunction(kinds[1])
            assert type(kinds[0]) is type(kinds[1])
        expected = asyncio.run(run(plain, args, kwargs))
        found = asyncio.run(run(hooked, args, kwargs))
    # The made-up step is no number, which is a warning of its own.
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("otel_rollout") and not record.getMessage().startswith("rollout_trace_attr(")
    ]
    assert len(warnings) <= 1, warnings
    assert len(hooked.received) == len(plain.received) <= 1
    ours = {"self", "cls", *OURS.get(hook.target, ())}
    for one, other in zip(plain.received, hooked.received, strict=True):
        assert {key: value for key, value in one.items() if key not in ours}.keys() == (other.keys() - ours)
        assert all(same(one[key], other[key]) for key in one.keys() - ours)
    if given is not None:
        assert (args, kwargs) == given
    assert found[0] == expected[0]
    if found[0] == "raised":
        assert type(found[1]) is type(expected[1])
        assert form.error is None or found[1] is form.error
        assert str(found[1]) == str(expected[1])
    elif hook.target == "rollout_trace_op":
        assert callable(found[1]) == callable(expected[1])
    else:
        assert same(found[1], expected[1])


# Of an `__init__` that has become a coroutine function, say.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited")
class TestEveryHook:
    """Each function that is hooked, each way in which it may have changed."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def left_coroutines(cls):
        """Free the coroutines that a changed form left unawaited here, where their warnings are ignored."""
        yield
        gc.collect()

    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    def test_program_gets_the_same(
        self,
        hook: Hook,
        rollout_spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Arguments, calls, results and exceptions are those without us, inside a trajectory; at most one warning."""
        for _name, form in stand_ins.drifts(stand_ins.form_of(hook)):
            caplog.clear()
            forget_warnings()
            with rollout_trace_attr(step=3, sample_index=3):
                check(hook, form, stand_ins.plausible, monkeypatch, caplog)

    @pytest.mark.slow
    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    def test_while_tracing_is_off(
        self, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The same holds where nothing is traced."""
        for _name, form in stand_ins.drifts(stand_ins.form_of(hook)):
            caplog.clear()
            forget_warnings()
            check(hook, form, stand_ins.plausible, monkeypatch, caplog)

    @pytest.mark.parametrize("is_known", [False, True])
    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    def test_arguments_that_are_not_as_expected(
        self,
        hook: Hook,
        is_known: bool,
        rollout_spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Arguments without what verl's have, that raise when they are looked at, or can't be written, go through."""
        monkeypatch.setattr(recorded, "is_known", lambda *_: is_known)
        forms = stand_ins.form_of(hook), dict(stand_ins.drifts(stand_ins.form_of(hook)))["a class with slots"]
        for form, flavour in itertools.product(forms, stand_ins.FLAVOURS[1:]):
            caplog.clear()
            forget_warnings()
            with rollout_trace_attr(step=3, sample_index=3):
                check(hook, form, flavour, monkeypatch, caplog)

    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    @pytest.mark.parametrize(
        "step",
        [
            *("__init__", "started", "end"),
            *(pytest.param(step, marks=pytest.mark.slow) for step in ("changed", "enter", "wrapped", "leave", "close")),
        ],
    )
    def test_observer_that_fails(
        self,
        hook: Hook,
        step: str,
        rollout_spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A fault of ours at any point is one warning; the call is made once, as it was given."""

        def fail(*_: Any) -> None:
            raise AttributeError("a fault of ours")

        def observer(call: Any) -> Any:
            if step == "__init__":
                fail()
            made = hook.observer(call)
            if made is not None:
                kind = type(made)
                made.__class__ = type(kind.__name__, (kind,), {step: fail})
            return made

        broken = copy.copy(hook)
        object.__setattr__(broken, "observer", observer)
        monkeypatch.setattr(
            rollout_trace, "OPS", (*rollout_trace.OPS, broken) if hook in rollout_trace.OPS else rollout_trace.OPS
        )
        if hook in rollout_trace.OPS:
            monkeypatch.setattr(rollout_trace, "rollout_trace_op", lambda function: observe(function, broken))
        with rollout_trace_attr(step=3, sample_index=3):
            check(broken, stand_ins.form_of(hook), stand_ins.plausible, monkeypatch, caplog)

    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    def test_what_is_not_traced_is_said(
        self, hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A hook either is installed, or one warning says what is not traced."""
        if hook in rollout_trace.OPS:
            return
        for name, form in stand_ins.drifts(stand_ins.form_of(hook)):
            caplog.clear()
            forget_warnings()
            stand_in = StandIn(hook, form)
            with caplog.at_level(logging.WARNING, "otel_rollout"):
                install_hook(hook, stand_in.module)
            found = vars(stand_in.owner).get(stand_in.name)
            is_on = is_replaced(getattr(found, "__func__", found))
            said = [record.getMessage() for record in caplog.records]
            assert said or is_on
            assert is_on or name != "as recorded"
            library = hook.module.partition(".")[0]
            assert all(
                message.startswith((f"{library}: {hook.lost}", f"{library}: {hook.lost_unknown},")) for message in said
            )

    @pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.target)
    def test_missing_class(self, hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
        """A module without the class, or the function, is one warning."""
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            install_hook(hook, object())
        library = hook.module.partition(".")[0]
        assert [record.getMessage().startswith(f"{library}: {hook.lost}") for record in caplog.records] == [True]

    @pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.target)
    @pytest.mark.parametrize("value", [None, object(), 3, int], ids=["None", "an object", "a number", "a C class"])
    def test_patches(
        self, patch: Any, value: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A patch of an unexpected object raises nothing, and is one warning at most."""
        module = type(sys)(patch.module)
        for attributes in ({}, {patch.target: value}):
            vars(module).update(attributes)
            caplog.clear()
            forget_warnings()
            with caplog.at_level(logging.WARNING, "otel_rollout"):
                install_hook(patch, module)
            assert len(caplog.records) <= 1

    def test_everything_hooked_is_recorded(self) -> None:
        """Of each hook, each version of verl that is supported is recorded."""
        keys = {recorded.key_of(hook) for hook in (*HOOKS, *PATCHES)}
        assert {version: keys ^ functions.keys() for version, functions in recorded.read("verl").items()} == {
            version: set() for version in recorded.read("verl")
        }


class TestWhatIsAdded:
    """Arguments that a hook adds to."""

    @pytest.mark.parametrize("is_known", [True, False])
    def test_place_in_the_columns_of_a_reward(
        self, is_known: bool, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The trajectory's place goes to a body that we know; a strict reward function in another never gets it."""
        monkeypatch.setattr(recorded, "is_known", lambda *_: is_known)
        [hook] = [hook for hook in HOOKS if hook.target == "AgentLoopWorker._compute_score"]
        stand_in = StandIn(hook, stand_ins.form_of(hook))
        install(stand_in)
        columns = {"uid": "a"}
        with rollout_trace_attr(step=3, sample_index=3):
            asyncio.run(stand_in.call([[]], {"kwargs": columns}))
        [received] = stand_in.received
        assert received["kwargs"].keys() - columns.keys() == ({CARRIER} if is_known else set())
        assert columns == {"uid": "a"}

    def test_body_of_a_later_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A body that came after the newest version is known where its checksum is recorded, and no other is."""
        hook = copy.copy(next(hook for hook in HOOKS if hook.target == "AgentLoopWorker._compute_score"))
        facts = {"digest": "1", "later": "2 3"}
        monkeypatch.setattr(recorded, "read", lambda _: {"0.9.1": {recorded.key_of(hook): facts}})
        recorded._digests.cache_clear()
        try:
            for found, is_known in {"1": True, "3": True, "2 3": False, "": False}.items():
                monkeypatch.setattr(recorded, "digest", lambda *_, found=found: found)
                assert recorded.is_known(hook, copy.copy) is is_known
        finally:
            recorded._digests.cache_clear()

    def test_body_that_others_have_wrapped(self) -> None:
        """A function is one that we know by its source and verl's own decorators, not within another's wrapper."""

        def function() -> None:
            return None

        @functools.wraps(function)
        def wrapper() -> None:
            return function()

        assert recorded.digest(wrapper, __name__) == recorded.digest(function, __name__) != ""
        foreign = functools.wraps(function)(eval("lambda: None", {"__name__": "another"}))
        assert recorded.digest(foreign, __name__) == ""


class TestSignals:
    """Exceptions that come up in our code and aren't ours."""

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
    def test_interruption_of_an_observer(self, error: type[BaseException], rollout_spans: InMemorySpanExporter) -> None:
        """Ctrl-C inside a hook reaches the program at once, and nothing stays set."""

        class Interrupted(generation._Generation):
            def started(self) -> None:
                raise error

        hook = copy.copy(generation.GENERATE)
        object.__setattr__(hook, "observer", Interrupted)
        stand_in = StandIn(hook, stand_ins.form_of(generation.GENERATE))
        stand_in.owner.generate = observe(stand_in.owner.generate, hook)

        async def main() -> None:
            with pytest.raises(error):
                await stand_in.call(["request"], {"prompt_ids": [1], "sampling_params": {}})
            assert generation._generation.get() is None

        asyncio.run(main())
        assert stand_in.received == []

    @pytest.mark.parametrize(
        "error", [TimeoutError("too late"), type("Limit", (ValueError,), {})(), RuntimeError("late")]
    )
    def test_alarm_of_a_grader(self, error: Exception) -> None:
        """An exception of the program's signal handler passes through a hook's step, whatever its class."""

        def too_late(*_: object) -> None:
            raise error

        previous = signal.signal(signal.SIGALRM, too_late)
        try:
            with pytest.raises(type(error)) as alarm:
                guarded(HOOKS[0], signal.raise_signal, signal.SIGALRM)
            assert alarm.value is error
        finally:
            signal.signal(signal.SIGALRM, previous)

    def test_a_library_that_raises_a_class_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What another version of a library raises, of any class, is logged, and the trainer goes on."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", raising=False)

        def step() -> None:
            raise TimeoutError("a library's")

        assert guarded(HOOKS[0], step) is None

    def test_panic_in_rust(self, caplog: pytest.LogCaptureFixture) -> None:
        """A panic in a library of Rust (a tokenizer, say) is no Exception, but a failure of the library."""
        panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})("broken")

        def fail(error: BaseException) -> None:
            raise error

        assert call_library("panic", "it failed: %s", fail, panic) is None
        assert "it failed: broken" in caplog.text
        with pytest.raises(KeyboardInterrupt):
            call_library("panic", "it failed: %s", fail, KeyboardInterrupt())


class TestReplaced:
    """Arguments that a hook replaces."""

    def test_arguments_stay_as_they_were_given(self) -> None:
        """A keyword stays a keyword, for a wrapper that takes nothing else; an argument that was not given is added."""

        def init(cls: type, project_name: str, backend: str | None, *, samples: int = 0, **others: object) -> None: ...

        signature = inspect.signature(init)
        call = Call(int, {}, (int, "p"), {"backend": "mlflow", "more": 1}, signature, True)

        assert call.replaced({"project_name": "q", "backend": None, "samples": 3, "unknown": 1}) == (
            (int, "q"),
            {"backend": None, "more": 1, "samples": 3},
        )
