"""URLs in messages, and the outcome of each answer of a server."""

from __future__ import annotations

import contextlib

import pytest

from otel_rollout.export.http import (
    HttpAnswer,
    HttpClient,
    outcome_of_answer,
    shown_url,
    without_secrets,
    without_userinfo,
)
from otel_rollout.export.outcome import Verdict


class TestWithoutUserinfo:
    """A URL as a message shows it."""

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("http://xavier:hunter2@host:4318/v1?a=b@c", "http://host:4318/v1?a=b@c"),
            ("http://ada@host", "http://host"),
            ("http://ada:hunt/er2@host/x", "http://host/x"),
            ("http://ada:hunt://er2@host/x", "http://host/x"),
            ("xavier:hunter2@host:4317", "host:4317"),
        ],
    )
    def test_hidden(self, url, shown):
        """User and password are left out; the rest stays."""
        assert without_userinfo(url) == shown

    @pytest.mark.parametrize(
        "url",
        ["http://host:4318/a@b", "http://host/a:b@c", "http://[::1]:4318/a@b", "http://host?a@b", "host:4317", "", "http://"],
    )  # fmt: skip
    def test_unchanged(self, url):
        """A URL without them stays as it is."""
        assert without_userinfo(url) == url


class TestSecrets:
    """Secrets that messages about a URL leave out."""

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("http://me:s3cret@host:4318/v1/traces?token=s3cret", "http://host:4318/v1/traces"),
            ("me:s3cret@host:4317", "host:4317"),
            ("http://host/v1/traces", "http://host/v1/traces"),
        ],
    )
    def test_url(self, url, shown):
        """A URL is shown without user, password and query."""
        assert shown_url(url) == shown

    @pytest.mark.parametrize(
        ("text", "url", "shown"),
        [
            ("no /x?token=s3cret (why)", "http://host/x?token=s3cret", "no /x (why)"),
            ("no /x?token=s%203cret here", "http://host/x?token=s 3cret", "no /x here"),
            ("can't resolve me:s3cret@host:4317", "me:s3cret@host:4317", "can't resolve host:4317"),
            ("can't resolve s3cret@host:4317", "http://s3cret@host:4317", "can't resolve host:4317"),
            ("why? because", "http://host/x", "why? because"),
        ],
    )
    def test_text(self, text, url, shown):
        """A library's message about a URL loses them too, even if it has escaped them."""
        assert without_secrets(text, url) == shown

    def test_fault_and_answer(self):
        """Neither the fault of a request nor what is made of an answer has the query in it."""
        url = "http://127.0.0.1:1/v1/traces?token=s3cret"
        with contextlib.closing(HttpClient(timeout=5.0)) as made:
            fault = outcome_of_answer(made.request("POST", url, b""), url)

        assert fault.verdict is Verdict.RETRY
        assert fault.reason.startswith(
            "http://127.0.0.1:1/v1/traces: connection refused: nothing listens on 127.0.0.1:1"
        )
        assert "s3cret" not in fault.reason
        assert outcome_of_answer(HttpAnswer(403), url).reason == "HTTP 403 from http://127.0.0.1:1/v1/traces"


class TestOutcomeOfAnswer:
    """From a status to what delivery does."""

    @pytest.mark.parametrize(
        ("status", "verdict"),
        [
            (200, Verdict.DELIVERED),
            (202, Verdict.DELIVERED),
            (301, Verdict.CONFIGURATION_ERROR),
            (400, Verdict.REFUSED),
            (401, Verdict.CONFIGURATION_ERROR),
            (403, Verdict.CONFIGURATION_ERROR),
            (404, Verdict.CONFIGURATION_ERROR),
            (405, Verdict.CONFIGURATION_ERROR),
            (408, Verdict.RETRY),
            (413, Verdict.TOO_LARGE),
            (415, Verdict.CONFIGURATION_ERROR),
            (422, Verdict.REFUSED),
            (425, Verdict.RETRY),
            (429, Verdict.RETRY),
            (500, Verdict.UNEXPLAINED),
            (501, Verdict.CONFIGURATION_ERROR),
            (502, Verdict.RETRY),
            (503, Verdict.RETRY),
            (504, Verdict.RETRY),
        ],
    )
    def test_every_status_has_its_verdict(self, status, verdict):
        """A status alone decides what becomes of the batch, whatever the body."""
        for body in (b"", b"what went wrong\nin detail", b"\xff\x00", b"\n\n"):
            outcome = outcome_of_answer(HttpAnswer(status, body), "http://here")
            assert outcome.verdict is verdict
            assert verdict is Verdict.DELIVERED or f"HTTP {status} from http://here" in outcome.reason

    def test_the_reason_is_the_first_line_of_the_body(self):
        """The server's message is one line of the reason."""
        answer = HttpAnswer(503, b"  overloaded\nstack trace")
        assert outcome_of_answer(answer, "http://here").reason == "HTTP 503 from http://here: overloaded"

    def test_a_configuration_error_says_what_to_check(self):
        """An auth error names the settings that hold the credentials."""
        outcome = outcome_of_answer(HttpAnswer(401), "http://here", configuration_hint="check THE_KEY")
        assert outcome.reason == "HTTP 401 from http://here; check THE_KEY"
