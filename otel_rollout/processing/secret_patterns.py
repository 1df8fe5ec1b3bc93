"""Secrets that have a form of their own: keys of known services, JWTs, PEM keys, passwords in URLs.

The prefixes are those in the services' documentation and in the rules of gitleaks, detect-secrets and trufflehog. Each
pattern takes linear time: it begins with a literal, and nothing after an unbounded repeat can fail.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["PREFIXES", "REDACTED", "find_forms", "find_rare", "redact_forms"]

REDACTED: Final = "[redacted]"
MAX_HOPS: Final = 4
"""A text that has the rare byte more often than this is searched with the pattern."""

PREFIXES: Final = {
    # The least number of letters, digits, `-` and `_` after the prefix; one of them is a digit.
    16: ("GOCSPX-", "pypi-", "tskey-", "tvly-", "whsec_", "xapp-", *(f"xox{kind}-" for kind in "abcdeoprs")),
    20: (
        "PMAK-", "api_org_", "csk-", "dckr_oat_", "dckr_pat_", "dtn_", "fo1_", "fw_", "glagent-", "glcbt-", "gldt-",
        "glft-", "glimt-", "gloas-", "glpat-", "glptt-", "glrt-", "glsoat-", "glsa_", "github_pat_", "lin_api_",
        "lsv2_pt_", "lsv2_sk_", "nfp_", "ntn_", "nvapi-", "pcsk_", "phx_", "pk-lf-", "pplx-", "r8_", "rk_live_",
        "rk_test_", "sbp_", "shpat_", "shpca_", "shppa_", "shpss_", "sk-", "sk_live_", "sk_test_", "sntryu_",
        "sntrys_", "tgp_v1_", "wandb_v1_", "xai-",
    ),
    30: (
        "doo_v1_", "dop_v1_", "dor_v1_", "e2b_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "gsk_", "hf_", "jina_", "npm_",
        "secret_",
    ),
}  # fmt: skip
"""Prefixes of the keys of OpenAI, Anthropic, OpenRouter and Langfuse (`sk-`), GitHub, GitLab, Slack, Hugging Face …"""

_BODY: Final = r"[A-Za-z0-9_-]"
# Not within a word; the `n` of `\n`, an escaped newline, is not part of one.
_START: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_DIGIT: Final = re.compile("[0-9=]")
"""Hyphenated words (`sk-learn-based-…`) have none, nor have words after `Bearer` or `Basic` in a sentence."""


def _prefixed() -> str:
    kinds = (
        f"(?:{'|'.join(map(re.escape, sorted(prefixes)))}){_BODY}{{{least},}}" for least, prefixes in PREFIXES.items()
    )
    return f"{_START}(?:{'|'.join(kinds)})"


def _prefix_hint(sign: str) -> str:
    by_length: dict[int, list[str]] = {}
    for prefix in sorted({prefix for prefixes in PREFIXES.values() for prefix in prefixes if prefix.endswith(sign)}):
        by_length.setdefault(len(prefix), []).append(re.escape(prefix))
    behind = "|".join(f"(?<={'|'.join(prefixes)})" for prefixes in by_length.values())
    return f"{sign}(?<=[A-Za-z0-9]{sign})(?={_BODY}{{{min(PREFIXES)}}})(?:{behind})"


class _Form(NamedTuple):
    """A form of secrets.

    Args:
        sign: A character that all of them contain and that is rare elsewhere.
        hint: The surroundings of the sign in unparsed JSON; begins with a literal, which `re` finds fastest.
        pattern: The form in a text; its group is kept.
    """

    sign: str
    hint: str
    pattern: str


_USERINFO: Final = r"""(?!\d{1,5}[/?#])(?:[^\s/"'<>\\]{1,256}|[^\s@"'<>\\]{1,256})@"""

_FORMS: Final = (
    _Form("_", _prefix_hint("_"), _prefixed()),
    _Form(
        "-",
        _prefix_hint("-") + "|-(?<=-----)BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY",
        _prefixed() + r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|.*\Z)",
    ),
    _Form(
        "A",
        f"A(?:(?:KIA|SIA|BIA|CCA)[A-Z0-9]{{16}}|Iza{_BODY}{{35}})",
        rf"{_START}(?:(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Za-z0-9])|AIza{_BODY}{{35}})",
    ),
    _Form(
        "J",
        f"J(?<=eyJ){_BODY}{{8}}",
        rf"(?:(?<![\w-])|(?<=\\[nrt]))eyJ{_BODY}{{8,}}\.{_BODY}{{8,}}(?:\.{_BODY}*){{0,4}}",
    ),
    _Form("G", rf"G(?<=SG)\.{_BODY}{{16}}", rf"{_START}SG\.{_BODY}{{16,64}}\.{_BODY}{{16,}}"),
    _Form(
        "B",
        r"B(?:earer|EARER|asic)\s{1,4}[\w.~+/=-]{12}",
        rf"({_START}(?:Bearer|BEARER|Basic)\s{{1,4}})[\w.~+/=-]{{12,}}",
    ),
    # The hint begins with the colon: what precedes the at sign varies.
    _Form("@", rf":(?=//[^\s/@:]{{0,256}}:{_USERINFO})", rf"""(://[^\s/@:"'<>\\]{{0,256}}:){_USERINFO}"""),
)

_COMPILED: Final = tuple(
    (
        ord(form.sign),
        ord(form.hint[0]),
        re.compile(form.hint.encode(), re.ASCII),
        re.compile(form.pattern, re.ASCII | re.DOTALL),
    )
    for form in _FORMS
)


def find_forms(json_bytes: bytes) -> bool:
    """Return False if `json_bytes` (one or more texts) surely has none of the forms; True: look closer."""
    for sign, first, hint, _ in _COMPILED:
        # Searching a byte is forty times faster than searching a pattern.
        if sign in json_bytes and find_rare(hint, first, json_bytes) is not None:
            return True
    return False


def find_rare(pattern: re.Pattern[bytes], sign: int, json_bytes: bytes) -> re.Match[bytes] | None:
    """Return the first match of a pattern that begins with the byte `sign`; fast if that byte is rare."""
    position = json_bytes.find(sign)
    for _ in range(MAX_HOPS):
        if position < 0:
            return None
        found = pattern.match(json_bytes, position)
        if found is not None:
            return found
        position = json_bytes.find(sign, position + 1)
    return None if position < 0 else pattern.search(json_bytes, position)


def redact_forms(text: str, encoded: bytes) -> tuple[str, int]:
    """Return `text`, which is `encoded` in UTF-8, with its secrets replaced, and their number."""
    count = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        if _DIGIT.search(match[0]) is None and "://" not in match[0] and "-----" not in match[0]:
            return match[0]
        count += 1
        if not match.re.groups:
            return REDACTED
        return f"{match[1]}{REDACTED}{'@' if match[0].endswith('@') else ''}"

    for sign, _, hint, pattern in _COMPILED:
        if sign in encoded and hint.search(encoded) is not None:
            text = pattern.sub(replace, text)
    return text, count
