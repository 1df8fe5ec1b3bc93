"""Secret keys: exact names of keys, headers, options and variables, and the values that can be secrets under them.

A name is split into words (`X-API-Key`, `apiKey` and `api key` are the same two), and its last words decide.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from otel_rollout.finish.known_forms import REDACTED, is_basic, looks_random


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SERVICES: Final = _names(
    "ai21 alchemy algolia aliyun amazon anthropic assemblyai aws azure bing brave cerebras claude cloudflare "
    "cohere dashscope datadog daytona deepgram deepseek digitalocean discord e2b elastic elevenlabs exa fal "
    "firecrawl fireworks gcp gemini github gitlab google groq heroku hf huggingface infura jina kaggle kimi "
    "langchain langfuse langsmith mailgun mapbox minimax mistral moonshot newrelic ngc nvidia openai openrouter "
    "openweather perplexity pinecone qdrant rapidapi replicate runpod sambanova sendgrid sentry serp serpapi "
    "serper siliconflow slack stripe tavily telegram together twilio vercel volcengine voyage wandb weave "
    "weaviate wolfram xai zhipu "
)
_KINDS_OF_KEY: Final = _names(
    "access account admin api app application auth client consumer crypto decryption deploy encryption functions gpg "
    "hmac license logged_in master nonce pgp private rsa secret service_account session shared signing ssh ssl storage "
    "subscription tls webhook "
)
_KINDS_OF_TOKEN: Final = _names(
    "access api app auth bearer bot csrf deploy hub id oauth personal_access private refresh sas secret security "
    "session vault xsrf "
)
_OWNERS_OF_PASS: Final = _names(
    "admin become bind database db docker email ftp http imap key keystore ldap login mail mongo mysql pg postgres "
    "proxy rabbitmq redis registry root rpc sasl smtp ssh ssl sudo svc trust truststore user vnc vpn web wifi "
)

_PASSWORDS: Final = frozenset(
    _names(
        "identified_by masterauth mnemonic pass_phrase passcode passphrase passwd password passwords pin pin_code "
        "pincode psk pw pwd recovery_phrase requirepass secure_string seed_phrase clave contraseña hasło heslo "
        "kennwort lösenord mot_de_passe parola parol passwort senha şifre wachtwoord пароль "
        "口令 密码 密碼 パスワード 비밀번호 "
    )
) | {f"{owner}_pass" for owner in _OWNERS_OF_PASS}
_KEYS: Final = frozenset(
    _names(
        "access_key_id access_secret api_auth api_secret apikey app_secret auth_code auth_header auth_string "
        "authorization authorization_code aws_secret backup_code backup_codes basic_auth bearer_token client_secret "
        "code_verifier conn_str connection_string consumer_secret csrfmiddlewaretoken http_auth hmac_signature "
        "amz_signature goog_signature jsessionid phpsessid presigned_url private_key_pem proxy_auth recovery_code "
        "recovery_codes sas_signature sas_url secret_key_base security_code sessionid signed_url signing_secret "
        "verification_code webhook_secret webhook_signature webhook_url "
    )
)
_KEYS_OF_KINDS: Final = frozenset(
    f"{kind}_{last}"
    for kinds, lasts in (
        ((*_KINDS_OF_KEY, *_SERVICES), ("key", "keys")),
        ((*_KINDS_OF_TOKEN, *_SERVICES), ("token", "tokens")),
    )
    for kind in kinds
    for last in lasts
)
_WORDS_TOO: Final = frozenset(
    _names(
        "auth bearer cookie cookies credential credentials creds csrf dsn jwt jwts otp passkey secret secrets token "
        "totp xsrf 令牌 密钥 秘钥 "
    )
)
"""Ordinary words of rollouts too: the value must look random."""
DEFAULT_REDACTED_KEYS: Final = tuple(sorted(_PASSWORDS | _KEYS | _KEYS_OF_KINDS | _WORDS_TOO))
"""The names whose values are replaced by default."""

_OF_MODELS: Final = frozenset(
    _names(
        "bos cls completion continuation eos fim image input mask max new next num output pad page prev previous "
        "prompt sep special start stop sync total unk "
    )
)
"""Words before `token` that make it a model's, or a page's."""
_TRAILING: Final = frozenset(
    _names(
        "again b backup base by confirm confirmation data dev encoded env is new old plain plaintext prod raw repeat "
        "secret staging str string text value values var "
    )
)
"""Words that may follow a secret's name: `new_password_confirm`. Not `…_id`, `…_count`, `…_file`, `…_name`."""
_GLUED: Final = (
    "apikey", "authtoken", "passphrase", "passwd", "password", "secretkey",
    "令牌", "口令", "密码", "密碼", "密钥", "秘钥", "パスワード",
)  # fmt: skip
"""Names that count as the end of a word too: `dbpassword`."""

