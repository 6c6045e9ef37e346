"""Every measurement, tiny: what it measured is what it was to measure. Nothing is asked of times."""

import json
import subprocess
from importlib import import_module
from typing import Any

import pytest

from scripts.benches import buckets, cases, cluster, decode, expectations, gold, result, stages, trigger
from scripts.benches.options import ENTRIES, parse
from scripts.benches.sides import RIVALS
from scripts.benches.targets import REQUESTS
from scripts.local.artifacts import ROOT

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]


def _measure(*arguments: str) -> dict[str, Any]:
    """The line of JSON that it would leave."""
    options = parse(arguments)
    assert options.name is not None
    outcome = import_module(ENTRIES[options.name].module).run(options)
    measured = [figure for figure in outcome.figures if figure.target not in REQUESTS.values()]  # which are 0 at best
    assert all(figure.value > 0 for figure in measured)
    line: dict[str, Any] = json.loads(json.dumps(result.record(options, outcome)))
    return line


def test_tables_has_every_batch_in_silver() -> None:
    found = _measure("tables", "--tables", "3", "5", "--records", "600", "--batches", "1")["cases"]
    batches = cases.WARMING + 1
    assert [(case["tables"], case["rows"]) for case in found] == [(3, 600 * batches), (5, 600 * batches)]
    assert [case["files"] for case in found] == [1 + 3, 1 + 5]  # bronze and each silver table: a task for few records


def test_tables_in_a_bucket_have_the_rows_of_those_on_disk_and_count_their_requests() -> None:
    found = _measure("tables", "--storage", "s3", "--tables", "3", "5", "--records", "600", "--batches", "2")
    batches = cases.WARMING + 2
    counted = cases.WARMING + buckets.COUNTED
    for pair, number in zip(found["pairs"], (3, 5), strict=True):
        assert pair["disk"]["rows"] == 600 * batches
        assert pair["bucket"]["rows"] == 600 * (batches + counted)
        assert [len(pair[side]["seconds"]) for side in ("disk", "bucket")] == [2, 2]
        assert (pair["tables"], pair["files"], pair["bound"]) == (number, 1 + number, 2 * (1 + number) + 2)
        assert pair["requests"]["PUT"] == [pair["bound"]] * buckets.COUNTED
        others = {verb: max(times) for verb, times in pair["requests"].items() if verb not in ("PUT", "GET")}
        assert others == {"HEAD": 0, "LIST": 0, "DELETE": 0}


def test_a_cluster_drains_both_topics_and_its_processes_are_measured() -> None:
    options = ["cluster", "--records", "4000", "--workers", "1", "--rounds", "1"]
    sides = cluster.run(parse(options)).details["sides"]  # so few records have no slope
    assert list(sides) == ["local, 1 core", "cluster, 1 core"]
    for [turn] in sides.values():
        assert [turn[size]["records"] for size in ("small", "large")] == [1_000, 4_000]
        assert all(one["cpu_seconds"] > one["driver_seconds"] > 0.5 for one in turn.values())


def test_demux_places_what_bronze_has_in_each_way() -> None:
    sides = _measure("demux", "--tables", "2", "3", "--records", "300", "--rounds", "1")["sides"]
    assert [side["games"] for side in sides] == [2, 2, 2, 3, 3, 3]
    assert [side["silver"] for side in sides] == [300 * side["rounds"] for side in sides]
    assert all(side["rounds"] > len(side["seconds"]) > 0 for side in sides)  # the first is for warmth


def test_gold_is_of_the_chosen_tables_and_gamers() -> None:
    options = ["--tables", "4", "--records", "200", "--history", "200", "--gamers", "600", "--rounds", "1"]
    history, longer, touched, gamers = _measure("gold", *options)["cases"]
    intervals = 200 * (gold.WARMING + 1)
    assert [case["touched"] for case in (history, longer, touched, gamers)] == [7, 7, 4, 7]
    assert (history["silver"], history["gold"]) == (200 + intervals, 200 + intervals)  # not every gamer has played yet
    assert (longer["silver"], longer["gold"]) == (2000 + intervals, gold.GAMERS)
    assert touched["silver"] == 200 + intervals
    assert (gamers["silver"], gamers["gold"]) == (600 + intervals, 600)


