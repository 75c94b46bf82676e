import pytest

from redrive.errors import StoreError
from redrive.record.schema import SCHEMA_VERSION, UPCASTERS, upcast


def upcast_v1(row):
    row["node_id"] = row.pop("node")
    return row


def upcast_v2(row):
    return row | {"actor": row.get("actor", "main")}


STEPS = {1: upcast_v1, 2: upcast_v2}


def test_an_old_row_is_lifted_step_by_step_and_stays_as_it_is():
    row = {"id": "a", "node": "n"}
    lifted = {"id": "a", "node_id": "n", "actor": "main"}
    assert upcast(row, 1, upcasters=STEPS, newest=3) == lifted
    assert row == {"id": "a", "node": "n"}
    assert upcast({"node_id": "n"}, 2, upcasters=STEPS, newest=3)["actor"] == "main"


def test_a_row_of_today_is_given_as_it_is():
    row = {"id": "a"}
    assert upcast(row, SCHEMA_VERSION) is row


def test_a_newer_row_and_a_missing_step_are_refused():
    with pytest.raises(StoreError, match="knows up to 3"):
        upcast({}, 4, upcasters=STEPS, newest=3)
    with pytest.raises(StoreError, match="from event schema version 3 to 4"):
        upcast({"node": "n"}, 1, upcasters=STEPS, newest=4)


def test_every_older_version_has_its_step():
    assert set(UPCASTERS) == set(range(1, SCHEMA_VERSION))
