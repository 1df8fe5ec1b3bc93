"""Known forms: tokens whose provider gave them a grammar, found by it alone.

Each row of the table is a prefix, an alphabet, a length and a word's end. The prefixes and lengths are facts from the
providers' documentation (D) and from the public rules of gitleaks (G) and trufflehog (T).
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from typing import Final, TypeAlias

REDACTED: Final = "[redacted]"

Span: TypeAlias = "tuple[int, int, str]"
"""The start and end of a secret, and its replacement."""

_FORMS: Final = (
    ("Hugging Face", "hf_ api_org_", "[A-Za-z0-9]{34}", "G"),
    ("OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse", "sk- pk-lf-", "?[A-Za-z0-9_-]{20,600}", "GD"),
    ("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", "![A-Za-z0-9]{36,251}", "D"),
    ("GitHub", "github_pat_", "[A-Za-z0-9_]{36,255}", "D"),
    ("GitLab", "glpat- gldt- glft- glffct- glrt- glsoat- glagent- glimt- glptt- gloas- glcbt- glrtr- glwt-",
     "[A-Za-z0-9_.-]{20,320}", "D"),
    ("npm", "npm_", "![A-Za-z0-9]{36}", "D"),
    ("PyPI", "pypi-AgE", "[A-Za-z0-9_-]{16,1000}", "D"),
    ("Slack", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxp- xoxe.xoxb- xapp-",
     "[A-Za-z0-9%-]{10,600}", "GD"),
    ("Stripe, Clerk", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", "[A-Za-z0-9+/]{10,247}", "G"),
    ("ElevenLabs", "sk_", "[0-9a-f]{48}", "T"),
    ("Google", "GOCSPX-", "[A-Za-z0-9_-]{28}", "T"),
    ("Google", "ya29. AQ.Ab8R", "[A-Za-z0-9_.-]{20,600}", "D"),
    ("Groq, RunPod, E2B, Replicate", "gsk_ rpa_ e2b_ r8_", "[A-Za-z0-9]{36,64}", "DT"),
    ("Fireworks", "fw_", "?[A-Za-z0-9]{20,64}", "DT"),
    ("xAI, NVIDIA, Cerebras", "xai- nvapi- csk-", "?[A-Za-z0-9_-]{24,200}", "DT"),
    ("Perplexity", "pplx-", "[A-Za-z0-9]{48,56}", "G"),
    ("Tavily, Firecrawl, Modal", "tvly- fc- ak- as- wk- ws-", "?[A-Za-z0-9-]{20,64}", "D"),
    ("Jina, Pinecone, Together, Daytona", "jina_ pcsk_ tgp_v1_ dtn_", "?[A-Za-z0-9_-]{20,200}", "DT"),
    ("LangSmith, W&B", "lsv2_pt_ lsv2_sk_ ls__ wandb_v1_", "?[A-Za-z0-9_]{20,200}", "DT"),
    ("Anyscale, Notion, Lambda", "aph0_ esecret_ secret_ ntn_", "?[A-Za-z0-9_.]{24,200}", "D"),
    ("HashiCorp Vault", "hvs. hvb. hvr.", "[A-Za-z0-9_-]{20,600}", "G"),
    ("Vault, before 1.10", "s.", "?[A-Za-z0-9]{24}", "G"),
    ("Atlassian", "ATATT3 ATCTT3 ATBB", "[A-Za-z0-9_=-]{24,600}", "G"),
    ("Figma", "figd_ figo_", "[A-Za-z0-9_-]{36,200}", "D"),
    ("Linear", "lin_api_ lin_oauth_", "[A-Za-z0-9]{32,64}", "G"),
    ("Airtable", "pat", "[A-Za-z0-9]{14}[.][0-9a-f]{64}", "G"),
    ("Databricks", "dapi dkea dose", "[0-9a-f]{32}(?:-[0-9])?", "G"),
    ("New Relic", "NRAK- NRII- NRIQ- NRJS-", "[A-Za-z0-9-]{19,40}", "G"),
    ("Alibaba, Tencent", "LTAI AKID", "?[A-Za-z0-9]{16,40}", "G"),
    ("Grafana", "glc_ glsa_ eyJrIjoi", "[A-Za-z0-9+/=_]{32,600}", "G"),
    ("age", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", "[A-Z0-9]{58,80}", "G"),
    ("Docker, DigitalOcean", "dckr_pat_ dckr_oat_ doo_v1_ dop_v1_ dor_v1_", "[A-Za-z0-9_-]{20,80}", "GD"),
    ("Shopify, Square", "shpat_ shpca_ shppa_ shpss_ sq0atp- sq0csp-", "[A-Za-z0-9_-]{22,64}", "G"),
    ("Sentry, PostHog", "sntrys_ sntryu_ sntrya_ phx_ phs_ phr_", "?[A-Za-z0-9_+/=]{30,600}", "G"),
    ("Supabase, Netlify, Neon", "sbp_ sb_secret_ nfp_ napi_", "[A-Za-z0-9_-]{28,80}", "D"),
    ("Vercel, Cloudflare", "vcp_ vci_ vca_ vcr_ vck_ cfat_ cfut_ cfk_", "[A-Za-z0-9_-]{40,80}", "D"),
    ("Postman, Pulumi, Prefect, Heroku", "PMAK- pul- pnu_ HRKU-", "?[A-Za-z0-9_-]{32,80}", "G"),
    ("PlanetScale", "pscale_tkn_ pscale_oauth_ pscale_pw_", "[A-Za-z0-9_.=-]{32,64}", "G"),
    ("RubyGems, Doppler", "rubygems_ dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.", "[A-Za-z0-9_.-]{40,80}", "G"),
    ("Tailscale, 1Password, Fly", "tskey- ops_eyJ fo1_ fm2_ fm1a_ fm1r_", "[A-Za-z0-9_+/=-]{20,1000}", "DG"),
    ("SendGrid", "SG.", "?[A-Za-z0-9_-]{16,32}[.][A-Za-z0-9_-]{30,64}", "G"),
    ("Mailgun, Brevo", "key- xkeysib-", "[0-9a-f]{32}[0-9a-f]{0,32}(?:-[A-Za-z0-9]{16})?", "G"),
    ("Twilio", "SK", "[0-9a-f]{32}", "G"),
    ("AWS", "AKIA ASIA ABIA ACCA", "[A-Z0-9]{16}", "D"),
    ("AWS Bedrock", "ABSK bedrock-api-key-", "[A-Za-z0-9+/=]{60,600}", "G"),
    ("Google", "AIza", "[A-Za-z0-9_-]{35}", "G"),
    ("Google", "1//0", "[A-Za-z0-9_-]{30,200}", "T"),
    ("Cloudflare origin CA", "v1.0-", "[0-9a-f]{24}-[0-9a-f]{146}", "G"),
    ("JWT", "hf_jwt_eyJ eyJ", "[A-Za-z0-9_-]{8,2048}[.][A-Za-z0-9_.-]{8,8000}", "RFC 7519"),
)  # fmt: skip
"""Service, prefixes, the rest, source. `?`: it must look random too; `!`: it ends in a CRC32 in base 62."""

_IN_THE_MIDDLE: Final = (
    ("Terraform Cloud", r"\.(?=atlasv1\.)", (14,), "[A-Za-z0-9]{14}[.]atlasv1[.][A-Za-z0-9_=-]{60,70}", "G"),
    ("Mailchimp", "-(?=us[0-9])", (32,), "[0-9a-f]{32}-us[0-9]{1,2}", "G"),
    ("Telegram", ":(?=AA[A-Za-z0-9_-]{32})", (8, 9, 10), "[0-9]{8,10}:AA[A-Za-z0-9_-]{32,33}", "G"),
    ("Discord", r"\.(?=[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27})", (24, 25, 26, 27, 28),
     "[MNO][A-Za-z0-9]{23,27}[.][A-Za-z0-9_-]{6,7}[.][A-Za-z0-9_-]{27,40}", "G"),
    ("Azure Entra", "Q(?=~[A-Za-z0-9_~.-]{31})", (4,), "[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,37}", "G"),
    ("Azure Storage, Cosmos", "=(?==)", (86,), "[A-Za-z0-9+/]{86}==", "D"),
)  # fmt: skip
"""Service, a place in the token to find it by, the characters before that place, the token, source."""

_AFTER: Final = "(?![A-Za-z0-9_])"
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CRC_CHARACTERS: Final = 6
_EXAMPLES: Final = ("EXAMPLE", "XXXX", "xxxx")
"""In the tokens of documentations."""
_WORDS: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PARTS: Final = re.compile("[A-Za-z0-9]{8,}")
_HEX: Final = re.compile("[0-9a-fA-F-]{32,}")
_FEW: Final = 2.8
_MANY: Final = 3.3
_MOST: Final = 4.5
_LONG: Final = 14
_LONGER: Final = 20
_MOST_LOOKED_AT: Final = 256
"""A random text has fewer letters than this in each run of one case, or of digits; a name has more."""
_ESCAPE: Final = re.compile(
    r"(?:\\[nrtbf]|\\u[0-9a-f]{4}|%[0-9A-F]{2}|(?:\x1b|\\x1b|\\033|\\u001b|\\e)\[[0-9;]{0,8}m)\Z"
)
"""The end of an escape, also of one that colors a terminal."""
_LONGEST_ESCAPE: Final = 16
_FIRST_IDEOGRAPH: Final = "\u2e80"
"""From here on, scripts that write no spaces between words."""
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_LINE: Final = re.compile("[A-Za-z0-9+/=]{30}")
_PEM_BODY: Final = re.compile(r"[A-Za-z0-9+/=\s\\:,.()]{24,}")
_WEBHOOK: Final = re.compile(
    r"://(?:hooks\.slack\.com/(?:services|workflows|triggers)/|(?:\w{1,20}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
    r"|[\w.-]{1,80}\.webhook\.office\.com/|outlook\.office\.com/webhook/)([\w/@.~-]{16,400})"
)
_SCHEME: Final = re.compile(r"B(?:(?P<bearer>earer|EARER)|asic)[ \t]{1,4}(?P<value>[\w.~+/=-]{8,4096})")


_SIGNS: Final = "_-."


def _compile() -> dict[str, re.Pattern[str]]:
    """Return the forms by the beginning of their prefixes, up to the first sign that is no letter or digit."""
    by_beginning: dict[str, list[str]] = {}
    for _, prefixes, rest, _ in _FORMS:
        kind = {"?": "random", "!": "crc"}.get(rest[0], "")
        for prefix in prefixes.split():
            ends = (place + 1 for place, sign in enumerate(prefix) if place and sign in _SIGNS)
            forms = by_beginning.setdefault(prefix[: next(ends, len(prefix))], [])
            group = f"(?P<{kind}{len(forms)}>" if kind else "("
            forms.append(f"{re.escape(prefix)}{group}{rest.lstrip('?!')}){_AFTER}")
    return {beginning: re.compile("|".join(forms)) for beginning, forms in by_beginning.items()}


def _begin_with_letters() -> list[re.Pattern[str]]:
    by_first: dict[str, list[str]] = {}
    for beginning in sorted(_BEGINNINGS):
        if beginning[-1] not in _SIGNS:
            by_first.setdefault(beginning[0], []).append(beginning[1:])
    return [re.compile(f"{first}(?:{'|'.join(rests)})") for first, rests in by_first.items()]


_BEGINNINGS: Final = _compile()
_LONGEST: Final = max(map(len, _BEGINNINGS))
_LAST_CHARACTERS: Final = {beginning[-3:] for beginning in _BEGINNINGS}
_BY_SIGN: Final = {
    sign: re.compile(
        rf"{re.escape(sign)}(?<=[{''.join({each[-2] for each in _BEGINNINGS if each[-1] == sign})}]{re.escape(sign)})"
        r"(?=[A-Za-z0-9_.+/=-]{10})"
    )
    for sign in _SIGNS
}
"""`re` finds a pattern that begins with a rare character fastest."""
_BY_LETTERS: Final = _begin_with_letters()
_MIDDLES: Final = tuple(
    (re.compile(sign), backs, re.compile(form + _AFTER)) for _, sign, backs, form, _ in _IN_THE_MIDDLE
)


def form_spans(text: str) -> Iterator[Span]:
    """Yield the span of each token in `text` that has a known form."""
    for sign, pattern in _BY_SIGN.items():
        end = 0
        for found in pattern.finditer(text) if sign in text else ():
            last = found.start()
            if last < end or (
                text[last - 2 : last + 1] not in _LAST_CHARACTERS and text[last - 1 : last + 1] not in _BEGINNINGS
            ):
                continue
            start = last
            while start > end and last - start < _LONGEST and text[start - 1].isalnum():
                start -= 1
            # The first letters may be an escape's.
            for begin in range(start, last):
                form = _BEGINNINGS.get(text[begin : last + 1])
                stop = _stop(form, text, begin) if form is not None else 0
                if stop:
                    end = stop
                    yield begin, stop, REDACTED
                    break
    for pattern in _BY_LETTERS:
        end = 0
        for found in pattern.finditer(text) if pattern.pattern[0] in text else ():
            if found.start() >= end and (stop := _stop(_BEGINNINGS[found[0]], text, found.start())):
                end = stop
                yield found.start(), stop, REDACTED
    for place, backs, form in _MIDDLES:
        for found in place.finditer(text) if place.pattern.lstrip("\\")[0] in text else ():
            for back in backs:
                begin = found.start() - back
                whole = form.match(text, begin) if begin >= 0 and _is_start(text, begin) else None
                if whole is not None:
                    yield *whole.span(), REDACTED
    yield from _around_spans(text)


def _stop(form: re.Pattern[str], text: str, begin: int) -> int:
    """Return the end of the token that begins there; 0 if there is none."""
    found = form.match(text, begin) if _is_start(text, begin) else None
    if found is None:
        return 0
    kind, body = found.lastgroup or "", found[found.lastindex or 0]
    is_genuine = (
        (kind[:3] != "crc" or _has_checksum(body) or looks_random(body))
        and (kind[:6] != "random" or looks_random(body))
        and not any(example in body for example in _EXAMPLES)
    )
    return found.end() if is_genuine else 0


def _is_start(text: str, begin: int) -> bool:
    r"""Return True if no word goes on at `begin`; a hyphen may begin a line, and an escape (`\n`, `%3D`) is no word."""
    if text[begin - 1 : begin] == "\\" and text[begin] in "nrtbfu":
        return False
    if text[begin - 1 : begin] == "-":
        begin -= 1
    return (
        not begin
        or not (text[begin - 1].isalnum() or text[begin - 1] in "_-")
        or text[begin - 1] >= _FIRST_IDEOGRAPH
        or _ESCAPE.search(text[max(0, begin - _LONGEST_ESCAPE) : begin]) is not None
    )


def _has_checksum(body: str) -> bool:
    return body.endswith(checksum_of(body[:-_CRC_CHARACTERS]))


def checksum_of(body: str) -> str:
    """Return the CRC32 in base 62 that ends the tokens of GitHub and npm, in six characters."""
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CRC_CHARACTERS):
        number, digit = divmod(number, len(_BASE62))
        digits = _BASE62[digit] + digits
    return digits


def looks_random(text: str) -> bool:
    """Return True if a machine made the text: letters of both cases and digits alternate more than in any name."""
    head = text[:_MOST_LOOKED_AT]
    for part in _PARTS.findall(head):
        average = len(part) / len(_WORDS.findall(part))
        if average < (_FEW, _MANY, _MOST)[(len(part) >= _LONG) + (len(part) >= _LONGER)] and not (
            part.isalpha() and len(part) < _LONG
        ):
            return True
    return _HEX.fullmatch(head) is not None and any(map(str.isdigit, head)) and any(map(str.isalpha, head))


def _around_spans(text: str) -> Iterator[Span]:
    """Yield the spans of private keys, of secrets in webhooks' addresses, and of those after `Bearer` and `Basic`."""
    end = 0
    for found in _PEM.finditer(text) if "-" in text and "-----BEGIN " in text else ():
        if found.start() < end:
            continue
        body = _PEM_BODY.match(text, found.end())
        closing = _PEM_END.match(text, body.end()) if body is not None else None
        if body is None or (closing is None and _PEM_LINE.search(body[0], 0, _MOST_LOOKED_AT) is None):
            continue
        end = closing.end() if closing is not None else found.end() + len(body[0].rstrip("\\"))
        yield found.start(), end, REDACTED
    for found in _WEBHOOK.finditer(text) if "/" in text and "hook" in text else ():
        yield *found.span(1), REDACTED
    for found in _SCHEME.finditer(text) if "B" in text else ():
        if looks_random(found["value"]) if found["bearer"] else is_basic(found["value"]):
            yield *found.span("value"), REDACTED


def is_basic(text: str) -> bool:
    """Return True if the text is `user:password` in base64."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()
