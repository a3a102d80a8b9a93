"""The file is read back with Perfetto's own schema: tracks, nesting, arrows, counters, clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from chiasm_cli.trace.laid_out import drawing
from chiasm_cli.trace.perfetto import write
from chiasm_cli.trace.tracks import Drawing
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.cli.trace.recorded import ANCHOR, OTHER, R, whole_pod


class Read:
    """A trace as a viewer reads it."""

    def __init__(self, data: bytes) -> None:
        trace = protos.Trace.FromString(data)
        self.packets = list(trace.packet)
        described = [p.track_descriptor for p in self.packets if p.HasField("track_descriptor")]
        self.names = {each.uuid: each.name for each in described}
        self.parents = {each.uuid: each.parent_uuid for each in described}
        self.counts = {each.uuid for each in described if each.HasField("counter")}
        self.slices: dict[tuple[str, ...], list[tuple[str, int, int]]] = defaultdict(list)
        self.values: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self.flows: Counter[int] = Counter()
        self._read()

    def _read(self) -> None:
        open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
        last = 0
        for packet in self.packets:
            if not packet.HasField("track_event"):
                continue
            event, now = packet.track_event, packet.timestamp
            assert now >= last
            last = now
            path = self.path(event.track_uuid)
            if event.type == event.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append((event.name, now))
            elif event.type == event.TYPE_SLICE_END:
                name, begun = open_slices[event.track_uuid].pop()
                self.slices[path].append((name, begun, now))
            elif event.type == event.TYPE_INSTANT:
                self.slices[path].append((event.name, now, now))
            else:
                assert event.track_uuid in self.counts
                self.values[path].append(event.counter_value)
            self.flows.update(event.flow_ids)
            self.flows.subtract(event.terminating_flow_ids)
        assert not any(open_slices.values())

    def path(self, uuid: int) -> tuple[str, ...]:
        above = self.path(self.parents[uuid]) if self.parents[uuid] else ()
        return (*above, self.names[uuid])


def read() -> Read:
    return Read(write(drawing({"pod-a": whole_pod()})))


def test_a_track_for_each_request_and_for_the_engine() -> None:
    found = read()
    assert set(found.slices) == {
        ("pod-a", "engine"),
        ("pod-a", "between"),
        ("pod-a", "sync image"),
        ("pod-a", R, "sidecar"),
        ("pod-a", R, "worker"),
        ("pod-a", R, "tokens"),
        ("pod-a", R, "tokens 1"),
        ("pod-a", OTHER, "worker"),
        ("pod-a", OTHER, "tokens"),
    }
    assert len(set(found.names)) == len(found.names)
    assert all(parent in found.names for parent in found.parents.values() if parent)


def test_a_requests_way() -> None:
    found = read()
    names = {path: [name for name, _, _ in sorted(each, key=lambda s: s[1])]
             for path, each in found.slices.items()}  # fmt: skip
    assert names["pod-a", R, "sidecar"] == ["admission", "body", "answer", "first byte"]
    assert names["pod-a", R, "worker"] == ["receive", "decode", "queued", "queue", "end"]
    assert Counter(names["pod-a", R, "tokens"]) == {
        "prefill 32": 1, "encode image": 1, "prefill 8": 1, "token": 2, "hit image": 1,
    }  # fmt: skip
    assert names["pod-a", "between"] == ["restore"]


def test_steps_hold_their_phases() -> None:
    steps = [each for each in read().slices["pod-a", "engine"] if each[0].startswith("step")]
    phases = [each for each in read().slices["pod-a", "engine"] if each not in steps]
    assert [name for name, _, _ in steps] == ["step 0", "step 1", "step 2", "step 3"]
    for _, start, end in phases:
        assert any(s <= start and end <= e for _, s, e in steps)
    assert Counter(name for name, _, _ in phases) == {
        "schedule": 4, "encode": 1, "model": 4, "sample": 4, "update": 4,
    }  # fmt: skip


def test_each_arrow_has_two_ends() -> None:
    found = read()
    assert found.flows
    assert set(found.flows.values()) == {0}


def test_counters_follow_the_steps() -> None:
    values = read().values
    assert values["pod-a", "blocks used"] == [3, 4, 5, 6]
    assert values["pod-a", "running"] == [2, 2, 2, 2]
    assert values["pod-a", "waiting"] == [0, 0, 0, 0]


def test_times_are_the_walls() -> None:
    found = read()
    (snapshot,) = [p.clock_snapshot for p in found.packets if p.HasField("clock_snapshot")]
    assert {clock.timestamp for clock in snapshot.clocks} == {ANCHOR.to_wall_ns(0.5)}
    assert ("body", ANCHOR.to_wall_ns(0.6), ANCHOR.to_wall_ns(0.7)) in found.slices[
        "pod-a", R, "sidecar"
    ]


def test_several_pods_stand_beside_each_other() -> None:
    found = Read(write(drawing({"a": whole_pod(), "b": whole_pod()})))
    assert {path[0] for path in found.slices} == {"a", "b"}
    assert set(found.flows.values()) == {0}


def test_details_have_their_types() -> None:
    notes: dict[str, Any] = {}
    for packet in read().packets:
        for each in packet.track_event.debug_annotations:
            notes[each.name] = each
    assert notes["bytes"].int_value == 1234
    assert notes["where"].string_value == "worker"


def test_nothing_is_a_trace_too() -> None:
    assert not Read(write(Drawing())).slices
