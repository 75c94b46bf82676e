"""What names of fields say about their values, and which values are no secret all the same.

Knows names (`api_key`, `X-Auth-Token`, `DB_PASSWORD`) and values on their own. Must not know where
in a text or document they stand.
"""

import base64
import re
from enum import Enum
from functools import lru_cache

from redrive.reports.redact_rules import entropy

__all__ = [
    "Level",
    "is_pair_in_base64",
    "is_placeholder",
    "judge",
    "level_of",
    "looks_random",
    "looks_torn",
]

_MAX_NAME = 80
_JUDGED_CHARS = 300
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_APART = re.compile(r"[^A-Za-z0-9]+")
_ENDINGS = re.compile(
    r"(?:_(?:value|prod|production|dev|test|staging|old|new|current|confirm|confirmation|again"
    r"|base64|b64|plain|plaintext|text|raw|live|main|primary|secondary|default|\d+))+$|\d+$"
)


class Level(Enum):
    """How much a name says: `PHRASE` may hold spaces, `MAYBE` needs a value that looks random."""

    PHRASE = "phrase"
    SURE = "sure"
    HEADER = "authorization"
    COOKIE = "cookie"
    MAYBE = "maybe"


_SURE_NAMES = (
    "password passwd pwd passcode secret secrets apikey api_key secret_key secretkey access_key"
    " accesskey private_key privatekey private_key_id account_key accountkey shared_key"
    " shared_access_key shared_access_signature signing_key encryption_key decryption_key"
    " master_key auth_key service_key license_key subscription_key app_key application_key"
    " deploy_key ssh_key api_secret access_token accesstoken refresh_token auth_token authtoken"
    " id_token bearer_token session_token sessiontoken security_token csrf_token xsrf_token"
    " api_token apitoken bot_token personal_token oauth_token sas_token user_token service_token"
    " client_secret consumer_secret connection_string connectionstring conn_str jwt bearer"
    " function_key functions_key admin_key write_key sig amz_signature amz_credential"
    " amz_security_token secret_access_key storage_key webhook_secret otp totp mfa_code pin_code"
    " recovery_code seed_phrase encryption_secret db_pass dbpass userpass ftp_pass smtp_pass"
    " root_pass admin_pass mysql_pwd pgpassword sshpass"
)
_SURE = tuple(_SURE_NAMES.split())
_PHRASE = ("passphrase", "seed_phrase", "mnemonic", "recovery_phrase")
_HEADER = ("authorization", "proxy_authorization")
_COOKIE = ("cookie", "cookies", "set_cookie")
_MAYBE = ("token", "key", "auth", "credential", "credentials", "pass", "code_verifier", "webhook")
_PLAIN = re.compile(
    # Tokens of language models, pages and parsers; keys of data and of keyboards; caches.
    r"(?:^|_)(?:next|prev|previous|page|continuation|cursor|sync|resume|pad|eos|bos|unk|sep|mask"
    r"|cls|stop|special|max|min|first|last|end|start|begin|per|num|n|public|primary|foreign"
    r"|sort|partition|cache|dict|object|index|group|map|hash|storage|bucket|s3|idempotency|row"
    r"|join|unique|lookup|order|dedup|dedupe|shortcut|hot|translation|i18n|prompt_cache|cancel"
    r"|cancellation|thread|task|current|lex|prompt|completion|image|audio|text)_(?:token|key)$"
)
_ENV_FOLDERS = frozenset({"PWD", "OLDPWD"})


@lru_cache(maxsize=4096)
def level_of(name: str) -> Level | None:
    """Say what a field's name tells of its value; `None` where it is like any other.

    `DB_PASSWORD`, `dbPassword` and `db-password-2` are one name; only how a name ends counts, so
    that `token_url` and `password_hash_rounds` tell nothing.
    """
    if len(name) > _MAX_NAME or name in _ENV_FOLDERS:
        return None
    words = _APART.sub("_", _CAMEL.sub("_", name)).strip("_").lower()
    plain = _ENDINGS.sub("", words) or words
    for names, level in (
        (_PHRASE, Level.PHRASE),
        (_HEADER, Level.HEADER),
        (_COOKIE, Level.COOKIE),
        (_SURE, Level.SURE),
        (_MAYBE, Level.MAYBE),
    ):
        if any(_ends(plain, end) for end in names):
            return None if _PLAIN.search(plain) else level
    return None


def _ends(words: str, end: str) -> bool:
    """Say whether a name ends in these words; `mypassword` does, `bypass` in no `pass`."""
    if words == end or words.endswith("_" + end):
        return True
    return len(end) >= 6 and words.endswith(end) and "_" not in end and end != "secrets"


