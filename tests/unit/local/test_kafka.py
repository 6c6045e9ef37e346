"""What the local broker is made with."""

from scripts.local.kafka import new_cluster_id


def test_no_cluster_id_looks_like_an_option() -> None:
    ids = [new_cluster_id() for _ in range(1000)]
    assert not any(cluster_id.startswith("-") for cluster_id in ids)
    assert {len(cluster_id) for cluster_id in ids} == {22}
    assert len(set(ids)) == 1000
