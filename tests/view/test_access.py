"""Who gets an answer of the viewer, and what each answer says of itself."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import httpx
import pytest

from otel_rollout.look.view import STATIC
from tests.view.viewer import TOKEN, Viewer


def request(viewer: Viewer, path: str = "/api/run", **headers: str) -> httpx.Response:
    return httpx.get(viewer.address + path, headers=headers, trust_env=False)


class TestToken:
    """The token, by cookie or header."""

    @pytest.mark.parametrize(
        "path",
        [
            *("/api/run", "/api/step/1", "/api/step/1/timeline", "/api/step/1/group?sample=0"),
            *("/api/trajectory/0", "/api/changes"),
        ],
    )
    def test_data_need_the_token(self, viewer, path):
        """Without the token, or with another one, data are refused with a sentence that says what to do."""
        answers = [
            request(viewer, path),
            request(viewer, path, Authorization="Bearer another"),
            request(viewer, f"{path}?token={TOKEN}"),
            request(viewer, path, Cookie=f"otel-rollout-view={TOKEN}; a=b; =; ;;"),
            request(viewer, path, Authorization=f"Basic {TOKEN}"),
        ]
        assert [answer.status_code for answer in answers] == [401] * 5
        assert all("open the address that `otel-rollout view` printed" in answer.json()["error"] for answer in answers)

    def test_the_address_with_the_token_sets_a_cookie_and_leads_away_from_it(self, viewer):
        """The first visit sets a cookie that no script and no other site gets, and the token leaves the address."""
        with httpx.Client(base_url=viewer.address, trust_env=False) as browser:
            first = browser.get(f"/?token={TOKEN}")
            assert (first.status_code, first.headers["location"]) == (303, "./")
            cookie = first.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert "Path" not in cookie
            assert browser.get("/api/run").status_code == 200

    def test_a_wrong_token_sets_no_cookie(self, viewer):
        """A visit with another token is refused."""
        answer = request(viewer, "/?token=another")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers

    def test_the_cookies_of_two_viewers_on_one_host_don_t_replace_each_other(self, viewer, folder):
        """Cookies have a name for each token, as a browser sends them to all ports of a host."""
        name = request(viewer, f"/?token={TOKEN}").headers["set-cookie"].partition("=")[0]
        with Viewer(folder) as other:
            other.application._token = "of-the-other"
            assert name not in ("otel-rollout-view", "")
            assert request(other, Cookie=f"{name}={TOKEN}").status_code == 401

    def test_a_token_for_once_opens_the_pages_once(self, viewer):
        """The token on a browser's command line, which other users can read, is void after its first use."""
        token = viewer.application.token_for_once()
        first, second = (request(viewer, f"/?token={token}") for _ in range(2))
        assert (first.status_code, second.status_code) == (303, 401)
        assert token not in first.headers["set-cookie"]

    def test_a_header_of_a_proxy_doesn_t_hide_the_cookie(self, viewer):
        """A request is known by its cookie, whatever headers a proxy adds and cookies other programs have set."""
        cookie = "a[b]={}; c; " + request(viewer, f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
        assert request(viewer, Authorization="Bearer of-the-hub", Cookie=cookie).status_code == 200


class TestHost:
    """The Host check."""

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8642", "[::1]:8642", "LOCALHOST:1", "user@localhost"])
    def test_the_loopback_names_are_allowed(self, viewer, host):
        """Requests that name the loopback interface are answered, whatever the port: tunnels have another."""
        assert request(viewer, Host=host, Authorization=f"Bearer {TOKEN}").status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "", "[:"])
    def test_other_names_are_refused(self, viewer, host):
        """A name that another site has pointed at this machine is refused, even with the token."""
        for path in ("/api/run", "/", f"/?token={TOKEN}"):
            answer = request(viewer, path, Host=host, Authorization=f"Bearer {TOKEN}")
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers

    def test_the_refusal_names_the_option(self, viewer):
        """Who reaches the pages by another name is told the option for it."""
        answer = request(viewer, Host="hub.example.com:80", Authorization=f"Bearer {TOKEN}")
        assert answer.json()["error"] == (
            "the host 'hub.example.com:80' is not one of this viewer's: start it with --allow-host hub.example.com"
        )

    def test_an_allowed_name_is_answered(self, folder):
        """The names of --host and --allow-host are answered too."""
        with Viewer(folder, hosts=["Hub.example.com"]) as viewer:
            assert request(viewer, Host="hub.example.com:443", Authorization=f"Bearer {TOKEN}").status_code == 200


class TestHeaders:
    """The headers of all answers."""

    @pytest.mark.parametrize("path", ["/api/run", "/", "/api/nothing", f"/?token={TOKEN}", "/nothing"])
    def test_every_answer_forbids_what_a_payload_could_try(self, viewer, path):
        """Answers allow no inline script, no other address, no guess at the type, no referrer."""
        headers = request(viewer, path, Authorization=f"Bearer {TOKEN}").headers
        policy = dict(each.strip().partition(" ")[::2] for each in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers

    def test_data_are_not_kept_by_the_browser(self, viewer):
        """Answers with data are stored nowhere."""
        assert viewer.client.get("/api/run").headers["cache-control"] == "no-store"

    def test_modules_have_the_type_that_browsers_ask_for(self, viewer):
        """Scripts are text/javascript, whatever the system's table of types says."""
        answer = request(viewer, "/start.js")
        assert answer.headers["content-type"].startswith("text/javascript")

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
    def test_only_reading_is_answered(self, viewer, method):
        """Nothing can be changed through the server."""
        assert viewer.client.request(method, "/api/run").status_code == 405


class TestFiles:
    """The places that are read."""

    @pytest.mark.parametrize(
        "path",
        [
            "/../application.py",
            "/%2e%2e/application.py",
            "/..%2fapplication.py",
            "/style/../../application.py",
            "/style/%2e%2e/%2e%2e/application.py",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/..\\application.py",
            "/\x00",
            "/start.js%00.css",
            "/style/",
        ],
    )
    def test_nothing_outside_the_static_files_is_read(self, viewer, path):
        """Paths that lead elsewhere are not found."""
        address = urlsplit(viewer.address)
        # A plain socket: clients resolve such paths themselves.
        import http.client

        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
        try:
            connection.putrequest("GET", "/", skip_host=True)
            connection._buffer[0] = b"GET " + path.encode() + b" HTTP/1.1"
            connection.putheader("Host", "localhost")
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status in (400, 404)
        assert b"def make_application" not in body
        assert b"root:" not in body

    def test_a_link_out_of_the_static_files_is_not_followed(self, viewer):
        """A symlink among the static files that leads out of them is not found."""
        link = STATIC / f"link-of-a-test-{os.getpid()}.css"
        link.symlink_to("/etc/passwd")
        try:
            assert request(viewer, f"/{link.name}").status_code == 404
        finally:
            link.unlink()

    @pytest.mark.parametrize(
        "path",
        ["trajectory/..%2f..%2fetc%2fpasswd", "step/..%2f1", "step/1/group?sample=..%2f..%2fetc", "step/%00"],
    )
    def test_no_parameter_is_a_path(self, viewer, path):
        """Steps, prompts and trajectories are looked up by value."""
        assert viewer.client.get(f"/api/{path}").status_code in (400, 404)
