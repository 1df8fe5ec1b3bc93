"""The delivery thread's work on a span: JSON, messages, redaction, limits, conversion."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.finish.chat_writer import ChatWriter
    from otel_rollout.finish.conversations import Conversation, Conversations, cut_messages
    from otel_rollout.finish.finishing import limit, redact, write_messages
    from otel_rollout.finish.known_forms import looks_random
    from otel_rollout.finish.payload_finisher import PayloadFinisher
    from otel_rollout.finish.payload_limits import cut_json, cut_media, narrow_integers
    from otel_rollout.finish.redaction import Redactor, make_redactor
    from otel_rollout.finish.secret_keys import DEFAULT_REDACTED_KEYS
    from otel_rollout.finish.span_conversion import SpanReader
    from otel_rollout.finish.span_copies import copy_span, copy_without_payload, shrunk_copy
    from otel_rollout.finish.span_draft import SpanDraft, draft_of
    from otel_rollout.finish.token_text import add_token_text, numbers_last
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "chat_writer": ("ChatWriter",),
            "conversations": ("Conversation", "Conversations", "cut_messages"),
            "payload_finisher": ("PayloadFinisher",),
            "payload_limits": ("cut_json", "cut_media", "narrow_integers"),
            "finishing": ("limit", "redact", "write_messages"),
            "span_draft": ("SpanDraft", "draft_of"),
            "redaction": ("Redactor", "make_redactor"),
            "secret_keys": ("DEFAULT_REDACTED_KEYS",),
            "span_conversion": ("SpanReader",),
            "span_copies": ("copy_span", "copy_without_payload", "shrunk_copy"),
            "token_text": ("add_token_text", "numbers_last"),
            "known_forms": ("looks_random",),
        },
    )
