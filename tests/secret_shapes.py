"""Secrets in payloads and texts, and values that only resemble them."""

from __future__ import annotations

import json
from typing import Any, Final

SECRET: Final = "hunter2x9Kq"
"""A secret without a form of its own: only its name tells."""

SECRET_KEYS: Final = (
    "API_KEY", "APIKey", "Authorization", "DATABASE_URL", "GITHUB_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY",
    "OpenAIKey", "Proxy-Authorization", "Set-Cookie", "Token", "X-API-Key", "X-Auth-Token", "accessToken",
    "access_token", "account_key", "api key", "api_key", "api_key_2", "api\u200b_key", "apiKey", "apikey", "auth",
    "auth_header", "aws_access_key_id", "aws_secret_access_key", "basic_auth", "bearer", "clientSecret",
    "client_secret", "connection_string", "cookie", "cookies", "credential", "credentials", "csrf", "dbPassword",
    "db_pass", "db_password", "dbpassword", "dsn", "encryption_key", "githubToken", "github_token", "gitlab_token",
    "hf_token", "jwt", "my_secret_value", "new_password_confirm", "openai.api_key", "openai_key", "otp", "passphrase",
    "pass\u200bword", "password", "password1", "pin_code", "private_key", "pwd", "refreshToken", "sas_token", "secret",
    "secretValue", "secrets", "sessionid", "slack_token", "ssh_key", "token", "user_token", "webhook_url",
    "x-goog-api-key", "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
)  # fmt: skip

ORDINARY_KEYS: Final = (
    "EOS_TOKEN", "MASK_TOKEN", "MAX_TOKENS", "PAD_TOKEN", "answer_token", "auth_type", "author", "bos_token", "bypass",
    "cache_key", "compass", "content", "cookie_recipe", "eos_token", "first_token", "function_signature", "image_token",
    "image_url", "input_tokens", "key", "keys", "max_new_tokens", "max_tokens", "monkey", "next_token", "num_tokens",
    "oauth", "pad_token", "pass", "pass_at_1", "password_file", "pin", "primary_key", "prompt_ids", "prompt_token_ids",
    "public_key", "response_ids", "response_tokens", "secret_name", "secretary", "session", "session_id", "signature",
    "sort_key", "stop_token", "think_end_token", "token_count", "token_ids", "token_type", "tokenizer", "tokens",
    "tokens_per_second", "url", "valid_token",
)  # fmt: skip

TEXTS: Final = {
    "repr": f"{{'api_key': '{SECRET}'}}",
    "repr with double quotes": f"{{'api_key': \"{SECRET}\"}}",
    "repr of bytes": f"{{b'authorization': b'Bearer {SECRET}'}}",
    "JSON": f'{{"api_key":"{SECRET}"}}',
    "JSON with spaces": f'{{"api_key" : "{SECRET}"}}',
    "JSON in JSON": json.dumps({"a": json.dumps({"b": json.dumps({"password": SECRET})})}),
    "JSON that is cut": f'{{"a": [1, {{"client_secret": "{SECRET}',
    "JSON among text": f'<call>{{"apiKey": "{SECRET}"}}</call>',
    "JSON with NaN": json.dumps({"password": SECRET, "score": float("nan")}),
    "JSON of a pair": f'{{"name": "api_key", "value": "{SECRET}"}}',
    "JSON of a pair with NaN": json.dumps({"name": "api_key", "value": SECRET, "score": float("nan")}),
    "YAML": f"db:\n  password: {SECRET}\n  user: bob",
    "YAML of a pair": f"env:\n  - name: API_KEY\n    value: {SECRET}",
    "variables": f"A=1\nAPI_KEY={SECRET}\nB=2",
    "variables in quotes": f'export GITHUB_TOKEN="{SECRET}"',
    "a command's variable": f"PGPASSWORD={SECRET} psql",
    "ini": f"[db]\npassword = {SECRET}\n",
    "a quote that does not end": f'password="{SECRET}',
    "Python": f'client = OpenAI(api_key="{SECRET}")',
    "repr of an object": f"Config(host='x', password='{SECRET}', port=1)",
    "a query": f"https://x.com/a?api_key={SECRET}&b=1",
    "a signed query": f"https://x.com/a?sv=2020&sig={SECRET}&se=1",
    "a token in a query": f"https://x.com/a?token={SECRET}",
    "user and password": f"https://bob:{SECRET}@host/x",
    "a password with an at sign": f"postgresql://bob:{SECRET}@a@host:5432/x",
    "a data source name": f"host=db user=bob password={SECRET} dbname=x",
    "a connection string": f"AccountName=x;AccountKey={SECRET}==;End=1",
    "a header": f"Authorization: Bearer {SECRET}",
    "a header in lower case": f"authorization: token {SECRET}",
    "a header of curl": f"curl -H 'Authorization: Bearer {SECRET}' https://x.com",
    "a header of a key": f"x-api-key: {SECRET}\r\naccept: */*",
    "cookies": f"Cookie: a=b; session={SECRET}",
    "Bearer alone": f"refused Bearer {SECRET}Abc123 for /v1",
    "pairs": f"[('Authorization', '{SECRET}')]",
    "pairs of bytes": f"[(b'authorization', b'Bearer {SECRET}')]",
    "pairs in JSON": f'[["x-api-key", "{SECRET}"]]',
    "an option": f"psql --password {SECRET}",
    "an option with a sign": f"run --api-key={SECRET}",
    "an option in a list": f"['run', '--github-token', '{SECRET}']",
    "XML": f"<password>{SECRET}</password>",
    "a tool call in XML": f"<parameter=api_key>{SECRET}</parameter>",
    "a tool call in XML with a name": f'<parameter name="password">{SECRET}</parameter>',
    "a message": f"invalid password: {SECRET}",
    "a message with a sign": f"login failed with password={SECRET} for bob",
    "a sentence": f"My API key: {SECRET}",
    "Markdown": f"`password: {SECRET}`",
    "after a line": f"a\nb\tpassword: {SECRET}\n",
}
"""Texts with `SECRET`."""

