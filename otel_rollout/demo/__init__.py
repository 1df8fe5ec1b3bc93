"""A small agentic rollout to try tracing with: word problems, two tools, a policy that makes mistakes."""

from otel_rollout.demo.chat import (
    ASSISTANT,
    SPECIAL_TOKENS,
    SYSTEM_PROMPT,
    find_answer,
    find_tool_calls,
    train_tokenizer,
    write_answer,
    write_message,
    write_tool_call,
)
from otel_rollout.demo.destination import choose_backends, describe, where_next, with_folder
from otel_rollout.demo.policy import (
    Behaviour,
    EngineError,
    Policy,
    SamplingParams,
    choose_behaviour,
)
from otel_rollout.demo.problems import LOOKUP_TABLE, PROBLEMS, Problem, ToolCall, problem_at
from otel_rollout.demo.rollout import (
    AgentLoop,
    AgentLoopOutput,
    Pass,
    Trajectory,
    Verifier,
    mean_reward,
    passes,
    run_pass,
)
from otel_rollout.demo.tools import Calculator, Lookup, ToolError, calculate, format_number

__all__ = [
    "ASSISTANT",
    "LOOKUP_TABLE",
    "PROBLEMS",
    "SPECIAL_TOKENS",
    "SYSTEM_PROMPT",
    "AgentLoop",
    "AgentLoopOutput",
    "Behaviour",
    "Calculator",
    "EngineError",
    "Lookup",
    "Pass",
    "Policy",
    "Problem",
    "SamplingParams",
    "ToolCall",
    "ToolError",
    "Trajectory",
    "Verifier",
    "calculate",
    "choose_backends",
    "choose_behaviour",
    "describe",
    "find_answer",
    "find_tool_calls",
    "format_number",
    "mean_reward",
    "passes",
    "problem_at",
    "run_pass",
    "train_tokenizer",
    "where_next",
    "with_folder",
    "write_answer",
    "write_message",
    "write_tool_call",
]
