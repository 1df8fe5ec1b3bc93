"""Loops in place of verl's: uni-agent, as stubs with its signatures; and others, which are a warning."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import otel_rollout
from otel_rollout.guard import forget_warnings
from otel_rollout.hooks import install_hook
from otel_rollout.hooks.verl import plugin
from otel_rollout.testing import InMemorySpanExporter

CONFIG = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(trace={"backend": "file"})))


@dataclass
class Trajectory:
    """What a session leaves to training."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    reward_score: float | None = None
    num_turns: int = 2
    extra_fields: dict[str, Any] = field(default_factory=dict)


class GatewaySession:
    """A conversation at the gateway."""

    def __init__(self, session_id: str) -> None:
        self.handle = SimpleNamespace(session_id=session_id)
        self.turns = 0

    async def run_generation(self, request: dict[str, Any], backend: Any) -> Any:
        """Answer, but fail in the third turn."""
        self.turns += 1
        await asyncio.sleep(0)
        if self.turns == 3:
            raise ValueError("the engine is gone")
        message = {"role": "assistant", "content": f"answer {self.turns}"}
        return SimpleNamespace(assistant_msg=message, finish_reason="stop", prompt_tokens=7, completion_tokens=3)

    async def finalize(self) -> list[Trajectory]:
        """Return the outputs: the conversation before a compaction, and that after it."""
        return [Trajectory([1], [2, 3], [1, 0]), Trajectory([1, 2], [3, 4], [1, 1])]


class _GatewayActor:
    def __init__(self, config: Any, backend: Any) -> None:
        self.backend = backend
        self.sessions: dict[str, GatewaySession] = {}

    @property
    def __ray_call__(self) -> Any:
        return SimpleNamespace(remote=lambda function, *args: function(self, *args))


class GatewayManager:
    """Knows the gateway of each session."""

    def __init__(self, gateways: list[_GatewayActor]) -> None:
        self.gateways = gateways

    def _get_gateway(self, session_id: str) -> tuple[_GatewayActor, int]:
        return self.gateways[0], 0

    async def create_session(self, session_id: str, **kwargs: Any) -> GatewaySession:
        """Create one."""
        self.gateways[0].sessions[session_id] = GatewaySession(session_id)
        return self.gateways[0].sessions[session_id]


class OpenAICompatibleAgentFramework:
    """Runs the sessions of a batch."""

    def __init__(self, gateway_manager: Any, *, runner_registry: dict[str, Any], rollout_config: Any = None) -> None:
        self.gateway_manager = gateway_manager
        self.turns = runner_registry

    async def generate_sequences(self, prompts: dict[str, Any]) -> Any:
        """Run each prompt twice."""
        columns = {name: values for name, values in prompts.items() if isinstance(values, list)}
        runs = [
            self._run_session(
                sample_fields={name: values[row] for name, values in columns.items()},
                sample_index=row,
                session_index=number,
                global_steps=prompts["global_steps"],
                runner_name="swe",
                runner_config=None,
            )
            for row in range(len(columns["uid"]))
            for number in range(2)
        ]
        return await asyncio.gather(*runs, return_exceptions=True)

    async def _run_session(
        self,
        *,
        sample_fields: dict[str, Any],
        sample_index: int,
        session_index: int,
        global_steps: int,
        runner_name: str,
        runner_config: Any,
    ) -> Any:
        session = await self.gateway_manager.create_session(f"session-{sample_index}-{session_index}")
        gateway = self.gateway_manager.gateways[0]
        messages = list(sample_fields["raw_prompt"])

        async def at_the_gateway() -> list[Trajectory]:
            for _ in range(self.turns["swe"]):
                outcome = await session.run_generation({"model": "policy", "messages": list(messages)}, gateway.backend)
                messages.extend([outcome.assistant_msg, {"role": "user", "content": "go on"}])
            return await session.finalize()

        # Another process has none of this one's context.
        import contextvars

        outputs = await asyncio.get_running_loop().create_task(at_the_gateway(), context=contextvars.Context())
        outputs[-1].reward_score = 0.5
        outputs[-1].extra_fields = {"reward_extra_info": {"passed": 1.0}, "finish_reason": "stop"}
        return outputs, sample_fields


