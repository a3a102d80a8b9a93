"""What the block service counts. Sums per call, for a request asks for hundreds of blocks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import (
    Header,
    Holding,
    Modality,
    RecordKind,
    kind_of,
    record_bytes,
)
from chiasm_contract.block_wire import Tier as Place

from chiasm_sidecar.kv.namespaces import State
from chiasm_sidecar.metrics import Metrics

Op = Literal["get_kv", "update_kv"]


def kind_name(kind: RecordKind) -> str:
    """The value of the label `kind`."""
    return kind.name.lower()


def place_name(place: Place) -> str:
    """The value of the label `tier`; what comes from no tier comes from the worker."""
    return "worker" if place is Place.NONE else place.name.lower()


class Meters:
    """Counts into the sidecar's instruments."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._check_seconds = metrics.histogram("chiasm_kv_check_seconds")
        self._generation = metrics.gauge("chiasm_kv_engine_generation")

    def checked(self, place: Place, op: Op, verdicts: Sequence[Verdict], seconds: float) -> None:
        """One batch of records was judged."""
        tier = place_name(place)
        self._check_seconds.observe(seconds)
        right = verdicts.count(USE)  # nearly always all; equal objects are found fast
        others = Counter(v for v in verdicts if v is not USE) if right < len(verdicts) else {}
        for verdict, count in {USE: right, **others}.items():
            outcome = verdict.outcome.name.lower()
            self._add("chiasm_kv_version_check_total", count, tier=tier, op=op, outcome=outcome)
            if verdict.outcome is Outcome.REJECT:
                self._add("chiasm_kv_version_reject_total", count, field=verdict.detail)
            elif verdict.outcome is Outcome.QUARANTINE and verdict.detail == "torn":
                self._add("chiasm_kv_torn_read_total", count)
            elif verdict.outcome is Outcome.MISS:
                self._add("chiasm_kv_malformed_total", count, tier=tier, reason=verdict.detail)

    def outdated(self, count: int) -> None:
        """Keys or records of an older generation of the engine than the connection's latest."""
        self._add("chiasm_kv_version_reject_total", count, field="generation")

    def quarantined(self, num_bytes: int) -> None:
        """Records with wrong bytes were removed."""
        self._add("chiasm_kv_quarantined_bytes_total", num_bytes)

    def conflict(self, place: Place, num_bytes: int) -> None:
        """Two contents under one key: both are gone."""
        tier = place_name(place)
        self._add(
            "chiasm_kv_version_check_total", 1, tier=tier, op="update_kv", outcome="quarantine"
        )
        self.quarantined(num_bytes)

    def found(self, place: Place, records: Sequence[bytes]) -> None:
        """Records of use went to the worker."""
        tier = place_name(place)
        for kind, count in Counter(map(kind_of, records)).items():
            self._add("chiasm_kv_blocks_found_total", count, tier=tier, kind=kind_name(kind))
        self._add("chiasm_kv_read_bytes_total", sum(map(len, records)), tier=tier)

    def wanted(self, count: int) -> None:
        """The worker asked for so many blocks."""
        self._add("chiasm_kv_blocks_wanted_total", count)

    def written(self, place: Place, header: Header) -> None:
        """A tier keeps a record now."""
        tier = place_name(place)
        self._add("chiasm_kv_blocks_stored_total", 1, tier=tier, kind=kind_name(header.kind))
        size = record_bytes(header.payload_bytes)
        self._add("chiasm_kv_written_bytes_total", size, tier=tier)

    def dropped(self, place: Place, reason: Literal["busy", "failed"]) -> None:
        """A record did not get to a tier."""
        self._add("chiasm_kv_writes_dropped_total", 1, tier=place_name(place), reason=reason)

    def failed(self, place: Place) -> None:
        """A tier failed, or took too long."""
        self._add("chiasm_kv_tier_failures_total", 1, tier=place_name(place))

    def retired_list(self, outcome: Literal["taken", "refused"]) -> None:
        """The list of retired namespaces was another one."""
        self._add("chiasm_kv_retired_list_loads_total", 1, outcome=outcome)

    def refused(self, reason: str) -> None:
        """A connection was refused; session.py has the reasons."""
        self._add("chiasm_kv_connections_refused_total", 1, reason=reason)

    def peer_failed(self) -> None:
        """One other replica failed, or took too long."""
        self._add("chiasm_kv_peer_failures_total", 1)

    def peer_refused(self, reason: str) -> None:
        """Somebody who asked for places in our memory was not served."""
        self._add("chiasm_kv_peers_refused_total", 1, reason=reason)

    def overtaken(self, count: int) -> None:
        """Slots of another replica had another generation when they were read."""
        self._add("chiasm_kv_overtaken_reads_total", count)

    def follow_peers(self, num_connected: Callable[[], float]) -> None:
        """Ask this whenever somebody reads the exposition."""
        self._metrics.gauge("chiasm_kv_peers").set_function(num_connected)

    def peers_fenced(self, stands: bool) -> None:
        """Whether the kernel keeps strangers from the port that memory is read through."""
        self._metrics.gauge("chiasm_kv_peers_fenced").set(stands)

    def generation(self, engine_gen: int) -> None:
        """The worker's latest generation."""
        self._generation.set(engine_gen)

    def follow(
        self,
        places: Iterable[Place],
        num_bytes: Callable[[Place, State], float],
        of_holding: Callable[[Place, Holding], float],
        is_open: Callable[[Place], float],
        num_queued: Callable[[Place], float],
    ) -> None:
        """Ask these whenever somebody reads the exposition."""
        for place in places:
            tier = place_name(place)
            held = self._metrics.gauge("chiasm_kv_namespace_bytes")
            for state in State:
                child = held.labels(tier=tier, state=state.value)
                child.set_function(partial(num_bytes, place, state))
            sizes = self._metrics.gauge("chiasm_kv_tier_bytes")
            for holding in itertools.starmap(Holding, itertools.product(RecordKind, Modality)):
                size = sizes.labels(
                    tier=tier,
                    kind=kind_name(holding.kind),
                    modality=holding.modality.name.lower(),
                )
                size.set_function(partial(of_holding, place, holding))
            opened = self._metrics.gauge("chiasm_kv_breaker_open").labels(tier=tier)
            opened.set_function(partial(is_open, place))
            queued = self._metrics.gauge("chiasm_kv_write_queue_bytes").labels(tier=tier)
            queued.set_function(partial(num_queued, place))

    def _add(self, name: str, amount: float, **labels: str) -> None:
        self._metrics.count(name, amount, **labels)
