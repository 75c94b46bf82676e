"""Redaction before anything is stored: the redactor with the user's key, for a recorder."""

from collections.abc import Callable, Mapping, Sequence

from redrive.capture.exchanges import decode_content
from redrive.record.event import Event
from redrive.reports.scrubber import Scrubber
from redrive.stores.locate import find_home
from redrive.stores.redaction_key import load_key

Scrub = Callable[[Sequence[Event], Sequence[bytes]], tuple[Sequence[Event], Sequence[bytes]]]


def scrub_with_user_key(environment: Mapping[str, str]) -> Scrub:
    """Give what masks the batches of one session, in order; marks match those of every output.

    Args:
        environment: may name the key's file, `REDRIVE_REDACTION_KEY_FILE`.
    """
    return Scrubber(load_key(environment, find_home).key, decode_content)