class AgentFrameworkRolloutAdapter:
    """verl's manager in the trainer's process."""

    framework_worker: Any = None

    @classmethod
    def create(cls, *, config: Any, llm_client: Any, **_: Any) -> AgentFrameworkRolloutAdapter:
        """Create it."""
        return cls()


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The hooked stubs, by class name."""
    hooked: dict[str, Any] = {}
    for hook in plugin.uni_agent.HOOKS:
        name = hook.target.partition(".")[0]
        original = globals()[name]
        if name not in hooked:
            hooked[name] = type(name, (original,), {**vars(original)})
        module = types.ModuleType(hook.module)
        setattr(module, name, hooked[name])
        install_hook(hook, module)
    monkeypatch.setattr(plugin.late_rewards, "managers", managers := set())
    monkeypatch.setattr(plugin.fates, "managers", managers)
    monkeypatch.setitem(globals(), "GatewaySession", hooked["GatewaySession"])
    yield hooked
    plugin.uni_agent._sessions.clear()


def run(modules: dict[str, Any], *, turns: int = 2, **columns: Any) -> tuple[Any, Any]:
    """Roll two prompts out; return the framework and the results."""
    gateway = modules["_GatewayActor"](None, SimpleNamespace(config=CONFIG))
    manager = modules["GatewayManager"]([gateway])
    rollout = CONFIG.actor_rollout_ref.rollout
    framework = modules["OpenAICompatibleAgentFramework"](
        manager, runner_registry={"swe": turns}, rollout_config=rollout
    )
    prompts = {
        "uid": ["uid-a", "uid-b"],
        "index": [10, 11],
        "raw_prompt": [[{"role": "user", "content": text}] for text in ("fix a", "fix b")],
        "global_steps": 4,
        **columns,
    }
    return framework, asyncio.run(framework.generate_sequences(prompts))


def delivered(exporter: InMemorySpanExporter) -> list[Any]:
    """The spans, after a flush."""
    assert otel_rollout.flush(60)
    return exporter.spans


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task with a context of its own")
class TestUniAgent:
    """A session of uni-agent is a trajectory."""

    def test_trajectory_with_turns_and_reward(
        self, modules: dict[str, Any], rollout_spans: InMemorySpanExporter
    ) -> None:
        """Each session is a trajectory with its numbers, its reward and the turns that the gateway ran."""
        _, results = run(modules)
        assert [outputs[-1].reward_score for outputs, _ in results] == [0.5] * 4
        spans = delivered(rollout_spans)
        roots = {span.context.trace_id: dict(span.attributes) for span in spans if span.parent is None}
        assert {
            (root["rollout.step"], root["rollout.sample_index"], root["rollout.rollout_n"]) for root in roots.values()
        } == {(4, index, number) for index in (10, 11) for number in range(2)}
        for root in roots.values():
            assert (root["rollout.reward"], json.loads(root["rollout.reward_parts"])) == (0.5, {"passed": 1.0})
            assert (root["rollout.num_turns"], root["rollout.num_outputs"], root["rollout.model_tokens"]) == (2, 2, 3)
            assert root["rollout.uid"] == {10: "uid-a", 11: "uid-b"}[root["rollout.sample_index"]]
        turns = [span for span in spans if span.name == "GatewaySession.run_generation"]
        assert len(turns) == 8
        for span in turns:
            attributes = dict(span.attributes)
            assert span.context.trace_id in roots
            assert attributes["openinference.span.kind"] == "LLM"
            assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (7, 3)
            [answer] = json.loads(attributes["gen_ai.output.messages"])
            assert answer["parts"][0]["content"] in ("answer 1", "answer 2")
        assert plugin.uni_agent._sessions == {}

    def test_failure(self, modules: dict[str, Any], rollout_spans: InMemorySpanExporter) -> None:
        """A session that fails is an error, and the program has its exception."""
        _, results = run(modules, turns=3)
        assert [str(error) for error in results] == ["the engine is gone"] * 4
        roots = [dict(span.attributes) for span in delivered(rollout_spans) if span.parent is None]
        assert [root["rollout.status"] for root in roots] == ["error"] * 4

    def test_advantage_and_fate(self, modules: dict[str, Any], rollout_spans: InMemorySpanExporter) -> None:
        """What the v1 trainer decides reaches the sessions by the framework's worker."""
        framework, _ = run(modules)
        adapter = modules["AgentFrameworkRolloutAdapter"].create(config=CONFIG, llm_client=None)
        worker = SimpleNamespace(framework=framework)
        adapter.framework_worker = SimpleNamespace(
            __ray_call__=SimpleNamespace(remote=lambda function, *args: function(worker, *args))
        )
        assert plugin.late_rewards.managers == {adapter}
        [known] = [
            plugin.late_rewards.workers()[0].__ray_call__.remote(
                plugin.fates._record, b'{"train_uid-a_1":{"fate":"stale"}}'
            )
        ]
        assert known == 1
        [late] = [span for span in delivered(rollout_spans) if span.name == "annotate"]
        assert (late.attributes["rollout.fate"], late.attributes["rollout.sample_index"]) == ("stale", 10)

    def test_trajectories_that_no_worker_knows_are_counted(
        self,
        modules: dict[str, Any],
        rollout_spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Facts are lost with one warning and a count, but not those of a trajectory that isn't sampled."""
        forget_warnings()
        framework, _ = run(modules)
        vars(framework)["_otel_rollout_carriers"]["train_uid-c_0"] = ""
        adapter = modules["AgentFrameworkRolloutAdapter"].create(config=CONFIG, llm_client=None)
        worker = SimpleNamespace(framework=framework)
        adapter.framework_worker = SimpleNamespace(
            __ray_call__=SimpleNamespace(remote=lambda function, *args: function(worker, *args))
        )
        ray = SimpleNamespace(wait=lambda answers, num_returns, timeout: (answers, []), get=list)
        monkeypatch.setitem(sys.modules, "ray", ray)
        before = otel_rollout.stats().lost_annotations.get("unknown trajectory", 0)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            keys = ["train_uid-a_0", "train_uid-c_0", "train_uid-d_0", "train_uid-d_1"]
            plugin.fates._report({key: {"fate": "trained"} for key in keys})
            plugin.fates._confirm(0)
        assert otel_rollout.stats().lost_annotations["unknown trajectory"] - before == 2
        assert [record.getMessage() for record in caplog.records] == [
            "verl: the advantage and fate of some trajectories are lost: 2 that no worker remembers"
        ]

    def test_validation(self, modules: dict[str, Any], rollout_spans: InMemorySpanExporter) -> None:
        """A validation pass says so, and has no fate to come."""
        framework, _ = run(modules, validate=True, index=[3, 3])
        roots = [dict(span.attributes) for span in delivered(rollout_spans) if span.parent is None]
        assert all(root["rollout.validate"] for root in roots)
        assert {root["rollout.sample_index"] for root in roots} == {"uid-a", "uid-b"}
        assert plugin.late_rewards.take_carrier(framework, "train_uid-a_0") is None


class TestOtherLoops:
    """Classes that `agent_loop_manager_class` names."""

    @pytest.mark.parametrize(
        ("backend", "name", "warnings"),
        [
            ("file", "agentlightning.verl.RolloutManager", 1),
            ("file", "uni_agent.framework.entry.AgentFrameworkRolloutAdapter", 0),
            (None, "agentlightning.verl.RolloutManager", 0),
        ],
    )
    def test_what_is_not_covered_is_said(
        self,
        backend: str | None,
        name: str,
        warnings: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A class in place of verl's is one warning with its name, if a backend for traces is set."""
        forget_warnings()
        monkeypatch.setattr(plugin.replaced_loops, "_is_traced", set())

        class Trainer:
            def __init__(self, config: Any) -> None: ...

        def load_class_from_fqn(fqn: str, description: str = "class") -> type:
            return Trainer

        trainers = {hook.target.removesuffix(".__init__"): hook for hook in plugin.replaced_loops.HOOKS}
        modules = types.ModuleType("verl")
        vars(modules).update(PPOTrainer=Trainer, load_class_from_fqn=load_class_from_fqn)
        install_hook(trainers["PPOTrainer"], modules)
        install_hook(trainers["load_class_from_fqn"], modules)
        rollout = SimpleNamespace(trace={"backend": backend})
        modules.PPOTrainer(SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout)))
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            for description in ("CheckpointCallback", "AgentLoopManager", "AgentLoopManager"):
                assert modules.load_class_from_fqn(name, description) is Trainer
        assert len(caplog.records) == warnings
        assert all(name in record.getMessage() for record in caplog.records)

    def test_subclass_of_verls(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """A class that derives from verl's manager is traced as that is."""
        manager = type("AgentLoopManager", (), {})
        name = "verl.experimental.agent_loop.agent_loop"
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(AgentLoopManager=manager))
        monkeypatch.setattr(plugin.replaced_loops, "_is_traced", {True})
        call = SimpleNamespace(arguments={"description": "AgentLoopManager", "fqn": "mine.Manager"})
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            plugin.replaced_loops._check_manager(call, type("Manager", (manager,), {}))
        assert not caplog.records

    @pytest.mark.parametrize(("clears", "warnings"), [(False, 0), (True, 1)])
    def test_sampler_of_the_users(
        self, clears: bool, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A sampler that derives from verl's is covered, unless it throws groups away by code of its own."""
        forget_warnings()
        buffer = type("ReplayBuffer", (), {"_clear_groups": lambda self, partition_id, uids: None})
        own = {"_clear_groups": lambda self, partition_id, uids: None} if clears else {}
        sampler = type("UserSampler", (buffer,), own)
        monkeypatch.setitem(sys.modules, "verl.trainer.ppo.v1.replay_buffer", SimpleNamespace(ReplayBuffer=buffer))
        monkeypatch.setattr(plugin.replaced_loops, "_is_traced", {True})

        class Trainer:
            def _build_replay_buffer(self) -> Any:
                return sampler()

        modules = types.ModuleType("verl")
        vars(modules).update(PPOTrainer=Trainer)
        hooks = {hook.target: hook for hook in plugin.replaced_loops.HOOKS}
        install_hook(hooks["PPOTrainer._build_replay_buffer"], modules)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            Trainer()._build_replay_buffer()
        assert len(caplog.records) == warnings
        assert all("custom_sampler=UserSampler" in record.getMessage() for record in caplog.records)
