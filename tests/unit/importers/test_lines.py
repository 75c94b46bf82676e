import io

from redrive.importers.lines import Record, read_records
from redrive.record.event import FLAG_RECOVERED, Damage


def test_a_number_beyond_floats_is_kept_as_text_where_two_records_share_a_line() -> None:
    found = list(read_records(io.BytesIO(b'{"a":1e999} {"b":NaN}\n')))
    assert [type(item) for item in found] == [Damage, Record, Record]
    values = [(item.value, item.flags) for item in found if isinstance(item, Record)]
    assert values == [({"a": "1e999"}, (FLAG_RECOVERED,)), ({"b": "NaN"}, (FLAG_RECOVERED,))]
