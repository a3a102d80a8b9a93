"""The files of a request as the worker counts them, and as the client knows them.

Must not know: what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chiasm_contract.config import MediaKind
from chiasm_contract.errors import ChiasmError
from chiasm_contract.messages import MEDIA_NAMES, MediaFiles

from chiasm_sidecar.front_door.media import MediaFile


def of_kind(media: list[MediaFile], kind: MediaKind) -> list[MediaFile]:
    """Those of one kind, in their order."""
    return [file for file in media if file.kind == kind]


def media_files(media: list[MediaFile]) -> MediaFiles:
    """The bytes, by kind."""
    return MediaFiles(
        **{f"{kind}s": tuple(file.data for file in of_kind(media, kind)) for kind in MEDIA_NAMES}
    )


def places(media: list[MediaFile]) -> dict[str, str]:
    """The worker counts files (`images[0]`); a client knows them by their place in the body."""
    named = {
        f"{kind}s[{index}]": file.param
        for kind in MEDIA_NAMES
        for index, file in enumerate(of_kind(media, kind))
    }
    for index, file in enumerate(of_kind(media, "image")):
        named[f"images[{index}].detail"] = f"{file.param.removesuffix('.url')}.detail"
    return named


@contextmanager
def named(places: dict[str, str]) -> Iterator[None]:
    """Faults of files name the client's place. Knows no file: those must be gone by then."""
    try:
        yield
    except ChiasmError as error:
        error.param = places.get(error.param or "", error.param)
        raise