def test_waiting_decodes_what_is_ready_and_leaves_the_rest() -> None:
    found = _measure("waiting", *["--waiting", "600", "300", "--ready", "50", "--rounds", "2", "--records", "400"])
    assert [level["waiting"] for level in found["levels"]] == [300, 600]
    assert all(level["memory"] > 0 and level["unit"] > 0 for level in found["levels"])
    assert sum(step["records"] for step in found["steps"]) == 400


def test_decode_measures_each_way_with_each_share_of_bad_payloads() -> None:
    found = _measure("decode", "--records", "200", "--rounds", "1")
    assert found["records"] == 200
    for kind in decode.KINDS:
        rates = found["rates"][kind]
        assert list(rates["decoders"]) == ["strict", "not strict", "fallback", "loop"]
        assert all(list(of) == ["0%", "1%", "50%", "100%"] for of in rates["decoders"].values())
        assert (list(rates["pass"]), list(rates["spark"])) == (["clean", "bad"], ["mapInArrow", "row UDF"])


def test_stages_are_measured_of_each_kind_of_event() -> None:
    options = parse(["stages", "--records", "5000", "--rounds", "1"])
    measured = stages.run(options).details["stages"]
    for found in measured.values():
        assert list(found) == [*stages.RUNS, "all"]
        assert sum(us[0] for stage, us in found.items() if stage != "all") == pytest.approx(found["all"][0])
    assert list(measured) == list(stages.PARTS)


def test_expectations_measure_each_side_of_each_topic() -> None:
    options = parse(["expectations", "--records", "6000", "--tables", "20", "--rounds", "2"])
    cases = expectations.run(options).details["cases"]
    shapes = [(case["message"], case["games"], case["records"]) for case in cases]
    assert shapes == [("flat", 7, 6000), ("rich", 7, 1200), ("flat", 20, 6000)]
    for case in cases:
        assert list(case["cpu"]) == list(expectations.SIDES)
        assert all(len(us) == 2 and min(us) > 0 for us in case["cpu"].values())


def test_starts_takes_the_records_of_both_versions() -> None:
    found = _measure("starts", "--times", "1", "--records", "50")
    assert [one["rows"] for one in found["times"]] == [100]


def test_trigger_measures_the_app_and_an_earlier_one_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger, "SETTLE_S", 1.0)
    found = _measure("trigger", "--rate", "100", "--seconds", "5", "--rounds", "2", "--against", f"base:{_head()}")
    assert [run["side"] for run in found["runs"]] == ["app", f"base:{_head()}"] * 2
    assert all(run["trigger_ms"] > run["jvm_ms"] > 0 for run in found["runs"])


def test_drain_sees_every_rival_take_the_whole_topic() -> None:
    options = ["--records", "3000", "--rounds", "1", "--message", "rich", "--versions", "2", "--bad", "0.02"]
    others = [*RIVALS, "lean:app", f"base:{_head()}"]
    found = _measure("drain", *options, "--against", *others)
    assert [run["side"] for run in found["runs"]] == ["app", *others]
    bad = found["bad"]
    assert 0 < bad < 300
    silver = {run["side"]: run["silver"] for run in found["runs"]}
    copies = dict.fromkeys(["lean", "lean:app", "floor"], 0)
    assert silver == dict.fromkeys(["app", *others], 3000 - bad) | copies
    assert {run["bronze"] for run in found["runs"]} == {3000}
    assert all(run["cpu_seconds"] > 0.1 and run["bronze_bytes"] > 0 for run in found["runs"])


def _head() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_rest_and_serve_deliver_every_row() -> None:
    sizes = _measure("rest", "--rounds", "1")["sizes"]
    assert all(len(size["rates"][side]) == 1 for size in sizes for side in ("client", "sink"))
    found = _measure("serve", "--tables", "2", "--gamers", "1000", "--clients", "2", "--rounds", "2")
    assert len(found["ages"]["2"]) == 2
    assert found["answers"] > 0
