"""Redaction before anything is stored: the redactor with the user's key, for a recorder."""

from collections.abc import Callable, Mapping, Sequence

from redrive.capture.exchanges import decode_content
from redrive.errors import StoreError
from redrive.record.event import Event
from redrive.reports.scrubber import Scrubber
from redrive.stores.locate import find_home
from redrive.stores.redaction_key import load_key

Scrub = Callable[[Sequence[Event], Sequence[bytes]], tuple[Sequence[Event], Sequence[bytes]]]


def scrub_with_user_key(environment: Mapping[str, str]) -> Scrub:
    """Give what masks the batches of one session, in order; marks match those of every output.

    Args:
        environment: may name the key's file, `REDRIVE_REDACTION_KEY_FILE`.

    Raises:
        StoreError: there is no key that stays; what is stored could never be matched again.
    """
    key = load_key(environment, find_home)
    if key.problem:
        raise StoreError(
            f"marks that stay need a key that stays: {key.problem}",
            hint="name a file for it: REDRIVE_REDACTION_KEY_FILE",
        )
    return Scrubber(key.key, decode_content)
