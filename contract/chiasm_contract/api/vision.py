"""How pictures become vision tokens, as a resource says it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from chiasm_contract.api.fields import ApiModel
from chiasm_contract.config import COMPRESSION_RATIOS, CompressionMethod

_RATIOS: dict[str, Any] = {"enum": [*COMPRESSION_RATIOS]}


class Vision(ApiModel):
    """How many of a picture's tokens become one, by the `detail` that a request gives it."""

    compression: int = Field(
        default=1,
        description="The ratio at detail auto, which is also what a picture without detail gets; "
        "1 keeps every token, as detail high always does. Fewer tokens make prompts shorter and "
        "answers less exact.",
        json_schema_extra=_RATIOS,
    )
    low_detail_compression: int = Field(
        default=8, description="The ratio at detail low.", json_schema_extra=_RATIOS
    )
    compression_method: CompressionMethod = Field(
        default="salient",
        description="What becomes of neighbouring tokens: salient keeps the one that differs most "
        "from the picture's mean, mean averages them.",
    )
