"""What a metric is, and the closed sets that label values come from.

Must not know: which metrics there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from chiasm_contract.block_guard import Outcome
from chiasm_contract.block_record import Modality, RecordKind
from chiasm_contract.media_formats import AudioFormat, VideoFormat
from chiasm_contract.traffic import LATENCY_BOUNDS, Role

Kind = Literal["counter", "gauge", "histogram"]
Part = Literal["sidecar", "worker", "operator"]

PER_PROCESS: tuple[str, ...] = ()
"""The values of a label that are known when a process begins, mostly one, and never change."""

PER_RESOURCE: tuple[str, ...] = ()
"""The values of a label that a platform engineer gives a resource: few, and gone with it."""

MODEL: Mapping[str, tuple[str, ...]] = {"model_name": PER_PROCESS}

STATUS_CODES = ("200", "400", "401", "404", "413", "421", "429", "499", "500", "503")
MODALITIES = ("text", "image", "video", "audio", "mixed", "unknown")
# Of a request whose body has been read.
KNOWN_MODALITIES = MODALITIES[:-1]
BLOCK_KINDS = tuple(kind.name.lower() for kind in RecordKind)
BLOCK_MODALITIES = tuple(modality.name.lower() for modality in Modality)
KV_TIERS = ("host", "disk", "peer", "valkey")
ROLES = get_args(Role)
PEER_REFUSALS = ("denied", "silent", "slow", "busy")
KV_OUTCOMES = tuple(outcome.name.lower() for outcome in Outcome)
IMAGE_FORMATS = ("png", "jpeg", "webp", "gif", "bmp")
VIDEO_FORMATS = get_args(VideoFormat)
AUDIO_FORMATS = get_args(AudioFormat)

SECONDS_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
CHECK_SECONDS_BUCKETS = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05,
)  # fmt: skip
FIRST_TOKEN_BUCKETS = LATENCY_BOUNDS
TOKEN_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
BYTES_BUCKETS = tuple(1024 * 4**power for power in range(9))


@dataclass(frozen=True)
class MetricSpec:
    """One family: everything that a reader of a panel or an alert needs to know about it."""

    name: str
    kind: Kind
    unit: str
    part: Part
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names of its time series in an exposition."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "count", "sum"))
        return (self.name,)
