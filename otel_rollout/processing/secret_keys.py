"""Names of keys, parameters, headers and variables whose values are secrets.

A name is split into words (`X-API-Key`, `apiKey` and `api key` are the same two), and its last words decide. An
ordinary word of rollouts (`key`, `token`, `session`, `pass`, `signature` …) counts only after another word.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["DEFAULT_REDACTED_KEYS", "KEY_OWNERS", "KeyKind", "SecretKeys"]

KEY_OWNERS: Final = (
    "alchemy", "algolia", "aliyun", "amazon", "anthropic", "assemblyai", "aws", "azure", "bing", "brave", "cerebras",
    "claude", "cloudflare", "cohere", "dashscope", "datadog", "daytona", "deepgram", "deepseek", "digitalocean",
    "elastic", "elevenlabs", "etherscan", "exa", "firecrawl", "fireworks", "gcp", "gemini", "git_hub", "github",
    "gitlab", "google", "groq", "heroku", "hf", "hugging_face", "huggingface", "infura", "jina", "kaggle", "kimi",
    "langchain", "langfuse", "langsmith", "mailgun", "mapbox", "mistral", "moonshot", "newrelic", "ngc", "nvidia",
    "open_ai", "open_router", "openai", "openrouter", "openweather", "perplexity", "pinecone", "qdrant", "rapidapi",
    "replicate", "sambanova", "sendgrid", "sentry", "serp", "serpapi", "serper", "siliconflow", "slack", "stripe",
    "tavily", "together", "twilio", "vercel", "volcengine", "voyage", "wandb", "weave", "weaviate", "wolfram", "xai",
    "zhipu",
)  # fmt: skip
"""Services whose name before `key` or `keys` makes it a secret: `openai_key`."""

_KINDS_OF_KEY: Final = (
    "access", "account", "admin", "api", "app", "auth", "client", "consumer", "crypto", "decryption", "deploy",
    "encryption", "gpg", "hmac", "license", "master", "pgp", "private", "rsa", "secret", "service_account", "session",
    "shared", "signing", "ssh", "ssl", "storage", "subscription", "tls", "webhook",
)  # fmt: skip
_KINDS_OF_TOKEN: Final = (
    "access", "api", "auth", "bearer", "bot", "csrf", "hf", "hub", "id", "personal_access", "private", "refresh",
    "sas", "secret", "security", "session", "user", "xsrf",
)  # fmt: skip
_OWNERS_OF_PASS: Final = (
    "admin", "database", "db", "email", "ftp", "imap", "ldap", "login", "mail", "mongo", "mysql", "pg", "postgres",
    "proxy", "rabbitmq", "redis", "root", "smtp", "ssh", "sudo", "user", "wifi",
)  # fmt: skip
_OWNERS_OF_URL: Final = (
    "amqp", "broker", "connection", "database", "db", "mongo", "mongodb", "mysql", "postgres", "postgresql",
    "presigned", "redis", "sas", "signed", "sqlalchemy", "webhook",
)  # fmt: skip

DEFAULT_REDACTED_KEYS: Final = tuple(
    sorted(
        {
            "access_key_id", "api_secret", "apikey", "auth", "auth_code", "authorization", "authorization_code",
            "backup_code", "backup_codes", "bearer", "card_pin", "code_verifier", "conn_str", "connection_string",
            "cookie", "cookies", "creds", "credential", "credentials", "csrf", "csrfmiddlewaretoken", "dsn",
            "hmac_signature", "amz_signature", "goog_signature", "jsessionid", "jwt", "jwts", "otp", "pass_phrase",
            "passcode", "passkey", "passphrase", "passwd", "password", "passwords", "phpsessid", "pin_code", "pwd",
            "recovery_code", "recovery_codes", "recovery_phrase", "request_signature", "sas_signature", "secret",
            "secrets", "security_code", "seed_phrase", "sessionid", "token", "totp", "user_pin", "verification_code",
            "webhook_signature", "xsrf",
            *(f"{kind}_{key}" for kind in _KINDS_OF_KEY for key in ("key", "keys")),
            *(f"{kind}_{token}" for kind in _KINDS_OF_TOKEN for token in ("token", "tokens")),
            *(f"{owner}_{key}" for owner in KEY_OWNERS for key in ("key", "keys")),
            *(f"{owner}_pass" for owner in _OWNERS_OF_PASS),
            *(f"{owner}_{url}" for owner in _OWNERS_OF_URL for url in ("url", "uri")),
        }
    )
)  # fmt: skip
"""Names whose text values are replaced by default."""

MODEL_WORDS: Final = frozenset(
    {
        "action", "added", "answer", "audio", "bad", "begin", "best", "boi", "boa", "bos", "boundary", "cached", "chat",
        "chosen", "class", "cls", "completion", "content", "context", "control", "current", "decoded", "decoder",
        "delimiter", "draft", "each", "end", "eoa", "eoi", "eom", "eos", "eot", "extra", "fallback", "fim", "final",
        "first", "forced", "generated", "ignore", "im", "image", "img", "input", "label", "last", "length", "mask",
        "max", "mean", "min", "model", "new", "newline", "next", "no", "num", "observation", "of", "or", "output",
        "pad", "patch", "per", "placeholder", "predicted", "prefix", "prev", "previous", "prompt", "reasoning",
        "rejected", "response", "reward", "role", "sampled", "sentence", "sep", "separator", "single", "space",
        "special", "start", "step", "stop", "sub", "suffix", "system", "target", "text", "think", "thinking", "top",
        "total", "turn", "unique", "unk", "unknown", "valid", "value", "video", "vision", "vocab",
        "vocabulary", "word",
    }
)  # fmt: skip
"""Words before `token` that make it a model's token, as in
https://huggingface.co/docs/transformers/main_classes/tokenizer."""

