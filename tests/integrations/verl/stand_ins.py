"""Stand-ins of what the plugin hooks in verl, made of the recorded signatures, as they are and as they may become."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from inspect import Parameter
from types import MappingProxyType, SimpleNamespace
from typing import Any

from otel_rollout.hooks import Hook, Patch, install_hook, recorded
from otel_rollout.hooks.verl import rollout_trace
from otel_rollout.hooks.verl.plugin import HOOKS as PLUGINS

NEWEST = max(recorded.read("verl"), key=lambda version: [int(part) for part in version.split(".")])
HOOKS = [hook for hook in (*PLUGINS, *rollout_trace.OPS) if isinstance(hook, Hook)]
PATCHES = [hook for hook in PLUGINS if isinstance(hook, Patch)]

_ANYWHERE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Form:
    """A stand-in's form, and the way to call it."""

    parameters: tuple[Parameter, ...]
    is_async: bool
    kind: Callable[[Any], Any] | None = None
    body: str = "return result"
    """The body after the arguments are noted; `result` and `error` are for the caller."""
    by: str = "as verl does"
    is_missing: bool = False
    has_slots: bool = False
    result: Callable[[], Any] = object
    error: BaseException | None = None


def form_of(hook: Hook) -> Form:
    """Return the form that is recorded of what a hook is put on."""
    facts = recorded.read("verl")[NEWEST][recorded.key_of(hook)]
    namespace: dict[str, Any] = {}
    exec(f"def function{facts['signature']}: ...", namespace)
    kinds = {"classmethod": classmethod, "staticmethod": staticmethod}
    parameters = tuple(inspect.signature(namespace["function"]).parameters.values())
    kind = next((kinds[word] for word in facts["kind"].split() if word in kinds), None)
    return Form(parameters, facts["kind"].endswith("coroutine function"), kind)


def drifts(form: Form) -> Iterator[tuple[str, Form]]:
    """Yield what a next verl may make of it, each with a name."""
    receiver = form.parameters[:1] if form.parameters and form.parameters[0].name in ("self", "cls") else ()
    own = form.parameters[len(receiver) :]
    added = Parameter("added", Parameter.POSITIONAL_OR_KEYWORD)
    keyword = Parameter("added", Parameter.KEYWORD_ONLY)

    def taking(*parameters: Parameter, **changes: Any) -> Form:
        order = [Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, *list(Parameter.VAR_POSITIONAL.__class__)]
        ranked = sorted(parameters, key=lambda each: (order.index(each.kind), False))
        return replace(form, parameters=(*receiver, *_with_defaults_last(ranked)), **changes)

    yield "as recorded", form
    yield "called by position", replace(form, by="position")
    yield "called by keyword", replace(form, by="keyword")
    yield "called with nothing", replace(form, by="nothing")
    yield "called with something more", replace(form, by="something more")
    yield "added keyword", taking(*own, keyword)
    yield "added keyword with a default", taking(*own, keyword.replace(default=7))
    yield "added first", taking(added, *own, by="position")
    yield "added last", taking(*own, added, by="position")
    yield (
        "takes anything",
        taking(Parameter("args", Parameter.VAR_POSITIONAL), Parameter("rest", Parameter.VAR_KEYWORD)),
    )
    yield "takes nothing", taking()
    for parameter in own:
        others = [each for each in own if each is not parameter]
        yield f"without {parameter.name}", taking(*others)
        yield f"renamed {parameter.name}", taking(*(parameter.replace(name="renamed"), *others))
        if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
            keyword_only = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            yield f"{parameter.name} by keyword only", taking(*others, keyword_only)
    yield "sync become async, or back", replace(form, is_async=not form.is_async)
    yield "a function that returns a coroutine", replace(form, is_async=False, body="return later(result)")
    yield "a function that returns a task", replace(form, is_async=False, body="return task(result)")
    yield "a generator", replace(form, is_async=False, body="yield result")
    yield "an async generator", replace(form, is_async=True, body="yield result")
    results: dict[str, Callable[[], Any]] = {
        "a dict": dict,
        "None": lambda: None,
        "a tuple": lambda: ("server-0", object(), {}),
        "a generator": lambda: (number for number in range(3)),
        "an async generator": _async_generator,
        "a context manager": lambda: contextlib.nullcontext(object()),
        "a number": lambda: 3,
        "a hostile object": Hostile,
    }
    for name, result in results.items():
        yield f"returns {name}", replace(form, result=result)
    for error in (ValueError("no"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), Unheard()):
        yield f"raises {type(error).__name__}", replace(form, error=error, body="raise error")
    yield "a static method", replace(form, kind=staticmethod)
    yield "a class method", replace(form, kind=classmethod)
    yield "a callable object", replace(form, kind=CallableObject)
    yield "missing", replace(form, is_missing=True)
    yield "a class with slots", replace(form, has_slots=True)


