"""Files of a bucket as a source, through the app's own pass."""

from __future__ import annotations

import gzip

import pytest

from spark_app.audit.auditor import audit
from spark_app.model.errors import ContractError
from tests.spark.parts import events
from tests.spark.test_spark_files import PLAYERS, NewParts, take_all, values_of
from tests.support.exports import BucketExports
from tests.support.file_sources import json_text, parquet_bytes
from tests.support.stores import Moto, address_in

pytestmark = pytest.mark.spark


def test_objects_of_a_bucket_become_rows_and_are_audited(new_parts: NewParts, moto: Moto) -> None:
    address = address_in(moto)
    bucket, one, two = BucketExports(address), events(1, PLAYERS), events(1, [("uno", "d")])
    store = {"endpoint": address.endpoint, "region": address.region, "credentials_file": address.credentials_file}
    source = {"kind": "files", "path": address.root, "settle_s": 0.0, "full_list_s": 0.001}
    parts = new_parts(source=source, store=store)
    parts.learn(1)
    bucket.write("day=1/a.parquet", parquet_bytes(one))
    bucket.write("day=1/b.json.gz", gzip.compress(json_text(two).encode()))
    bucket.write("day=2/half.json", json_text(two)[:-5].encode())
    take_all(parts)
    assert values_of(parts) == one + two
    assert list(parts.status.value["source"]["named"]) == ["day=2/half.json"]
    bucket.write("day=2/half.json", json_text(two).encode())
    take_all(parts)
    assert values_of(parts) == one + two + two
    assert (audit(parts.settings).faults(), audit(parts.settings).records) == ({}, 5)
    bucket.write("day=1/a.parquet", parquet_bytes(one[::-1]))
    with pytest.raises(ContractError, match=r"day=1/a\.parquet was replaced after its records were ingested"):
        take_all(new_parts(source=source, store=store))
