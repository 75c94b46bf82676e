"""Large texts of model requests: content-addressed, each stored as what is new in it.

Knows bytes and digests. Must not know events. The requests of a session grow by a message each
step; what a text shares with the ends of the one before it is counted, and what lies between is
compressed with the rest of that one as a dictionary, so a text costs about its new bytes.
Each 1,024th text of a chain stands alone. Reading in order costs one difference a text; reading one
text out of order rebuilds those before it in its chain (measured: 0.2 s at a thousand).

Source: DESIGN.md §3: bodies are stored by content-addressed parts and rebuilt hash-checked.
"""

import hashlib
from collections import OrderedDict

import zstandard

from redrive.errors import TamperError
from redrive.record.texts import common_ends
from redrive.stores.database import Database
from redrive.stores.rows import TextRow, find_row, next_id, put_row

CHAIN_TEXTS = 1024
MAX_DELTA_BYTES = 16 * 1024 * 1024
_CACHE_BYTES = 8 * 1024 * 1024
_CACHE_MIN_TEXTS = 2
_LEVEL = 3
_LOOK_BACK_BYTES = 64 * 1024


class TextStore:
    """Writes and reads the large texts of one store, with a small cache for reading in order."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0

    def clear(self) -> None:
        """Forget what is cached, as after a transaction that was rolled back."""
        self._cache.clear()
        self._cached_bytes = 0

    def put(self, text: bytes, previous: bytes | None) -> bytes:
        """Store a text, unless it is there already.

        Args:
            text: any bytes.
            previous: digest of a stored text that this one probably resembles.

        Returns:
            The text's sha256.
        """
        sha256 = hashlib.sha256(text).digest()
        if self._find(sha256) is not None:
            return sha256
        base = None if previous is None else self._base_after(previous, len(text))
        number = next_id(self._database, TextRow)
        if base is None:
            row = TextRow(number, sha256, len(text), None, 0, 0, 0, _compress(text, b""))
        else:
            old = self._rebuild(base)
            prefix, suffix = common_ends(old, text)
            middle = text[prefix : len(text) - suffix]
            data = _compress(middle, _dictionary(old, prefix))
            ordinal = base.ordinal + 1
            row = TextRow(number, sha256, len(text), base.id, ordinal, prefix, suffix, data)
        put_row(self._database, row)
        self._remember(number, text)
        return sha256

    def get(self, sha256: bytes) -> bytes:
        """Give a stored text.

        Raises:
            TamperError: it is missing, or it or one that it builds on is damaged.
        """
        row = self._find(sha256)
        if row is None:
            raise _tampered(sha256, "it is missing")
        return self._rebuild(row)

    def set_apart(self, row: TextRow) -> None:
        """Store a text anew so that it builds on no other; those that build on it still do."""
        text = self._rebuild(row)
        alone = TextRow(row.id, row.sha256, row.size, None, 0, 0, 0, _compress(text, b""))
        put_row(self._database, alone, replaces=True)

    def _find(self, sha256: bytes) -> TextRow | None:
        return find_row(self._database, TextRow, "WHERE sha256 = ?", (sha256,))

    def _get_row(self, number: int, wanted: TextRow) -> TextRow:
        row = find_row(self._database, TextRow, "WHERE id = ?", (number,))
        if row is None:
            raise _tampered(wanted.sha256, f"text {number}, which it builds on, is missing")
        return row

    def _base_after(self, previous: bytes, size: int) -> TextRow | None:
        """Say which text the one after `previous` builds on; `None` where it stands alone."""
        row = self._find(previous)
        if row is None or row.ordinal + 1 >= CHAIN_TEXTS or size > MAX_DELTA_BYTES:
            return None
        return row if row.size <= MAX_DELTA_BYTES else None

    def _rebuild(self, row: TextRow) -> bytes:
        """Rebuild a text from the nearest one in the cache, or from one that stands alone."""
        link = row
        later: list[TextRow] = []
        while (text := self._cached(link.id)) is None and link.base is not None:
            if len(later) > CHAIN_TEXTS:
                raise _tampered(row.sha256, "its chain has no beginning")
            later.append(link)
            link = self._get_row(link.base, row)
        if text is None:
            text = _decompress(link, b"")
            self._remember(link.id, text)
        for link in reversed(later):
            text = _extend(link, text)
            self._remember(link.id, text)
        if hashlib.sha256(text).digest() != row.sha256:
            raise _tampered(row.sha256, "its bytes do not match its digest")
        return text

    def _cached(self, number: int) -> bytes | None:
        text = self._cache.get(number)
        if text is not None:
            self._cache.move_to_end(number)
        return text

    def _remember(self, number: int, text: bytes) -> None:
        self._cache[number] = text
        self._cached_bytes += len(text)
        while self._cached_bytes > _CACHE_BYTES and len(self._cache) > _CACHE_MIN_TEXTS:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])


def _dictionary(base: bytes, prefix: int) -> bytes:
    """Give the part of a base that the middle of the next text may resemble."""
    return base[max(0, prefix - _LOOK_BACK_BYTES) :]


def _compress(data: bytes, dictionary: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        window_log=max(10, (len(dictionary) + len(data)).bit_length()),
        source_size=len(data),
        dict_size=len(dictionary),
        enable_ldm=len(dictionary) > _LOOK_BACK_BYTES * 2,
    )
    return zstandard.ZstdCompressor(
        dict_data=_raw_dictionary(dictionary), compression_params=parameters
    ).compress(data)


def _decompress(row: TextRow, dictionary: bytes) -> bytes:
    try:
        if zstandard.frame_content_size(row.data) != row.size - row.prefix - row.suffix:
            raise _tampered(row.sha256, "its size is another")
        return zstandard.ZstdDecompressor(dict_data=_raw_dictionary(dictionary)).decompress(
            row.data
        )
    except zstandard.ZstdError as error:
        raise _tampered(row.sha256, str(error)) from error


def _extend(row: TextRow, base: bytes) -> bytes:
    """Rebuild the text that builds on `base`."""
    middle = _decompress(row, _dictionary(base, row.prefix))
    return base[: row.prefix] + middle + base[len(base) - row.suffix :]


def _raw_dictionary(data: bytes) -> zstandard.ZstdCompressionDict | None:
    if not data:
        return None
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _tampered(sha256: bytes, what: str) -> TamperError:
    return TamperError(
        f"text {sha256.hex()} is damaged: {what}",
        hint="`redrive verify` lists all that is damaged",
    )
