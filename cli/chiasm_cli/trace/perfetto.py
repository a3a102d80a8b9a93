"""Writes a drawing as a Perfetto trace: https://perfetto.dev/docs/getting-started/converting

Must not know: what is drawn.
"""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from chiasm_cli.trace.tracks import Drawing, Edge, Path, edges

_SEQUENCE = 1
_ABOVE: dict[Path, int] = {
    (name,): place
    for place, name in enumerate(
        ("waiting", "running", "blocks used", "between", "engine"), start=1
    )
}
_TYPES = {
    1: protos.TrackEvent.TYPE_SLICE_BEGIN,
    -1: protos.TrackEvent.TYPE_SLICE_END,
    0: protos.TrackEvent.TYPE_INSTANT,
}


def write(drawing: Drawing) -> bytes:
    """The trace, as the UI and the trace processor read it."""
    writer = _Writer(drawing)
    return writer.write()


class _Writer:
    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing
        self._builder = TraceProtoBuilder()
        self._uuids: dict[Path, int] = {}

    def write(self) -> bytes:
        every: list[tuple[int, int, int, Edge | int]] = [
            (edge.moment, order, self._uuid(path), edge)
            for path, slices in self._drawing.slices.items()
            for order, edge in enumerate(edges(slices))
        ]
        every += [
            (moment, order, self._uuid(path, counts=True), value)
            for path, readings in self._drawing.counters.items()
            for order, (moment, value) in enumerate(readings)
        ]
        if every:
            self._say_what_clock(min(entry[0] for entry in every))
        # A track's order stands: it decides what ends before what begins at the same moment.
        for moment, _, uuid, what in sorted(every, key=lambda entry: entry[:2]):
            if isinstance(what, Edge):
                self._edge(moment, uuid, what)
            else:
                event = self._event(moment, uuid, protos.TrackEvent.TYPE_COUNTER)
                event.counter_value = what
        data: bytes = self._builder.serialize()
        return data

    def _say_what_clock(self, moment: int) -> None:
        """Times are the wall's: the trace's own clock shows the same."""
        packet = self._packet()
        packet.timestamp = moment
        for clock_id in (protos.BUILTIN_CLOCK_BOOTTIME, protos.BUILTIN_CLOCK_REALTIME):
            clock = packet.clock_snapshot.clocks.add()
            clock.clock_id, clock.timestamp = clock_id, moment

    def _uuid(self, path: Path, *, counts: bool = False) -> int:
        known = self._uuids.get(path)
        if known is not None:
            return known
        parent = self._uuid(path[:-1]) if len(path) > 1 else 0
        uuid = self._uuids[path] = len(self._uuids) + 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid, descriptor.name = uuid, path[-1]
        descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
        # The engine stands above the requests, these in the order in which they came.
        descriptor.sibling_order_rank = uuid if path[1:2] not in _ABOVE else -_ABOVE[path[1:2]]
        if parent:
            descriptor.parent_uuid = parent
        if counts:
            descriptor.counter.unit = protos.CounterDescriptor.UNIT_COUNT
        return uuid

    def _edge(self, moment: int, uuid: int, edge: Edge) -> None:
        event = self._event(moment, uuid, _TYPES[edge.side])
        if edge.side < 0:
            return
        event.name = edge.slice.name
        event.categories.append("chiasm")
        event.flow_ids.extend(edge.slice.flows)
        event.terminating_flow_ids.extend(edge.slice.ends)
        for name, value in edge.slice.details.items():
            annotation = event.debug_annotations.add()
            annotation.name = name
            if isinstance(value, str):
                annotation.string_value = value
            elif isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.double_value = value

    def _event(self, moment: int, uuid: int, kind: int) -> Any:
        packet = self._packet()
        packet.timestamp = moment
        packet.track_event.track_uuid, packet.track_event.type = uuid, kind
        return packet.track_event

    def _packet(self) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet
