"""Secret keys: exact names of keys, headers, options and variables, and the values that can be secrets under them.

A name is split into words (`X-API-Key`, `apiKey` and `api key` are the same two), and its last words decide.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from otel_rollout.finish.known_forms import REDACTED, branches, is_basic, looks_random


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SERVICES: Final = _names(
    "ai21 alchemy algolia aliyun amazon anthropic assemblyai aws azure bing brave cerebras claude cloudflare cohere "
    "dashscope datadog daytona deepgram deepseek digitalocean discord e2b elastic elevenlabs exa fal firecrawl "
    "fireworks gcp gemini github gitlab google groq heroku hf huggingface infura jina kaggle kimi langchain langfuse "
    "langsmith mailgun mapbox minimax mistral moonshot newrelic ngc nvidia openai openrouter openweather perplexity "
    "pinecone qdrant rapidapi replicate runpod sambanova sendgrid sentry serp serpapi serper siliconflow slack stripe "
    "tavily telegram together twilio vercel volcengine voyage wandb weave weaviate wolfram xai zhipu"
)
_KINDS_OF_KEY: Final = _SERVICES | _names(
    "access account admin api app application auth client consumer crypto decryption deploy encryption functions gpg "
    "hmac license logged_in master nonce pgp private rsa secret service_account session shared signing ssh ssl storage "
    "subscription tls webhook"
)
_KINDS_OF_TOKEN: Final = _SERVICES | _names(
    "access api app auth bearer bot csrf deploy hub id oauth personal_access private refresh sas secret security "
    "session vault xsrf"
)
_OWNERS_OF_PASS: Final = _names(
    "admin become bind database db docker email ftp http imap key keystore ldap login mail mongo mysql pg postgres "
    "proxy rabbitmq redis registry root rpc sasl smtp ssh ssl sudo svc trust truststore user vnc vpn web wifi"
)
_PASSWORDS: Final = _names(
    "identified_by masterauth mnemonic pass_phrase passcode passphrase passwd password password_by passwords pin "
    "pin_code pincode psk pw pwd recovery_phrase requirepass secure_string seed_phrase clave contraseña hasło heslo "
    "kennwort lösenord mot_de_passe parola parol passwort senha şifre wachtwoord пароль 口令 密码 密碼 パスワード "
    "비밀번호"
) | {f"{owner}_pass" for owner in _OWNERS_OF_PASS}
_KEYS: Final = (
    _names(
        "access_key_id access_secret api_auth api_secret apikey app_secret auth_code auth_header auth_string "
        "authorization authorization_code aws_secret backup_code backup_codes basic_auth client_secret code_verifier "
        "conn_str connection_string consumer_secret csrfmiddlewaretoken http_auth hmac_signature amz_signature "
        "goog_signature jsessionid phpsessid presigned_url private_key_pem proxy_auth recovery_code recovery_codes "
        "sas_signature sas_url secret_key_base security_code sessionid signed_url signing_secret verification_code "
        "webhook_secret webhook_signature webhook_url"
    )
    | {f"{kind}_key{plural}" for kind in _KINDS_OF_KEY for plural in ("", "s")}
    | {f"{kind}_token{plural}" for kind in _KINDS_OF_TOKEN for plural in ("", "s")}
)
_WORDS_TOO: Final = _names(
    "auth bearer cookie cookies credential credentials creds csrf dsn jwt jwts otp passkey secret secrets token totp "
    "xsrf 令牌 密钥 秘钥"
)
"""Ordinary words of rollouts too: the value must look random."""
DEFAULT_REDACTED_KEYS: Final = tuple(sorted(_PASSWORDS | _KEYS | _WORDS_TOO))
"""The names whose values are replaced by default."""
_OF_MODELS: Final = _names(
    "bos cls completion continuation eos fim image input mask max new next num output pad page prev previous prompt "
    "sep special start stop sync total unk"
)
"""Words before `token` that make it a model's, or a page's."""
_TRAILING: Final = _names(
    "again backup base confirm confirmation data dev encoded env new old plain plaintext prod raw repeat secret "
    "staging str string text value values var"
)
"""Words that may follow a secret's name: `new_password_confirm`. Not `…_id`, `…_count`, `…_file`, `…_name`."""
_GLUED: Final = ("apikey", "authtoken", "passphrase", "passwd", "password", "secretkey", "密码", "密钥")
"""Names that count as the end of a word too: `dbpassword`."""
_WORD: Final = re.compile(r"[A-Z]{1,64}(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")
MAX_REMEMBERED: Final = 4096
IN_QUERIES: Final = _names("code key sig signature")
"""Parameters of a URL's query that are ordinary words elsewhere."""