_WORD: Final = re.compile(r"[A-Z]{1,64}(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")
AROUND_NAMES: Final = " \t*?])\\\"'`!"
MAX_WORDS: Final = 3
MAX_NAME: Final = 64
"""Longer names are texts."""
MAX_REMEMBERED: Final = 4096
VALUE_FIELDS: Final = frozenset(_names("default field_value header_value string val value"))
"""Keys of values in pairs: `{"name": "api_key", "value": …}`."""
IN_QUERIES: Final = frozenset(_names("code key sig signature"))
"""Parameters of a URL's query that are ordinary words elsewhere."""


class KeyKind(enum.IntEnum):
    """The kind of value that a key has."""

    ORDINARY = 0
    WORD = 1
    """A secret if it looks random."""
    KEY = 2
    """A secret unless it is a word, a number, a path, a variable or a placeholder."""
    PASSWORD = 3
    """A secret unless it is a sentence, a path, a variable or a placeholder."""
    ANY = 4
    """A secret: the user says so."""


class SecretKeys:
    """Classifies names.

    Args:
        names: Names of secrets, in any spelling.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"_".join(words_of(name)) for name in names} - {""}
        self._glued = tuple(word for word in _GLUED if word in self._names or word == "authtoken")
        self._last = _TRAILING | VALUE_FIELDS | IN_QUERIES | {name.rpartition("_")[2] for name in self._names}
        self._endings = {last[start:] for last in self._last for start in range(len(last) + 1)}
        self.kind = lru_cache(MAX_REMEMBERED)(self._kind)
        """Returns the kind of the value of a name."""
        self.may_be = lru_cache(MAX_REMEMBERED)(self._may_be)
        """Returns False if no name of a secret, nor a field of its value, ends as a name does; its start may be cut."""

    def __bool__(self) -> bool:
        return bool(self._names)

    def _may_be(self, name: str) -> bool:
        *before, word = words_of(name) or ("",)
        return word in self._last or word.endswith(self._glued) or (not before and word in self._endings)

    def _kind(self, name: str) -> KeyKind:
        words = words_of(name) if len(name) <= MAX_NAME else []
        while words:
            kind = self._kind_of(words)
            if kind or len(words) == 1 or words[-1] not in _TRAILING:
                return kind
            words = words[:-1]
        return KeyKind.ORDINARY

    def _kind_of(self, words: list[str]) -> KeyKind:
        if len(words) > 1 and words[-1] == "token" and words[-2] in _OF_MODELS:
            return KeyKind.ORDINARY
        tails = ["_".join(words[-count:]) for count in range(min(MAX_WORDS, len(words)), 0, -1)]
        name = next((tail for tail in tails if tail in self._names), "")
        if not name and words[-1].endswith(self._glued):
            name = next(word for word in self._glued if words[-1].endswith(word))
        if not name:
            return KeyKind.ORDINARY
        if name in _PASSWORDS:
            return KeyKind.PASSWORD
        if name in _WORDS_TOO:
            return KeyKind.KEY if len(words) > 1 and name in ("secret", "secrets", "jwt", "bearer") else KeyKind.WORD
        return KeyKind.KEY if name in _KEYS or name in _KEYS_OF_KINDS or name in self._glued else KeyKind.ANY


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case."""
    if not name.isascii():
        # Full-width letters count as letters; zero-width characters are ignored.
        name = "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return [word.lower() for word in _WORD.findall(name)]


MIN_SECRET: Final = 4
MIN_KEY: Final = 6
MIN_RANDOM: Final = 8
MIN_HYPHENED: Final = 12
MAX_PARTS: Final = 4
MAX_SENTENCE: Final = 400
"""Longer values are looked at up to here."""
SCHEME: Final = re.compile(
    r"(?:bearer|basic|token|bot|digest|negotiate|api-?key|aws4-hmac-sha256|sso-key|key)[ ]{1,16}", re.IGNORECASE
)
_VARIABLE: Final = re.compile(
    r"[$%@&#*|]{1,16}[({]?[\w.-]{0,64}[)}]?%?\Z|[$#%]\{|\$\(|\.{3}|[a-z]\w{0,60}\.[A-Z]\w{0,60}\Z|(?:os|self|args|config|process|env|settings|"
    r"secrets|var|data|module|local|this|request|ctx|cfg|opts|options|params|kwargs)\.\w|--?[a-z]"
)
_CALL: Final = re.compile(
    r"(?:[A-Za-z_]\w{0,60}(?:(?:\.|::)[A-Za-z_]\w{0,60})?(?:(?:\.|::)[A-Za-z_]\w{0,60})?)?[(\[{<]"
)
"""Matches a call, a placeholder or a list, by a bracket at the end or a space."""
_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z_.:/,;!?]*")
_PATH: Final = re.compile(
    r"(?:~|\.{1,2})?/|[A-Za-z]:\\|file:|[a-z][a-z0-9+]{1,12}://|[\w.-]{1,80}/[\w./-]{1,200}\.[a-z]{1,5}$"
)
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9.,:_eE/%-]*")
_PLACEHOLDER: Final = re.compile(
    r"your|xxx|changeme|example|placeholder|insert|replace|(?:my|the|some|enter|put|change|sample|dummy|fake|todo|"
    r"redacted|masked|hidden)(?![a-z])",
    re.IGNORECASE,
)
_PLAIN: Final = frozenset(
    _names(
        "abc any anonymous bar basic bool boolean bytes crane default dict disabled dummy empty enabled example false "
        "foo float guest hidden int integer invalid list missing module none null object optional pass passwd "
        "password qwerty required secret self short str string test text token true type undefined unknown user weak "
        "wrong x y z "
    )
)
_COUNTED: Final = ("123456", "12345678", "123456789")
_SENTENCE: Final = frozenset(
    _names(
        "a an and are as at be by can cannot could do does for from has have if in is it its may must no not of on "
        "one or should that the their this to too use was we will with you your "
    )
)


