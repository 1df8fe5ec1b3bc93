"""The record of a span's payload, made while its messages are there: their texts aren't parsed again for it."""

from __future__ import annotations

from otel_rollout import semconv
from otel_rollout.facts.prompt_texts import OpenPrompts, text_of_messages, text_of_prompt
from otel_rollout.facts.span_record import has_result, record_of_call, record_of_generation
from otel_rollout.finish.chat_writer import is_note
from otel_rollout.finish.span_draft import SpanDraft
from otel_rollout.guard.log_once import internal_error
from otel_rollout.messages import ChatSide


def record(draft: SpanDraft) -> None:
    """Make the record of an LLM or a TOOL op; without one the writer of a folder makes it of the attributes."""
    if draft.recorded is None or draft.is_copy:
        return
    try:
        if draft.turn is not None:
            _record_generation(draft, *draft.turn)
        elif draft.kind == "TOOL":
            attributes, is_failed = draft.attributes, not draft.status.is_ok
            name = attributes.get(semconv.TOOL_NAME)
            name = name if type(name) is str and name else draft.name
            output = _text(draft.output_json) if draft.has_output else None
            value = draft.output
            # Other keys are texts in its JSON alone.
            value = value if type(value) is dict and all(type(key) is str for key in value) else None
            draft.record = record_of_call(name, _text(draft.input_json), output, value, is_failed=is_failed)
    except Exception:
        internal_error("recording a payload")


def _record_generation(draft: SpanDraft, asked: ChatSide | None, answered: ChatSide | None) -> None:
    output, trajectory = _text(draft.output_json), draft.trajectory
    if asked is None:
        text, is_clear = text_of_prompt({**draft.attributes, semconv.INPUT_VALUE: _text(draft.input_json)})
    elif (asked.continues or asked.messages[0].role == "tool") and semconv.PREFIX_BROKEN not in draft.attributes:
        text, is_clear = b"", True
    else:
        # Before limits: a prompt that they cut continues the one before all the same.
        text, is_clear = text_of_messages(b"[%b" % b",".join(asked.encoded)), True
    prompts = OpenPrompts() if trajectory is None or trajectory.prompts is None else trajectory.prompts
    if trajectory is not None:
        trajectory.prompts = prompts
    prompt = prompts.add(text, is_clear)
    draft.record = record_of_generation(
        () if asked is None or prompt.before else asked.messages,
        [] if answered is None else answered.messages,
        output,
        prompt,
        is_unread=answered is None and not is_note(draft.output) and has_result({semconv.OUTPUT_VALUE: output}),
    )


def _text(json_bytes: bytes | None) -> str:
    return "" if json_bytes is None else json_bytes.decode()
