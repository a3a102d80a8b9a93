"""The two files that the operator (or `chiasm serve`) writes and the parts of a pod read.

`worker.json` is a WorkerConfig, `sidecar.json` a SidecarConfig. Everything here is resolved:
no "auto", no null where a number is needed, so that a part never guesses.
Sizes are bytes, times are seconds, and the names say so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from chiasm_contract import names
from chiasm_contract.configuration import Configuration
from chiasm_contract.tenants import TenantKeys
from chiasm_contract.tiers import BlockService, BlockTiers

C = TypeVar("C", bound=BaseModel)

MediaKind = Literal["image", "video", "audio"]
Dtype = Literal["float32", "bfloat16", "float16"]
# Who computes attention and the operations around it.
Kernels = Literal["auto", "torch", "triton"]
DeviceKind = Literal["cpu", "cuda"]  # torch calls AMD's devices "cuda" too
BlockSize = Literal[8, 16, 32, 64]
CompressionMethod = Literal["salient", "mean"]
Detail = Literal["auto", "low", "high"]
CompressionRatio = Literal[1, 4, 8, 16]
COMPRESSION_RATIOS: tuple[CompressionRatio, ...] = get_args(CompressionRatio)

# Pillow refuses pictures above this, whatever a limit of ours says.
MAX_IMAGE_PIXELS = 178_956_970


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageLimits(_Frozen):
    """What one request may bring in pictures; checked before anything is decoded."""

    max_per_prompt: int = Field(default=4, ge=0, le=64)
    max_bytes: int = Field(default=20 * 2**20, ge=1024)
    max_pixels: int = Field(default=16_777_216, ge=28 * 28, le=MAX_IMAGE_PIXELS)


class VideoLimits(_Frozen):
    """What one request may bring in videos; checked before any frame is decoded."""

    max_per_prompt: int = Field(default=0, ge=0, le=16)
    max_bytes: int = Field(default=48 * 2**20, ge=1024)
    max_pixels: int = Field(
        default=1920 * 1088, ge=28 * 28, le=MAX_IMAGE_PIXELS, description="Of one frame."
    )
    max_seconds: float = Field(default=120.0, gt=0, le=3600)
    max_frames: int = Field(default=32, ge=1, le=1024, description="Frames that the model sees.")


class AudioLimits(_Frozen):
    """What one request may bring in sound; checked before anything is decoded."""

    max_per_prompt: int = Field(default=0, ge=0, le=16)
    max_bytes: int = Field(default=16 * 2**20, ge=1024)
    max_seconds: float = Field(default=30.0, gt=0, le=3600)


class MediaLimits(_Frozen):
    """What one request may bring beside text, by kind; both parts are configured with it."""

    images: ImageLimits = ImageLimits()
    videos: VideoLimits = VideoLimits()
    audios: AudioLimits = AudioLimits()

    def max_per_prompt(self, kind: MediaKind) -> int:
        """How many of a kind."""
        return {
            "image": self.images.max_per_prompt,
            "video": self.videos.max_per_prompt,
            "audio": self.audios.max_per_prompt,
        }[kind]

    @property
    def max_file_bytes(self) -> int:
        """Of all files of one request together."""
        kinds = (self.images, self.videos, self.audios)
        return sum(kind.max_per_prompt * kind.max_bytes for kind in kinds)


class VisionConfig(_Frozen):
    """How many vision tokens become one, by the detail that a request asks for."""

    compression: CompressionRatio = 1
    low_detail_compression: CompressionRatio = 8
    compression_method: CompressionMethod = "salient"

    def ratio(self, detail: Detail) -> CompressionRatio:
        """The compression that `detail` means here; `high` always means none."""
        if detail == "high":
            return 1
        return self.low_detail_compression if detail == "low" else self.compression


class EngineLimits(_Frozen):
    """The engine's budgets."""

    block_size: BlockSize = 16
    kv_cache_bytes: int = Field(default=256 * 2**20, ge=2**20)
    max_model_len: int = Field(default=2048, ge=16)
    max_num_seqs: int = Field(default=16, ge=1)
    max_num_batched_tokens: int = Field(default=512, ge=1)
    max_num_encoder_tokens: int = Field(default=1024, ge=1)
    max_media_bytes: int = Field(default=2**30, ge=2**20)
    max_waiting_requests: int = Field(default=64, ge=1)
    prefix_caching: bool = True


class WorkerConfig(MediaLimits):
    """All that a worker needs to serve one model."""

    model_id: str = Field(min_length=1)
    model_path: Path
    dtype: Dtype = "float32"
    device: DeviceKind = "cpu"
    kernels: Kernels = "auto"
    num_threads: int = Field(default=0, ge=0, description="0: as many as the model gains from")
    vision: VisionConfig = VisionConfig()
    engine: EngineLimits = EngineLimits()
    block_service: BlockService | None = Field(default=None, description="None: own memory only.")
    socket_path: Path = Path(names.WORKER_SOCKET)
    shutdown_seconds: float = Field(
        default=30.0, gt=0, description="How long answers may still run after the order to stop."
    )


class TracingConfig(_Frozen):
    """Where spans go, and of how many requests."""

    endpoint: str = Field(min_length=1, description="Spans go to v1/traces below it.")
    sample_ratio: float = Field(
        default=0.05, ge=0, le=1, description="Of requests without a traceparent of their own."
    )


class SidecarConfig(MediaLimits):
    """All that a sidecar needs to stand in front of one worker."""

    model_id: str = Field(min_length=1)
    worker_socket: Path = Path(names.WORKER_SOCKET)
    host: str = "0.0.0.0"  # noqa: S104 - a pod's address is not known before it runs
    api_port: int = Field(default=names.API_PORT, ge=0, le=65535)
    metrics_port: int = Field(default=names.METRICS_PORT, ge=0, le=65535)
    max_body_bytes: int = Field(default=128 * 2**20, ge=1024)
    request_timeout_seconds: float = Field(default=600.0, gt=0)
    expected_identity: dict[str, str | int | float | bool | list[int]] = Field(
        default_factory=dict,
        description="Dotted identity field -> value that the worker must report.",
    )
    access_log: bool = False
    revision: str = Field(default="", description="Of this pod; empty outside Kubernetes.")
    traffic_file: Path | None = Field(
        default=None, description="The plan by which requests are divided; None: all are ours."
    )
    tenants: TenantKeys | None = Field(default=None, description="None: everybody may ask.")
    tiers: BlockTiers | None = Field(default=None, description="None: no block service.")
    configuration: Configuration | None = Field(
        default=None, description="None: no environment; what is mounted is read where it is."
    )
    tracing: TracingConfig | None = Field(default=None, description="None: no spans are made.")


def read_config(kind: type[C], path: Path) -> C:
    """Parse `path` as `kind`.

    Raises: OSError when it cannot be read, pydantic.ValidationError (a ValueError) naming the
    field when its content is wrong.
    """
    return kind.model_validate_json(path.read_bytes())