TRAILING_WORDS: Final = frozenset(
    {
        "again", "b64", "backup", "confirm", "confirmation", "confirmed", "dev", "encoded", "env", "hash", "header",
        "headers", "new", "old", "plain", "plaintext", "prod", "raw", "repeat", "staging", "str", "string", "text",
        "value", "values", "var",
    }
)  # fmt: skip
"""Words that may follow a secret's name: `new_password_confirm`. Not `…_id`, `…_count`, `…_file`, `…_name`."""

_GLUED: Final = ("apikey", "passphrase", "passwd", "password", "secret")
"""Names that count as the end of a word too: `dbpassword`, `clientsecret`."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
MAX_WORDS: Final = 3
MAX_NAME: Final = 64
"""Longer names are texts."""
MAX_REMEMBERED: Final = 4096


class KeyKind(enum.IntEnum):
    """The kind of value that a key has."""

    ORDINARY = 0
    TOKEN = 1
    """A secret, unless the value looks like a model's token."""
    SECRET = 2


class SecretKeys:
    """Classifies names.

    Args:
        names: Names of secrets, in any spelling.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"_".join(_words(name)) for name in names} - {""}
        self._glued = tuple(word for word in _GLUED if word in self._names)
        self.kind = lru_cache(MAX_REMEMBERED)(self._kind)
        """Returns the kind of the value of a name."""

    @property
    def endings(self) -> set[str]:
        """The last words of secrets' names, in lower case; a name with another ending is ordinary."""
        words = {name.rpartition("_")[2] for name in self._names}
        # A word precedes `id`, with or without a separator: `keyid`, `key_id`.
        return words | ({"_id", "-id", "yid"} if "id" in words else set())

    def __bool__(self) -> bool:
        return bool(self._names)

    def _kind(self, name: str) -> KeyKind:
        words = _words(name) if len(name) <= MAX_NAME else []
        if not words:
            return KeyKind.ORDINARY
        if self._is_named(words):
            return KeyKind.SECRET
        if words[-1] == "token" and "token" in self._names:
            return KeyKind.ORDINARY if _is_models(words) else KeyKind.TOKEN
        while len(words) > 1 and words[-1] in TRAILING_WORDS:
            words = words[:-1]
            if self._is_named(words):
                return KeyKind.SECRET
        return KeyKind.ORDINARY

    def _is_named(self, words: list[str]) -> bool:
        if words == ["token"] or _is_models(words):
            return False
        return words[-1].endswith(self._glued) or any(
            (name := "_".join(words[-count:])) in self._names and name != "token"
            for count in range(1, min(MAX_WORDS, len(words)) + 1)
        )


def _is_models(words: list[str]) -> bool:
    return len(words) > 1 and words[-1] == "token" and words[-2] in MODEL_WORDS


def _words(name: str) -> list[str]:
    if not name.isascii():
        # Full-width letters count as letters; zero-width characters are ignored.
        name = "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return [word.lower() for word in _WORD.findall(name)]