def _with_defaults_last(parameters: list[Parameter]) -> list[Parameter]:
    has_default, found = False, []
    for parameter in parameters:
        has_default = has_default or (parameter.kind in _ANYWHERE and parameter.default is not Parameter.empty)
        needs = has_default and parameter.kind in _ANYWHERE and parameter.default is Parameter.empty
        found.append(parameter.replace(default=None) if needs else parameter)
    return found


class Unheard(BaseException):
    """No Exception."""


class Hostile:
    """Raises where it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"nobody may look at {name}")

    def __iter__(self) -> Any:
        raise RuntimeError("nobody may look inside")

    def __len__(self) -> int:
        raise RuntimeError("nobody may count")

    def __bool__(self) -> bool:
        raise RuntimeError("nobody may ask")

    def __str__(self) -> str:
        raise RuntimeError("nobody may read")

    __repr__ = __str__


class CallableObject:
    """In place of a function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.function(None, *args, **kwargs)


async def _async_generator() -> Any:
    yield 1
    yield 2


@dataclass
class StandIn:
    """A module with one function, which notes with what it is called."""

    hook: Hook
    form: Form
    received: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.result = self.form.result()
        self.module = types.ModuleType(self.hook.module)
        *path, name = self.hook.target.split(".")
        self.name = name
        self.owner: Any = self.module
        if self.hook.module == "ray":
            vars(self.module)["is_initialized"] = lambda: False
        if path:
            body: dict[str, Any] = {"__module__": self.hook.module}
            if self.form.has_slots:
                body["__slots__"] = ("nothing",)
            self.owner = type(path[0], (), body)
            setattr(self.module, path[0], self.owner)
        if not self.form.is_missing:
            setattr(self.owner, name, self._made(name))

    def _made(self, name: str) -> Any:
        parameters = [each.replace(default=Parameter.empty) for each in self.form.parameters]
        namespace: dict[str, Any] = {
            "note": self.received.append,
            "result": self.result,
            "error": self.form.error,
            "later": _later,
            "task": _task,
            "defaults": {each.name: each.default for each in self.form.parameters},
        }
        texts, star = [], False
        for given, bare in zip(self.form.parameters, parameters, strict=True):
            if given.kind is Parameter.KEYWORD_ONLY and not star:
                texts.append("*")
            star = star or given.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
            default = "" if given.default is Parameter.empty else f"=defaults[{given.name!r}]"
            texts.append(f"{bare}{default}")
        keyword = "async def" if self.form.is_async else "def"
        source = f"{keyword} {name}({', '.join(texts)}):\n    note(dict(locals()))\n    {self.form.body}\n"
        exec(source, namespace)
        function = namespace[name]
        function.__module__ = self.hook.module
        function.__qualname__ = self.hook.target
        return function if self.form.kind is None else self.form.kind(function)

    def arguments(self, flavour: Callable[[str], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the program's arguments without the receiver."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self.form.parameters:
            if parameter.name in ("self", "cls") or parameter.kind is Parameter.VAR_POSITIONAL:
                continue
            if parameter.kind is Parameter.VAR_KEYWORD:
                kwargs["uid"] = flavour("uid")
                kwargs["index"] = flavour("index")
            elif parameter.kind in _ANYWHERE and self.form.by != "keyword":
                args.append(flavour(parameter.name))
            elif parameter.kind is Parameter.KEYWORD_ONLY or self.form.by == "keyword":
                kwargs[parameter.name] = flavour(parameter.name)
        if self.form.by == "nothing":
            return [], {}
        if self.form.by == "something more":
            return [*args, "more", "yet more"], kwargs
        if self.form.by == "as verl does" and self.hook.target.endswith("._compute_score") and len(args) > 1:
            kwargs["kwargs"] = args.pop()
        return args, kwargs

    def call(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call it as verl does."""
        if self.name == "__init__":
            return self.owner(*args, **kwargs)
        owner = self.owner if isinstance(self.owner, types.ModuleType) else self.owner()
        return getattr(owner, self.name)(*args, **kwargs)


def install(stand_in: StandIn) -> None:
    """Put a hook on a stand-in, as the plugin does, or by the decorator that verl has there."""
    if stand_in.hook not in rollout_trace.OPS:
        install_hook(stand_in.hook, stand_in.module)
        return
    found = vars(stand_in.owner).get(stand_in.name)
    if inspect.isfunction(found):
        setattr(stand_in.owner, stand_in.name, rollout_trace.rollout_trace_op(found))


async def _later(result: Any) -> Any:
    await asyncio.sleep(0)
    return result


def _task(result: Any) -> Any:
    return asyncio.get_running_loop().create_task(_later(result))


# --- what the program calls it with


def opaque(name: str) -> Any:
    """Return something that has nothing of what verl's has."""
    return object()


def hostile(name: str) -> Any:
    """Return something that raises where it is looked at."""
    return Hostile()


def plausible(name: str) -> Any:
    """Return a value like verl's."""
    columns = {"uid": ["a", "b"], "index": [3, 4], "priority": [0, 1]}
    output = SimpleNamespace(prompt_ids=[1], response_ids=[2, 3], response_mask=[1, 1], extra_fields={}, num_turns=2)
    values = {
        "batch": SimpleNamespace(non_tensor_batch=columns, meta_info={"global_steps": 3}),
        "prompts": SimpleNamespace(non_tensor_batch=columns, meta_info={"global_steps": 3}),
        "data": SimpleNamespace(non_tensor_batch=columns, meta_info={}),
        "trajectory": {"step": 3, "sample_index": 3, "rollout_n": 0, "validate": False},
        "outputs": [output],
        "kwargs": {"uid": "a", "index": 3},
        "tool_call": SimpleNamespace(name="x" * 3000, arguments="[" * 100_000, tool_call_id=None),
        "prompt_ids": [1, 2, 3],
        "request_id": "request-1",
        "project_name": "project",
        "experiment_name": "experiment",
        "backend": None,
        "uid": "a",
        "index": 3,
        "trace": True,
        "validate": False,
    }
    return copy.deepcopy(values.get(name, name))


def read_only(name: str) -> Any:
    """Return a value like verl's that is read-only."""
    value = plausible(name)
    if isinstance(value, dict):
        return MappingProxyType(value)
    if isinstance(value, SimpleNamespace) and hasattr(value, "non_tensor_batch"):
        value.non_tensor_batch = MappingProxyType(value.non_tensor_batch)
        value.meta_info = MappingProxyType(value.meta_info)
    return value


def empty(name: str) -> Any:
    """Return a value like verl's that is empty."""
    value = plausible(name)
    if isinstance(value, SimpleNamespace) and hasattr(value, "non_tensor_batch"):
        value.non_tensor_batch = value.meta_info = None
        return value
    return None


FLAVOURS = [plausible, opaque, hostile, read_only, empty]
