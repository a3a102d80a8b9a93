"""The typefaces of price labels: Debian font packages, some to train on, others held out.

Only drawing needs them; the shipped model and its sample pictures do not. A missing package is an
error whose message is the command that installs it.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from PIL import ImageFont

_ROOT = Path("/usr/share/fonts")

TRAIN_PACKAGES: dict[str, tuple[str, ...]] = {
    "fonts-dejavu-core": ("truetype/dejavu/DejaVuSans*.ttf", "truetype/dejavu/DejaVuSerif*.ttf"),
    "fonts-liberation": ("truetype/liberation/Liberation*.ttf",),
    "fonts-freefont-ttf": ("truetype/freefont/Free*.ttf",),
    "fonts-roboto-unhinted": (
        "truetype/roboto/unhinted/RobotoTTF/*.ttf",
        "truetype/roboto/unhinted/RobotoCondensed-*.ttf",
    ),
    "fonts-lato": ("truetype/lato/*.ttf",),
    "fonts-open-sans": ("truetype/open-sans/*.ttf",),
    "fonts-inconsolata": ("truetype/inconsolata/*.otf",),
    "fonts-firacode": ("truetype/firacode/*.ttf",),
    "fonts-sil-gentium": ("truetype/gentium/Gentium-*.ttf",),
    "fonts-quicksand": ("truetype/quicksand/*.ttf",),
    "fonts-cantarell": ("opentype/cantarell/*.otf",),
    "fonts-comfortaa": ("truetype/comfortaa/*.ttf",),
    "fonts-urw-base35": (
        "opentype/urw-base35/Nimbus*.otf",
        "opentype/urw-base35/C059*.otf",
        "opentype/urw-base35/P052*.otf",
        "opentype/urw-base35/URWBookman*.otf",
        "opentype/urw-base35/URWGothic*.otf",
    ),
}
HELD_OUT_PACKAGES: dict[str, tuple[str, ...]] = {
    "fonts-crosextra-caladea": ("truetype/crosextra/Caladea*.ttf",),
    "fonts-cabin": ("opentype/cabin/*.otf",),
    "fonts-play": ("truetype/play/*.ttf",),
    "fonts-linuxlibertine": (
        "opentype/linux-libertine/LinLibertine_R.otf",
        "opentype/linux-libertine/LinLibertine_RB.otf",
        "opentype/linux-libertine/LinBiolinum_RB.otf",
    ),
    "fonts-inter": ("opentype/inter/Inter-*.otf",),
    "fonts-jetbrains-mono": ("truetype/jetbrains-mono/*.ttf",),
}

_TOO_FAINT = ("Thin", "Hairline", "ExtraLight", "Light", "Dingbats")
"""Strokes thinner than a pixel at label sizes: not legible to a person either."""


class MissingFontsError(RuntimeError):
    """Font packages are not installed."""

    def __init__(self, packages: list[str]) -> None:
        self.packages = packages
        super().__init__(
            f"price labels are drawn with the fonts of {', '.join(packages)}, which are not "
            f"installed: install them with `apt-get install {' '.join(packages)}`"
        )


def font_files(packages: dict[str, tuple[str, ...]]) -> dict[str, tuple[Path, ...]]:
    """Font files of each package; `MissingFontsError` names every package that is missing."""
    found = {
        package: tuple(
            sorted(
                path
                for pattern in patterns
                for path in _ROOT.glob(pattern)
                if not any(word in path.stem for word in _TOO_FAINT)
            )
        )
        for package, patterns in packages.items()
    }
    missing = [package for package, files in found.items() if not files]
    if missing:
        raise MissingFontsError(missing)
    return found


def install(packages: list[str]) -> None:
    """Install Debian packages, after saying so; needs root."""
    print(f"installing the font packages {', '.join(packages)} (apt-get)", flush=True)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        check=True,
        stdout=subprocess.DEVNULL,
    )


@functools.lru_cache(maxsize=4096)
def load_font(path: Path, size_pixels: int) -> ImageFont.FreeTypeFont:
    """A typeface at a size; kept, since a label is drawn thousands of times."""
    return ImageFont.truetype(path, size_pixels)
