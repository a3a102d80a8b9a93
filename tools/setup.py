"""`make setup`: the project's Python environment in .venv, from nothing but a bare Python 3.11.

Standard library only, for it runs before anything is installed. Every change to the machine is
announced in one line before it happens; a run that finds everything current prints one line and
does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".chiasm-setup"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chiasm"
UV_VERSION = "0.13.9"
NEEDED_DISK_BYTES = 9 * 2**30  # torch and its libraries are 5.6 GB unpacked


def say(message: str) -> None:
    print(f"setup: {message}", flush=True)


def fail(message: str) -> None:
    raise SystemExit(f"setup: {message}")


def wanted() -> str:
    """Digest of everything that decides what .venv holds."""
    digest = hashlib.sha256(sys.version.encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def install_debian(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        fail(
            f"needs the equivalent of Debian's {' '.join(packages)}; install it with your "
            "distribution's package manager and run make setup again."
        )
    if os.geteuid() != 0:
        fail(f"run as root: apt-get install {' '.join(packages)}; then run make setup again.")
    say(f"installing Debian packages: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    subprocess.run(
        ["apt-get", "install", "-y", "-qq", *packages],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def find_uv() -> Path:
    """The uv on the PATH, else one of our own in the cache folder."""
    found = shutil.which("uv")
    if found:
        return Path(found)
    own = CACHE / f"uv-{UV_VERSION}"
    if not (own / "bin" / "uv").exists():
        say(f"installing uv {UV_VERSION} into {own}")
        try:
            import ensurepip  # noqa: F401, PLC0415 - Debian ships Python without it
        except ImportError:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            install_debian([f"python{version}-venv"])
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(own)], check=True)
        pip = [str(own / "bin" / "python"), "-m", "pip", "install", "-q", f"uv=={UV_VERSION}"]
        subprocess.run([*pip, "--disable-pip-version-check"], check=True)
    return own / "bin" / "uv"


def constraints() -> None:
    """`make constraints`: resolve every extra anew. No lock file: it would name package hosts."""
    command = [str(find_uv()), "pip", "compile", "-q", "--python-version", "3.11", "--all-extras"]
    command += ["--no-header", "--no-emit-index-url", "--upgrade", "pyproject.toml"]
    subprocess.run([*command, "-o", "constraints.txt"], check=True, cwd=ROOT)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs on whatever python3 is
        version = ".".join(map(str, sys.version_info[:3]))
        fail(f"Python {version} is too old; install Python 3.11 or newer and use PYTHON=path.")
    stamp = wanted()
    if STAMP.exists() and STAMP.read_text() == stamp:
        say(".venv is current")
        return
    free_bytes = shutil.disk_usage(ROOT).free
    if not VENV.exists() and free_bytes < NEEDED_DISK_BYTES:
        fail(
            f"{free_bytes / 2**30:.1f} GB free in {ROOT}; .venv with torch needs "
            f"{NEEDED_DISK_BYTES / 2**30:.0f} GB. Free some space and run make setup again."
        )
    uv = find_uv()
    started = time.monotonic()
    say("making .venv: Python environment with torch and transformers (about 5.6 GB)")
    if not (VENV / "bin" / "python").exists():
        subprocess.run([str(uv), "venv", "-q", "--python", sys.executable, str(VENV)], check=True)
    STAMP.unlink(missing_ok=True)
    command = [str(uv), "pip", "install", "--python", str(VENV / "bin" / "python")]
    subprocess.run([*command, "-c", "constraints.txt", "-e", ".[dev]"], check=True, cwd=ROOT)
    STAMP.write_text(stamp)
    say(f".venv is ready ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    try:
        constraints() if sys.argv[1:] == ["constraints"] else main()
    except subprocess.CalledProcessError as error:
        fail(f"{error.cmd[0]} failed with status {error.returncode}; its words are above.")
