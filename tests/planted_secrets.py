"""Plants invented secrets in texts, in many shapes and spellings.

It does not import redrive, so that what is planted is not made from what is found. All values are
random and joined from parts, so that no scanner takes this file for a leak.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

_ALNUM = string.ascii_letters + string.digits
_WORD = _ALNUM + "-_"
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + "234567"


@dataclass(frozen=True)
class Planted:
    """A text with one secret: `public` is what of it everybody knows, such as `ghp_`."""

    shape: str
    spelling: str
    text: str
    public: str
    secret: str

    def leaks_in(self, output: str) -> bool:
        """Say whether an output holds more than eight characters of the secret's own part."""
        begun = self.secret[:9]
        if begun in output or json.dumps(begun)[1:-1] in output:
            return True
        if self.spelling == "url-encoded":
            return quote(begun, safe="") in output or _percent(begun) in output
        if self.spelling == "unicode-escapes":
            spelled = _unicode(begun)
            lines = (line for line in output.splitlines() if spelled[-4:] in line)
            return any(spelled in line.replace("\\\\", "\\") for line in lines)
        return False

    def windows(self) -> set[str]:
        """Give what of the secret nothing stored may hold: nine characters of either half of it.

        They are given as they are, and as the spelling of this text writes them.
        """
        size, middle = len(self.secret), len(self.secret) // 2
        starts = {0, max(0, middle - WINDOW_CHARS), middle, max(0, size - WINDOW_CHARS)}
        plain = {self.secret[start : start + WINDOW_CHARS] for start in starts}
        plain = {text for text in plain if len(text) == WINDOW_CHARS}
        if self.spelling == "url-encoded":
            return plain | {quote(text, safe="") for text in plain} | set(map(_percent, plain))
        if self.spelling == "unicode-escapes":
            return plain | set(map(_unicode, plain))
        return plain


def _draw(dice: random.Random, chars: str, count: int) -> str:
    return "".join(dice.choice(chars) for _ in range(count))


def _percent(text: str) -> str:
    return "".join(f"%{ord(char):02X}" for char in text)