FORMS: Final = {
    "OpenAI": "sk-proj-abc123DEF456ghi789jkl",
    "OpenAI, old": "sk-" + "aB3d" * 12,
    "Anthropic": "sk-ant-api03-" + "Ab1" * 20,
    "OpenRouter": "sk-or-v1-" + "ab12" * 16,
    "Langfuse": "pk-lf-1234abcd-12ab-34cd-56ef-1234567890ab",
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_11ABC" + "x1" * 20,
    "GitLab": "glpat-abcDEF123456ghi789jk",
    "Hugging Face": "hf_" + "Ab1" * 11 + "c",
    "Slack": "xoxb-123456789012-123456789012-abcDEF",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "AWS, for a session": "ASIAIOSFODNN7EXAMPLE",
    "Google": "AIza" + "Sy1" * 11 + "ab",
    "Stripe": "sk_live_" + "a1B2" * 6,
    "npm": "npm_" + "a1B2" * 9,
    "SendGrid": "SG." + "a1" * 11 + "." + "b2" * 20,
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-def_123",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc/def+==\n-----END RSA PRIVATE KEY-----",
    "a private key that is cut": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nQyNTUxOQAAACB",
}
"""Secrets that show by themselves."""

ORDINARY_TEXTS: Final = (
    "def f(password: str, token: str = None, api_key: Optional[str] = None) -> str:",
    "token = tokenizer.decode(ids)\npassword = input('x')\nsecret = random.randint(1, 2)",
    "api_key = os.environ['X']; client = OpenAI(api_key=api_key)",
    "for key, value in d.items(): print(f'{key}: {value}')",
    "if password == other: self.token = token",
    "the token: a unit of text. Password: must be 8 characters. The secret: never give up.",
    "max_tokens=512, top_p=1, eos_token='<|im_end|>', num_tokens: 12345, token: 50256, cookies: 35",
    "api_key=$API_KEY password: ${X} key=value session=abc signature: (a, b)",
    "--max-tokens 512 --tokenizer gpt2",
    "<token>hello</token> List<Token>abc</b>",
    "token='Hello' auth: false password: null",
    "https://localhost:8080/path?email=a@b.c me@x.com git@github.com:foo/bar.git",
    "sk-learn-based-classification-model desk-1234567890123456789012 Basic understanding of things",
    "Bearer authentication scheme; Basic authentication is required",
)

ORDINARY_VALUES: Final[tuple[Any, ...]] = (
    {"token": 7},
    {"token": [1, 2, 3]},
    {"tokens": ["Hel", "lo"]},
    {"token": {"id": 5, "text": "hi"}},
    {"token": "Hello", "logprob": -0.1, "bytes": [72], "top_logprobs": [{"token": "Hi", "logprob": -2.0}]},
    {"token": "<|im_end|>", "user_token": 5},
    {"password": True, "secret": None, "api_key": 12345, "credentials": []},
    {"name": "temperature", "value": "0.7"},
    {"required": ["password", "name"]},
    {
        "properties": {
            "api_key": {"type": "string", "description": "The key of the service"},
            "password": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Password"},
        }
    },
    {"argv": ["--max-tokens", "512", "--tokenizer", "gpt2"]},
    {"image": "data:image/png;base64," + "iVBORw0KGgo" * 3},
)
"""Values that stay as they are."""