_PLACEHOLDER_WORDS = (
    "none null nil true false undefined string str text bytes int password passwd pwd secret"
    " token key required optional yes no object array any unknown empty redacted hidden masked"
    " default default_value value example changeme change-me your-password your_password"
    " your-api-key your_api_key your-token your_token yourpassword input hash plain number"
    " boolean char varchar bool user username postgres-password n/a na tbd todo missing unset"
    " set invalid valid expired basic bearer digest negotiate oauth oauth2 jwt type filtered absent"
    " tuple list dict"
)
_PLACEHOLDERS = frozenset(_PLACEHOLDER_WORDS.split())
_TEMPLATE = re.compile(
    r"\$\{|\$\(|\$\$?[A-Za-z_]\w*\Z|<[^>]*>?\Z|\{\{|\{[A-Za-z_.]*(?:\}|\Z)|%[({]|%\w+%\Z|#\{|@\{"
    r"|\[redacted:|\[REDACTED|\*{3,}|\.\.\.|…|x{3,}|X{3,}"
)
_BARE_TEMPLATE = re.compile(r"[$<{\[(*&!%]")
_YOURS = re.compile(r"(?i)your[-_ ][a-z_ -]+$")
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
# A name in code, maybe with dots, arrows or a call behind it: `args.password`, `user->token`.
_CODE = re.compile(r"[A-Za-z_][A-Za-z_]*\d?(?:(?:\?*\.|->|::|-)[A-Za-z_]+\d?)*[\[(]?")
_DIGEST = re.compile(
    r"(?:[a-z][a-z0-9_]{0,9}[-:])?(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64,128})"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WORDS = re.compile(r"[A-Za-z]+\d{0,2}(?:[-_./: ][A-Za-z]*\d{0,2})*")


def is_placeholder(value: str, *, is_quoted: bool = True) -> bool:
    """Say whether a value stands for a secret, or for none: `${TOKEN}`, `<password>`, `null`."""
    if not is_quoted and _BARE_TEMPLATE.match(value):
        return True
    if len(value) < 4 or _TEMPLATE.match(value) or _YOURS.match(value):
        return True
    bare = value.strip("\"'`()[]{}<>.,;:!? ").lower()
    return not bare or bare in _PLACEHOLDERS or _ENV_NAME.fullmatch(value) is not None


def looks_random(value: str, *, least: int = 12) -> bool:
    """Say whether a value is like a generated one: no words, no path, no digest, no id."""
    value = value[:_JUDGED_CHARS]
    if len(value) < least or not any(char.isdigit() for char in value):
        return False
    if not any(char.isalpha() for char in value) or any(char.isspace() for char in value):
        return False
    if value.startswith(("/", "./", "~/", "http://", "https://")) or value.count("/") > 3:
        return False
    if any(shape.fullmatch(value) for shape in (_DIGEST, _UUID, _WORDS)):
        return False
    return entropy(value) >= 2.5 and value.isascii() and not _is_code_like(value)


def looks_torn(value: str) -> bool:
    """Say whether a value could be the beginning of a generated one: no single word."""
    if looks_random(value, least=5):
        return True
    is_mixed = value.lower() != value != value.upper() and not value.istitle()
    return is_mixed and len(value) > 6 and value.isalnum() and value.isascii()


def _is_code_like(value: str) -> bool:
    return any(char in value for char in "(){}[]<>\\;") or "::" in value


def judge(value: str, level: Level, *, is_quoted: bool, is_assigned: bool) -> bool:
    """Say whether the value of a field with such a name is a secret.

    Args:
        value: the whole value, or what is left of it.
        level: what the name tells.
        is_quoted: whether quotes, or a document's structure, say where the value ends.
        is_assigned: whether it is the value of a setting for sure (an environment variable, a
            command's flag, a query parameter), and not a name in source code.
    """
    if is_placeholder(value, is_quoted=is_quoted or is_assigned):
        return False
    if level is Level.MAYBE:
        return looks_random(value) or is_pair_in_base64(value)
    value = value[:_JUDGED_CHARS]
    if _names_a_secret(value):
        return False
    is_prose = _is_prose(value)
    if is_quoted or is_prose:
        return level is Level.PHRASE or not is_prose
    return is_assigned or not (_CODE.fullmatch(value) or _is_dotted_name(value))


def _is_dotted_name(value: str) -> bool:
    """Say whether a value is like `ed25519.Ed25519PrivateKey`; a token's parts are longer."""
    parts = value.split(".")
    return 1 < len(parts) < 5 and all(part.isidentifier() and len(part) < 24 for part in parts)


def _names_a_secret(value: str) -> bool:
    """Say whether a value is itself the name of a secret: `"key": "access_token"`."""
    is_name = _CODE.fullmatch(value) is not None and not any(char.isdigit() for char in value)
    return is_name and level_of(value) is not None


def _is_prose(value: str) -> bool:
    # Each of many names in one long line asks this of the same 300 characters behind it.
    return value.count(" ") > 1 and not any(map(str.isdigit, value))


def is_pair_in_base64(value: str) -> bool:
    """Say whether a value is the Base64 of `user:password`, as Basic authentication writes it."""
    if len(value) < 8 or len(value) > 2000 or len(value) % 4:
        return False
    try:
        pair = base64.b64decode(value, validate=True).decode()
    except ValueError:
        return False
    return ":" in pair and pair.isprintable()
