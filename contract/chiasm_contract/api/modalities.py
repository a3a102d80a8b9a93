"""`spec.model.modalities`: what a request may bring beside text, kind by kind.

A kind that costs more than a picture is allowed only where somebody says so. Must not know: how
anything is decoded.
"""

from __future__ import annotations

from pydantic import Field

from chiasm_contract.api.fields import ApiModel, Quantity, at_least
from chiasm_contract.config import MAX_IMAGE_PIXELS


class ImageModality(ApiModel):
    """What one request may bring in pictures; checked before anything is decoded."""

    max_per_prompt: int = Field(
        default=4,
        ge=0,
        le=64,
        description="Pictures in one request. With more than 0, a model of a family that takes "
        "none is not served.",
    )
    max_bytes: Quantity = Field(
        default="20Mi",
        description="Size of one encoded picture.",
        json_schema_extra=at_least("1Ki"),
    )
    max_pixels: int = Field(
        default=16_777_216,
        ge=784,
        le=MAX_IMAGE_PIXELS,
        description="Width x height of one picture.",
    )


class VideoModality(ApiModel):
    """What one request may bring in videos, where the model's family takes them."""

    max_per_prompt: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Videos in one request. With more than 0, a model of a family that takes none "
        "is not served.",
    )
    max_bytes: Quantity = Field(
        default="48Mi",
        description="Size of one encoded video.",
        json_schema_extra=at_least("1Ki"),
    )
    max_pixels: int = Field(
        default=1920 * 1088,
        ge=784,
        le=MAX_IMAGE_PIXELS,
        description="Width x height of a video's frames.",
    )
    max_seconds: int = Field(default=120, ge=1, le=3600, description="How long one video may last.")
    max_frames: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="Frames of one video that the model sees; of longer videos as many are "
        "spread evenly.",
    )


class AudioModality(ApiModel):
    """What one request may bring in sound, where the model's family takes it."""

    max_per_prompt: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Sounds in one request. With more than 0, a model of a family that takes none "
        "is not served.",
    )
    max_bytes: Quantity = Field(
        default="16Mi",
        description="Size of one encoded sound.",
        json_schema_extra=at_least("1Ki"),
    )
    max_seconds: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="How long one sound may last; never longer than what the model hears at once.",
    )


class Modalities(ApiModel):
    """What a request may contain beside text."""

    image: ImageModality = ImageModality()
    video: VideoModality = VideoModality()
    audio: AudioModality = AudioModality()
