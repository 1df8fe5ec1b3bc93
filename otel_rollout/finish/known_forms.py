"""Known forms: tokens whose provider gave them a grammar, found by it alone.

The prefixes and lengths are facts from the providers' documentation (D), gitleaks (G) and trufflehog (T).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

REDACTED: Final = "[redacted]"

Span: TypeAlias = "tuple[int, int, str]"
"""The start and end of a secret, and its replacement."""

_FORMS: Final = (
    ("Hugging Face G", "hf_ api_org_", "[A-Za-z0-9]{34}"),
    ("Linear G", "lin_api_ lin_oauth_", "[A-Za-z0-9]{32,64}"),
    ("OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse GD", "sk- pk-lf-", "?[A-Za-z0-9_-]{20,600}"),
    ("GitHub D", "ghp_ gho_ ghu_ ghs_ ghr_", "?[A-Za-z0-9]{36,251}"),
    ("GitHub D; Figma D; Vercel, Cloudflare D", "github_pat_ figd_ figo_ vcp_ vci_ vca_ vcr_ vck_ cfat_ cfut_ cfk_",
     "[A-Za-z0-9_-]{36,255}"),
    ("GitLab D", "glpat- gldt- glft- glffct- glrt- glsoat- glagent- glimt- glptt- gloas- glcbt- glrtr- glwt-",
     "[A-Za-z0-9_.-]{20,320}"),
    ("npm D", "npm_", "?[A-Za-z0-9]{36}"),
    ("PyPI D", "pypi-AgE", "[A-Za-z0-9_-]{16,1000}"),
    ("Slack GD", "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxp- xoxe.xoxb- xapp-",
     "[A-Za-z0-9%-]{10,600}"),
    ("Stripe, Clerk G", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", "[A-Za-z0-9+/]{10,247}"),
    ("ElevenLabs T", "sk_", "[0-9a-f]{48}"),
    ("Google T", "GOCSPX-", "[A-Za-z0-9_-]{28}"),
    ("Google D, HashiCorp Vault G", "ya29. AQ.Ab8R hvs. hvb. hvr.", "[A-Za-z0-9_.-]{20,600}"),
    ("Groq, RunPod, E2B, Replicate DT", "gsk_ rpa_ e2b_ r8_", "[A-Za-z0-9]{36,64}"),
    ("Fireworks, Tavily, Firecrawl, Modal DT", "fw_ tvly- fc- ak- as- wk- ws-", "?[A-Za-z0-9-]{20,64}"),
    ("xAI, NVIDIA, Cerebras, Jina, Pinecone, Together, Daytona, LangSmith, W&B, Anyscale, Notion, Lambda DT",
     "xai- nvapi- csk- jina_ pcsk_ tgp_v1_ dtn_ lsv2_pt_ lsv2_sk_ ls__ wandb_v1_ aph0_ esecret_ secret_ ntn_",
     "?[A-Za-z0-9_.-]{20,200}"),
    ("Perplexity G", "pplx-", "[A-Za-z0-9]{48,56}"),
    ("Vault, before 1.10 G", "s.", "?[A-Za-z0-9]{24}"),
    ("Atlassian G", "ATATT3 ATCTT3 ATBB", "[A-Za-z0-9_=-]{24,600}"),
    ("Databricks G", "dapi dkea dose", "[0-9a-f]{32}(?:-[0-9])?"),
    ("New Relic G", "NRAK- NRII- NRIQ- NRJS-", "[A-Za-z0-9-]{19,40}"),
    ("Alibaba, Tencent G", "LTAI AKID", "?[A-Za-z0-9]{16,40}"),
    ("Grafana G", "glc_ glsa_ eyJrIjoi", "[A-Za-z0-9+/=_]{32,600}"),
    ("age G", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", "[A-Z0-9]{58,80}"),
    ("Docker, DigitalOcean, Shopify, Square GD",
     "dckr_pat_ dckr_oat_ doo_v1_ dop_v1_ dor_v1_ shpat_ shpca_ shppa_ shpss_ sq0atp- sq0csp-", "[A-Za-z0-9_-]{22,80}"),
    ("Supabase, Netlify, Neon D", "sbp_ sb_secret_ nfp_ napi_", "[A-Za-z0-9_-]{28,80}"),
    ("Sentry, PostHog G", "sntrys_ sntryu_ sntrya_ phx_ phs_ phr_", "?[A-Za-z0-9_+/=]{30,600}"),
    ("Postman, Pulumi, Prefect, Heroku G", "PMAK- pul- pnu_ HRKU-", "?[A-Za-z0-9_-]{32,80}"),
    ("PlanetScale, RubyGems G", "pscale_tkn_ pscale_oauth_ pscale_pw_ rubygems_", "[A-Za-z0-9_.=-]{32,80}"),
    ("Doppler G", "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.", "[A-Za-z0-9_.-]{40,80}"),
    ("Tailscale, 1Password, Fly DG", "tskey- ops_eyJ fo1_ fm2_ fm1a_ fm1r_", "[A-Za-z0-9_+/=-]{20,1000}"),
    ("SendGrid G", "SG.", "?[A-Za-z0-9_-]{16,32}[.][A-Za-z0-9_-]{30,64}"),
    ("Mailgun, Brevo G", "key- xkeysib-", "[0-9a-f]{32}[0-9a-f]{0,32}(?:-[A-Za-z0-9]{16})?"),
    ("Twilio G", "SK", "[0-9a-f]{32}"),
    ("AWS D", "AKIA ASIA ABIA ACCA", "[A-Z0-9]{16}"),
    ("AWS Bedrock G", "ABSK bedrock-api-key-", "[A-Za-z0-9+/=]{60,600}"),
    ("Google G", "AIza", "[A-Za-z0-9_-]{35}"),
    ("Google T", "1//0", "[A-Za-z0-9_-]{30,200}"),
    ("Cloudflare origin CA G", "v1.0-", "[0-9a-f]{24}-[0-9a-f]{146}"),
    ("Airtable G", "pat", "[A-Za-z0-9]{14}[.][0-9a-f]{64}"),
    ("Discord G", "M N O", "[A-Za-z0-9]{23,27}[.][A-Za-z0-9_-]{6,7}[.][A-Za-z0-9_-]{27,40}"),
    ("JWT RFC 7519", "hf_jwt_eyJ eyJ", "[A-Za-z0-9_-]{8,2048}[.][A-Za-z0-9_.-]{8,8000}"),
)  # fmt: skip
"""Services and source, prefixes, the rest. `?`: it must look random too."""

_AROUND: Final = re.compile(
    "(?:[A-Za-z0-9]{14}[.]atlasv1[.][A-Za-z0-9_=-]{60,70}"  # Terraform Cloud G
    "|[0-9a-f]{32}-us[0-9]{1,2}"  # Mailchimp G
    "|[0-9]{8,10}:AA[A-Za-z0-9_-]{32,33}"  # Telegram G
    "|[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,37}"  # Azure Entra G
    "|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9_])"  # Azure Storage, Cosmos D
)
"""Forms without a prefix, which are found by a text in their middle."""
_BEFORE: Final = (3, 8, 9, 10, 14, 32, 85)
"""The characters of such a form before that text."""
_WEBHOOK: Final = re.compile(
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/"
    r"|webhook\.office\.com/|outlook\.office\.com/webhook/)(?P<address>[\w/@.~-]{16,400})"
)
_SCHEME: Final = re.compile(r"(?:Bearer|BEARER|Basic)[ \t]{1,4}(?P<value>[\w.~+/=-]{8,4096})")
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<body>[A-Za-z0-9+/=\s\\:,.()]{24,})"
    r"(?P<end>-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_PEM_LINE: Final = re.compile("[A-Za-z0-9+/=]{30}")
_WORDS: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_PARTS: Final = re.compile("[A-Za-z0-9]{8,}")
_HEX: Final = re.compile("[0-9a-fA-F-]{32,}")
_MOST_LOOKED_AT: Final = 256
_ESCAPE: Final = re.compile(
    r"(?:\\[nrtbf]|\\u[0-9a-f]{4}|%[0-9A-F]{2}|(?:\x1b|\\x1b|\\033|\\u001b|\\e)\[[0-9;]{0,8}m)\Z"
)
"""The end of an escape, also of one that colors a terminal."""
_FIRST_IDEOGRAPH: Final = "\u2e80"
"""From here on, scripts that write no spaces between words."""


def branches(words: Mapping[str, str]) -> list[str]:
    """Return patterns of words with what follows each, by their first characters: `re` tries each branch in turn."""
    by_first: dict[str, dict[str, str]] = {}
    for word, rest in words.items():
        by_first.setdefault(word[:1], {})[word[1:]] = rest
    return [
        f"{re.escape(first)}(?:{'|'.join(branches(rests))})" if first else rests[""]
        for first, rests in sorted(by_first.items(), reverse=True)
    ]


def _compile() -> tuple[str, re.Pattern[str]]:
    """Return a pattern of the beginnings of all forms, and one of the forms, in groups named `random…` and `form…`."""
    beginnings, forms = {}, []
    for number, (_, prefixes, rest) in enumerate(_FORMS):
        kind, body = ("random", rest[1:]) if rest[0] == "?" else ("form", rest)
        characters, count = re.findall(r"(\[.*?\])\{(\d+)", body)[0]
        beginnings.update(dict.fromkeys(prefixes.split(), f"{characters}{{{min(int(count), 16)}}}"))
        words = "|".join(map(re.escape, prefixes.split()))
        forms.append(f"(?:{words})(?P<{kind}{number}>{body})(?![A-Za-z0-9_])")
    return "|".join(branches(beginnings)), re.compile("|".join(forms))


_BEGINNINGS, _FORM = _compile()
FORMS_LOOK: Final = (
    # Those without a prefix follow: 64 bytes in base64 end in one of four letters.
    rf"{_BEGINNINGS}|\.atlasv1\.|-us[0-9]|:AA[A-Za-z0-9_-]{{8}}|7Q~|8Q~|A==|Q==|g==|w==|-----BEGIN |Bearer[ \t]"
    r"|BEARER[ \t]|Basic[ \t]|hooks\.slack|discord\.com/api|discordapp\.com/api|webhook\.office|outlook\.office\.com"
)
"""A pattern that matches the beginning, or the middle, of each known form."""


def form_spans(text: str, places: Iterable[int]) -> Iterator[Span]:
    """Yield the span of each token with a known form at one of these places of `text`, which `FORMS_LOOK` found."""
    for found in places:
        # The first letter may be an escape's.
        place = found + (text[found - 1 : found] == "\\" and text[found] in "nrtbf")
        if (token := _FORM.match(text, place)) is not None:
            if _is_start(text, place) and _is_genuine(token):
                # A full stop ends a sentence.
                yield place, place + len(token[0].rstrip(".")), REDACTED
        elif (webhook := _WEBHOOK.match(text, place)) is not None:
            yield *webhook.span("address"), REDACTED
        elif (scheme := _SCHEME.match(text, place)) is not None:
            if looks_random(scheme["value"]) or (scheme[0][:2] == "Ba" and is_basic(scheme["value"])):
                yield *scheme.span("value"), REDACTED
        elif (key := _PEM.match(text, place)) is not None:
            if key["end"] or _PEM_LINE.search(key["body"], 0, _MOST_LOOKED_AT):
                end = key.end() if key["end"] else key.start("body") + len(key["body"].rstrip("\\"))
                yield place, end, REDACTED
        else:
            for begin in (place - before for before in _BEFORE if before <= place):
                if (around := _AROUND.match(text, begin)) is not None and _is_start(text, begin):
                    yield *around.span(), REDACTED


def _is_genuine(token: re.Match[str]) -> bool:
    body = token[token.lastgroup or 0]
    # The tokens of documentations are examples.
    return (str(token.lastgroup)[0] == "f" or looks_random(body)) and not re.search("EXAMPLE|XXXX|xxxx", body)


def _is_start(text: str, begin: int) -> bool:
    r"""Return True if no word goes on at `begin`; a hyphen may begin a line, and an escape (`\n`, `%3D`) is no word."""
    if text[begin - 1 : begin] == "\\" and text[begin] in "nrtbfu":
        return False
    begin -= text[begin - 1 : begin] == "-"
    before = text[begin - 1] if begin else " "
    return (
        not (before.isalnum() or before in "_-")
        or before >= _FIRST_IDEOGRAPH
        or _ESCAPE.search(text[max(0, begin - 16) : begin]) is not None
    )


def looks_random(text: str) -> bool:
    """Return True if a machine made the text: letters of both cases and digits alternate more than in any name."""
    head = text[:_MOST_LOOKED_AT]
    for part in _PARTS.findall(head):
        size = len(part)
        # A random text has fewer letters than this in each run of one case, or of digits; a name has more.
        most = 2.8 if size < 14 else 3.3 if size < 20 else 4.5
        if size / len(_WORDS.findall(part)) < most and not (size < 14 and part.isalpha()):
            return True
    return _HEX.fullmatch(head) is not None and any(map(str.isdigit, head)) and any(map(str.isalpha, head))


def is_basic(text: str) -> bool:
    """Return True if the text is `user:password` in base64."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()