def _unicode(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


# shape → (what everybody knows, alphabet of the rest, its length)
PREFIXED = {
    "openai-project": ("sk-" + "proj-", _WORD, 48),
    "openai-service": ("sk-" + "svcacct-", _WORD, 48),
    "openai-old": ("sk-", _ALNUM, 48),
    "anthropic": ("sk-" + "ant-api03-", _WORD, 93),
    "google": ("AI" + "za", _WORD, 35),
    "google-oauth": ("ya" + "29.", _WORD, 60),
    "google-client": ("GOC" + "SPX-", _WORD, 28),
    "aws-id": ("AK" + "IA", _UPPER, 16),
    "aws-session-id": ("AS" + "IA", _UPPER, 16),
    "github": ("gh" + "p_", _ALNUM, 36),
    "github-server": ("gh" + "s_", _ALNUM, 36),
    "github-fine": ("github_" + "pat_", _ALNUM, 82),
    "gitlab": ("gl" + "pat-", _ALNUM, 20),
    "slack-bot": ("xo" + "xb-", string.digits + _ALNUM, 50),
    "slack-user": ("xo" + "xp-", string.digits + _ALNUM, 60),
    "stripe": ("sk_" + "live_", _ALNUM, 24),
    "stripe-restricted": ("rk_" + "live_", _ALNUM, 24),
    "npm": ("np" + "m_", _ALNUM, 36),
    "pypi": ("py" + "pi-AgEIcHlwaS5vcmc", _WORD, 70),
    "huggingface": ("h" + "f_", _ALNUM, 34),
    "daytona": ("dt" + "n_", _HEX, 64),
    "twilio": ("S" + "K", _HEX, 32),
    "vault": ("hv" + "s.", _ALNUM, 24),
    "age": ("AGE-SECRET-" + "KEY-1", string.ascii_uppercase + string.digits, 58),
    "digitalocean": ("dop" + "_v1_", _HEX, 64),
    "shopify": ("shp" + "at_", _HEX, 32),
    "groq": ("gs" + "k_", _ALNUM, 52),
    "linear": ("lin" + "_api_", _ALNUM, 40),
    "databricks": ("da" + "pi", _HEX, 32),
    "docker": ("dckr" + "_pat_", _WORD, 27),
    "slack-webhook": ("https://hooks." + "slack.com/services/", string.ascii_uppercase, 44),
    "azure-ad": ("", _ALNUM, 3),
}

Template = Callable[[str], str]
WINDOW_CHARS = 9


def _bare(dice: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield (shape, public part, secret) of secrets that tell by themselves what they are."""
    for shape, (public, chars, count) in PREFIXED.items():
        if shape != "azure-ad":
            yield shape, public, _filled(dice, chars, count)
    yield "azure-ad", "", f"{_draw(dice, _ALNUM, 3)}8Q~{_draw(dice, _ALNUM, 34)}"
    yield "telegram", _draw(dice, "123456789", 10) + ":AA", _draw(dice, _WORD, 33)
    yield "sendgrid", "SG" + ".", f"{_draw(dice, _WORD, 22)}.{_draw(dice, _WORD, 43)}"
    public = "ey" + "JhbGciOiJIUzI1NiIs"  # every header of this algorithm begins so
    body = _b64({"sub": _draw(dice, _ALNUM, 9)})
    yield "jwt", public, f"{_draw(dice, _ALNUM, 18)}.{body}.{_draw(dice, _WORD, 43)}"


def _filled(dice: random.Random, chars: str, count: int) -> str:
    """Draw a secret that holds a digit, as nearly every real one of this length does."""
    return _draw(dice, chars, count - 1) + dice.choice(sorted(set(chars) & set("234567")) or "x")


def _b64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


# Where a secret stands that only its place tells of: shape → (how it is written, alphabet, length)
PLACED: dict[str, tuple[Template, str, int]] = {
    "env": (lambda s: f"HOME=/h\nDB_PASSWORD={s}\nLANG=C", _WORD, 14),
    "env-export": (lambda s: f"export SERVICE_TOKEN={s} && run", _WORD, 24),
    "env-key": (lambda s: f"MY_API_KEY={s}\n", _HEX, 32),
    "env-quoted": (lambda s: f'CLIENT_SECRET="{s}"', _WORD + "!#%", 18),
    "aws-secret": (lambda s: f"aws_secret_access_key = {s}", _ALNUM + "/+", 40),
    "json": (lambda s: json.dumps({"user": "u", "password": s}), _WORD + "!@#", 12),
    "json-nested": (lambda s: json.dumps({"a": [{"access_token": s}]}), _WORD, 20),
    "json-in-json": (lambda s: json.dumps({"body": json.dumps({"apiKey": s})}), _WORD, 20),
    "json-twice": (
        lambda s: json.dumps({"b": json.dumps({"c": json.dumps({"client_secret": s})})}),
        _WORD,
        20,
    ),
    "python-dict": (lambda s: f"{{'user': 'u', 'secret': '{s}'}}", _WORD, 16),
    "yaml": (lambda s: f"db:\n  user: u\n  password: {s}\n", _WORD, 14),
    "code": (lambda s: f'client = Client(api_key="{s}", retries=3)', _WORD, 26),
    "header": (lambda s: f"Host: h\nX-Api-Key: {s}\nAccept: */*", _WORD, 22),
    "bearer": (lambda s: f"curl -H 'Authorization: Bearer {s}' https://h.test", _WORD, 30),
    "bearer-alone": (lambda s: f"sent Bearer {s} to the host", _ALNUM, 32),
    "cookie": (lambda s: f"Cookie: theme=dark; sid={s}\nHost: h", _ALNUM, 26),
    "set-cookie": (lambda s: f"Set-Cookie: sid={s}; Path=/; HttpOnly", _ALNUM, 26),
    "query": (lambda s: f"GET https://h.test/v1?page=2&access_token={s}&x=1", _ALNUM, 24),
    "dsn": (lambda s: f"postgres://svc:{s}@db.test:5432/app", _WORD, 15),
    "redis": (lambda s: f"redis://:{s}@cache.test:6379/0", _WORD, 15),
    "odbc": (lambda s: f"Server=db;Uid=sa;Password={s};Encrypt=yes", _WORD, 15),
    "azure": (
        lambda s: f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s}==;EndpointSuffix=x",
        _ALNUM + "+/",
        86,
    ),
    "argv-flag": (lambda s: f"tool login --user-name u --password {s} --now", _WORD, 14),
    "argv-equals": (lambda s: f"tool --api-key={s} run", _WORD, 20),
    "argv-list": (lambda s: json.dumps(["tool", "--token", s, "run"]), _WORD, 24),
    "curl-user": (lambda s: f"curl -u bob:{s} https://h.test", _ALNUM, 14),
    "sshpass": (lambda s: f"sshpass -p {s} ssh root@h.test", _ALNUM, 14),
    "mysql": (lambda s: f"mysql -u root -p{s} app", _ALNUM, 14),
    "netrc": (lambda s: f"machine h.test login bob password {s}", _ALNUM, 14),
    "npmrc": (lambda s: f"//registry.test/:_authToken={s}", _HEX, 36),
    "docker-auth": (
        lambda s: json.dumps({"auths": {"h": {"auth": _basic(s)}}}) if s else "",
        _ALNUM,
        18,
    ),
    "basic": (lambda s: f"Authorization: Basic {_basic(s)}", _ALNUM, 18),
    "har-header": (lambda s: json.dumps({"name": "x-auth-token", "value": s}), _WORD, 24),
    "pair": (lambda s: json.dumps([["accept", "*/*"], ["x-api-key", s]]), _WORD, 24),
    "as-key": (lambda s: json.dumps({"AI" + "za" + s: {"uses": 3}}), _WORD, 35),
    "discord": (
        lambda s: f"https://discord.com/api/webhooks/123456789012345678/{s}",
        _WORD,
        68,
    ),
    "sas": (lambda s: f"https://a.blob.test/c?sv=2024&sig={s}%3D&se=1", _ALNUM, 43),
    "pem": (
        lambda s: (
            f"-----BEGIN {'RSA PRIVATE'} KEY-----\n{_lines(s)}\n-----END RSA PRIVATE KEY-----"
        ),
        _ALNUM + "+/",
        640,
    ),
    "openssh-cut": (
        lambda s: f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----\n{_lines(s)}",
        _ALNUM + "+/",
        300,
    ),
    "service-account": (
        lambda s: json.dumps(
            {
                "type": "service_account",
                "private_key": f"-----BEGIN {'PRIVATE'} KEY-----\n{s}\n-----END PRIVATE KEY-----\n",
            }
        ),
        _ALNUM + "+/",
        400,
    ),
}


def _lines(text: str) -> str:
    return "\n".join(text[n : n + 64] for n in range(0, len(text), 64))


def _basic(secret: str) -> str:
    return base64.b64encode(f"bob:{secret}".encode()).decode()


SPELLINGS: dict[str, Template] = {
    "plain": lambda text: f"before {text}\nafter",
    "json-string": lambda text: json.dumps({"out": f"x\n{text}\ny"}),
    "json-in-json": lambda text: json.dumps({"out": json.dumps({"in": f"x\n{text}"})}),
    "url-encoded": lambda text: f"GET /log?line={quote(text, safe='')}&n=1",
    "unicode-escapes": lambda text: f'{{"out":"{_unicode(text)}"}}',
    "one-line": lambda text: f"      says: {text}".replace("\n", "\\n"),
}


def plant(seed: int = 7) -> Iterator[Planted]:
    """Yield several hundred texts with a secret each; the same for the same seed."""
    dice = random.Random(seed)
    for spelling, spell in SPELLINGS.items():
        for shape, public, secret in _bare(dice):
            whole = public + secret
            yield Planted(shape, spelling, spell(f"key {whole} used"), public, secret)
            cut = whole[: len(public) + 10]
            if spelling == "plain":
                yield Planted(f"{shape}-cut", "cut", f"the key is {cut}…", public, secret[:10])
        for shape, (write, chars, count) in PLACED.items():
            secret = (
                _draw(dice, chars, count - 3) + "z9K"[:3]
                if chars != _HEX
                else _draw(dice, chars, count)
            )
            shown = _basic(secret) if shape in ("basic", "docker-auth") else secret
            yield Planted(shape, spelling, spell(write(secret)), "", shown)


def pieces(text: str, size: int) -> list[str]:
    """Cut a text into pieces of a size, as a stream does."""
    return [text[n : n + size] for n in range(0, len(text), size)] or [""]


def _event(value: object, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n"


def chat_stream(text: str, arguments: str, call_id: str, size: int) -> bytes:
    """Write an answer of a chat API with a text and a call as a stream of pieces."""

    def delta(**fields: object) -> str:
        choice = {"index": 0, "delta": fields, "finish_reason": None}
        return _event({"id": f"r-{call_id}", "model": "m-1", "choices": [choice]})

    def call(**function: str) -> dict[str, object]:
        return {"index": 0, "id": call_id, "type": "function", "function": function}

    lines = [delta(role="assistant", content="")]
    lines += [delta(content=piece) for piece in pieces(text, size)]
    lines.append(delta(tool_calls=[call(name="shell", arguments="")]))
    lines += [delta(tool_calls=[call(arguments=piece)]) for piece in pieces(arguments, size)]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    lines.append(_event({"id": f"r-{call_id}", "model": "m-1", "choices": [end]}))
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def message_stream(text: str, arguments: str, call_id: str, size: int) -> bytes:
    """Write an answer of Anthropic's API with a text and a call as a stream of pieces."""

    def delta(index: int, **fields: str) -> str:
        value = {"type": "content_block_delta", "index": index, "delta": fields}
        return _event(value, "content_block_delta")

    def block(index: int, fields: dict[str, object]) -> str:
        value = {"type": "content_block_start", "index": index, "content_block": fields}
        return _event(value, "content_block_start")

    def stop(index: int) -> str:
        return _event({"type": "content_block_stop", "index": index}, "content_block_stop")

    message = {"id": f"r-{call_id}", "type": "message", "role": "assistant", "model": "m-1"}
    message |= {"content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}
    lines = [_event({"type": "message_start", "message": message}, "message_start")]
    lines.append(block(0, {"type": "text", "text": ""}))
    lines += [delta(0, type="text_delta", text=piece) for piece in pieces(text, size)]
    lines.append(stop(0))
    lines.append(block(1, {"type": "tool_use", "id": call_id, "name": "shell", "input": {}}))
    lines += [
        delta(1, type="input_json_delta", partial_json=piece) for piece in pieces(arguments, size)
    ]
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    end |= {"usage": {"output_tokens": 9}}
    lines += [
        stop(1),
        _event(end, "message_delta"),
        _event({"type": "message_stop"}, "message_stop"),
    ]
    return "".join(lines).encode()


def joined_stream(data: bytes) -> str:
    """Put a stream's pieces together again: every string of its events, by its key, in order."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith("data: {"):
            stack: list[tuple[str, object]] = [("", json.loads(line[6:]))]
            while stack:
                key, value = stack.pop()
                if isinstance(value, str):
                    found[key] = found.get(key, "") + value
                elif isinstance(value, dict):
                    stack += value.items()
                elif isinstance(value, list):
                    stack += [(key, part) for part in value]
    return "\n".join(found.values())