class KeyKind(enum.IntEnum):
    """The kind of value that a key has, and when it is a secret."""

    ORDINARY = 0
    WORD = 1  # if it looks random
    KEY = 2  # unless it is a word, a number, a path, a variable or a placeholder
    PASSWORD = 3  # unless it is a sentence, a path, a variable or a placeholder
    ANY = 4  # always: the user says so


class SecretKeys:
    """Classifies the names of secrets, given in any spelling."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"_".join(words_of(name)) for name in names} - {""}
        self._glued = tuple(word for word in _GLUED if word in self._names or word == "authtoken")
        self.kind = lru_cache(MAX_REMEMBERED)(self._kind)
        """Returns the kind of the value of a name."""

    @property
    def look(self) -> str:
        """A pattern of all names at the end of a word, for UTF-8 whose ASCII letters are in lower case."""
        gap = "[0-9_. -]{0,3}"
        cases = [case(name) for name in (*self._names, *self._glued) for case in (str.lower, str.upper, str.title)]
        names = branches({name.encode().lower().decode(): "" for name in cases})
        after = rf"(?:{gap}(?:{'|'.join(sorted(_TRAILING))}))*[0-9_-]*[^a-z0-9_]"
        return "|".join(name.replace("_", gap) + after for name in names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def _kind(self, name: str) -> KeyKind:
        words = words_of(name) if len(name) <= 64 else []
        while words:
            kind = self._kind_of(words)
            if kind or words[-1] not in _TRAILING:
                return kind
            words = words[:-1]
        return KeyKind.ORDINARY

    def _kind_of(self, words: list[str]) -> KeyKind:
        tails = ("_".join(words[-count:]) for count in (3, 2, 1))
        name = next((tail for tail in tails if tail in self._names), "")
        name = name or next((word for word in self._glued if words[-1].endswith(word)), "")
        if not name or (words[-1] == "token" and not _OF_MODELS.isdisjoint(words[-2:-1])):
            return KeyKind.ORDINARY
        if name in _PASSWORDS:
            return KeyKind.PASSWORD
        if name in _WORDS_TOO:
            return KeyKind.KEY if len(words) > 1 and name in ("secret", "secrets", "jwt", "bearer") else KeyKind.WORD
        return KeyKind.KEY if name in _KEYS or name in self._glued else KeyKind.ANY


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


MAX_SENTENCE: Final = 400
"""Longer values are looked at up to here."""
SCHEME: Final = re.compile(
    r"(?:bearer|basic|token|bot|digest|negotiate|api-?key|aws4-hmac-sha256|sso-key|key)[ ]{1,16}", re.IGNORECASE
)
_VARIABLE: Final = re.compile(
    r"[$%@&#*|]{1,16}[({]?[\w.-]{0,64}[)}]?%?\Z|[$#%]\{|\$\(|\.{3}|[a-z]\w{0,60}\.[A-Z]\w{0,60}\Z"
    r"|(?:os|self|args|config|process|env|settings|secrets|var|data|module|local|this|request|ctx|cfg|opts|options|params|kwargs)\.\w|--?[a-z]"
)
_CALL: Final = re.compile(r"(?:[A-Za-z_]\w{0,60}(?:(?:\.|::)[A-Za-z_]\w{0,60}){0,2})?[(\[{<]")
"""Matches a call, a placeholder or a list, by a bracket at the end or a space."""
_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z_.:/,;!?]*")
_PATH: Final = re.compile(
    r"(?:~|\.{1,2})?/|[A-Za-z]:\\|file:|[a-z][a-z0-9+]{1,12}://|[\w.-]{1,80}/[\w./-]{1,200}\.[a-z]{1,5}$"
)
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9.,:_eE/%-]*")
_PLACEHOLDER: Final = re.compile(
    r"(?i)your|xxx|changeme|example|placeholder|insert|replace|(?:my|the|some|enter|put|change|sample|dummy|fake|todo|"
    r"redacted|masked|hidden)(?![a-z])"
)
_PLAIN: Final = _names(
    "abc any anonymous bar basic bool boolean bytes crane default dict disabled dummy empty enabled example false foo "
    "float guest hidden int integer invalid list missing module none null object optional pass passwd password qwerty "
    "required secret self short str string test text token true type undefined unknown user weak wrong x y z"
)
_SENTENCE: Final = _names(
    "a an and are as at be by can cannot could do does for from has have if in is it its may must no not of on one or "
    "should that the their this to too use was we will with you your"
)


def can_be_secret(value: str, kind: KeyKind, *, is_bare: bool = False) -> bool:
    """Return True if a value (without its quotes) under a key of this kind is to be replaced.

    `is_bare` is True for one without quotes in a text, which may be a part of a program or a sentence.
    """
    value = value.strip()
    value, last = value[:MAX_SENTENCE], value[-1:]
    if not value or REDACTED in value or not kind or kind is KeyKind.ANY:
        return bool(value) and kind is KeyKind.ANY and REDACTED not in value
    scheme = SCHEME.match(value)
    core = value[scheme.end() :] if scheme is not None else value
    letters, size, is_password = "".join(filter(str.isalpha, core)).lower(), len(core), kind is KeyKind.PASSWORD
    has_digit, has_space = any(map(str.isdigit, core)), any(map(str.isspace, core))
    is_mixed = size >= 8 and has_digit and not has_space and not core.replace("_", "").isalnum()
    if (
        (letters in _PLAIN and not (is_password and not is_bare and is_mixed))
        or core in ("123456", "12345678", "123456789")
        or _is_reference(core, last, is_bare=is_bare)
    ):
        return False
    is_random = looks_random(core)
    if not is_random and (_PATH.match(core) or _PLACEHOLDER.match(core)):
        return False
    if has_space:
        return _is_phrase(core, kind, is_random=is_random, is_bare=is_bare)
    if _NUMBER.fullmatch(core):
        return is_password and size >= 4 and core.strip("-").isdigit()
    if _DOTTED.fullmatch(core) and not is_random:
        # A word, or a name of something.
        return is_password and not is_bare and size >= 6 and core.islower()
    if kind is KeyKind.WORD:
        return size >= 8 and (is_random or is_basic(core))
    if kind is KeyKind.KEY:
        is_made = is_random or has_digit or (not is_bare and "-" in core and size >= 12)
        return size >= (8 if is_bare else 6) and is_made
    return size >= 4


def _is_reference(value: str, last: str, *, is_bare: bool) -> bool:
    """Return True for a variable, a call or a template."""
    if _VARIABLE.match(value):
        return not (value[0] in "@&#*" and looks_random(value))
    return _CALL.match(value) is not None and (is_bare or last in ")]}>([{" or any(map(str.isspace, value)))


def _is_phrase(value: str, kind: KeyKind, *, is_random: bool, is_bare: bool) -> bool:
    """Return True for cookies, and for a passphrase of words that no sentence is made of."""
    if "=" in value and is_random:
        return kind is not KeyKind.PASSWORD or not is_bare
    words = value.lower().split()
    if kind is not KeyKind.PASSWORD or is_bare or not _SENTENCE.isdisjoint(words):
        return kind is KeyKind.KEY and is_random and len(words) <= 4 and _SENTENCE.isdisjoint(words)
    begins = value[0].isalnum() and not value[0].isupper()
    return (
        begins
        and value[-1] not in ".:?"
        and (value[-1] != "!" or len(words) > 3)
        and not re.search("[(){}=<>,;]", value)
    )