def can_be_secret(value: str, kind: KeyKind, *, is_bare: bool = False) -> bool:
    """Return True if a value under a key of this kind is to be replaced.

    Args:
        value: The value, without its quotes.
        kind: The kind of its key.
        is_bare: True for a value without quotes in a text, which may be a part of a program or a sentence.
    """
    value = value.strip()
    value, last = value[:MAX_SENTENCE], value[-1:]
    if not value or REDACTED in value or not kind:
        return False
    if kind is KeyKind.ANY:
        return True
    scheme = SCHEME.match(value)
    core = value[scheme.end() :] if scheme is not None else value
    letters = "".join(filter(str.isalpha, core)).lower()
    if (
        (letters in _PLAIN and not (kind is KeyKind.PASSWORD and not is_bare and _is_mixed(core)))
        or core in _COUNTED
        or _is_reference(core, last, is_bare=is_bare)
        or (len(core) < MIN_SECRET and kind is not KeyKind.PASSWORD)
    ):
        return False
    is_random = looks_random(core)
    if not is_random and (_PATH.match(core) or _PLACEHOLDER.match(core)):
        return False
    if any(map(str.isspace, core)):
        return _is_phrase(core, kind, is_random=is_random, is_bare=is_bare)
    if _NUMBER.fullmatch(core):
        return kind is KeyKind.PASSWORD and len(core) >= MIN_SECRET and core.strip("-").isdigit()
    if _DOTTED.fullmatch(core) and not is_random:
        # A word, or a name of something.
        return kind is KeyKind.PASSWORD and not is_bare and len(core) >= MIN_KEY and core.islower()
    if kind is KeyKind.WORD:
        return len(core) >= MIN_RANDOM and (is_random or is_basic(core))
    if kind is KeyKind.KEY:
        is_made = (
            is_random or any(map(str.isdigit, core)) or (not is_bare and "-" in core and len(core) >= MIN_HYPHENED)
        )
        return len(core) >= (MIN_RANDOM if is_bare else MIN_KEY) and is_made
    return len(core) >= MIN_SECRET


def _is_mixed(value: str) -> bool:
    """Return True for eight characters or more of letters, digits and punctuation, such as `123456x9!`."""
    return (
        len(value) >= MIN_RANDOM
        and not any(map(str.isspace, value))
        and any(map(str.isdigit, value))
        and not value.replace("_", "").isalnum()
    )


def _is_reference(value: str, last: str, *, is_bare: bool) -> bool:
    """Return True for a variable, a call or a template."""
    if is_bare and value[0] in "$%{<*#@&|([":
        return True
    if _VARIABLE.match(value):
        return not (value[0] in "@&#*" and looks_random(value))
    return _CALL.match(value) is not None and (is_bare or last in ")]}>([{" or any(map(str.isspace, value)))


def _is_phrase(value: str, kind: KeyKind, *, is_random: bool, is_bare: bool) -> bool:
    """Return True for cookies, and for a passphrase of words that no sentence is made of."""
    if "=" in value and is_random:
        return kind is not KeyKind.PASSWORD or not is_bare
    words = value.lower().split()
    if kind is KeyKind.KEY and is_random:
        return len(words) <= MAX_PARTS and _SENTENCE.isdisjoint(words)
    return (
        kind is KeyKind.PASSWORD
        and not is_bare
        and _SENTENCE.isdisjoint(words)
        and not value[0].isupper()
        and value[-1] not in ".:?"
        and (value[-1] != "!" or len(words) > MAX_PARTS - 1)
        and value[0].isalnum()
        and not any(sign in value for sign in "(){}=<>,;")
    )
