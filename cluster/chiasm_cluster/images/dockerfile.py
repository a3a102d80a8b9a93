"""Reads a Dockerfile into a recipe: its base, its steps, and the facts of the finished image.

Only what our Dockerfiles use is understood; anything else is refused by name, so that an image
built here can never differ in silence from one that an engine builds from the same file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chiasm_cluster.errors import ClusterError

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_UNDERSTOOD = "ARG, COPY, CMD, ENTRYPOINT, ENV, EXPOSE, FROM, LABEL, RUN, USER, WORKDIR"


@dataclass(frozen=True)
class Copy:
    """Copies `source` of the build context to `target` of the image."""

    source: str
    target: str


@dataclass(frozen=True)
class Run:
    """Runs a shell command in the image; `cache_dirs` are folders kept between builds."""

    command: str
    environment: dict[str, str]
    cache_dirs: tuple[str, ...]


@dataclass
class Recipe:
    """A Dockerfile with its arguments filled in."""

    name: str
    base: str = ""
    steps: list[Copy | Run] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def image_config(self) -> dict[str, Any]:
        """The `config` object of the image, as OCI writes it."""
        return {**self.config, "Env": [f"{k}={v}" for k, v in self.environment.items()]}


@dataclass(frozen=True)
class _Instruction:
    line: int
    word: str
    flags: tuple[str, ...]
    rest: str


def read(path: Path, arguments: Mapping[str, str]) -> Recipe:
    """The recipe in the Dockerfile at `path`.

    Raises: ClusterError naming the line of an instruction that is not understood.
    """
    try:
        return _Reader(path.parent.name, arguments).read(path.read_text())
    except ValueError as error:
        raise ClusterError(f"{path}: {error}") from error


class _Reader:
    def __init__(self, name: str, arguments: Mapping[str, str]) -> None:
        self._given = arguments
        self._scope: dict[str, str] = {}
        self._recipe = Recipe(name)

    def read(self, text: str) -> Recipe:
        for instruction in _instructions(text):
            method = getattr(self, f"_{instruction.word.lower()}", None)
            if method is None or instruction.word.startswith("_"):
                raise ValueError(
                    f"line {instruction.line}: {instruction.word} is not understood; "
                    f"use {_UNDERSTOOD}."
                )
            if instruction.flags and instruction.word != "RUN":
                raise ValueError(
                    f"line {instruction.line}: {instruction.word} {instruction.flags[0]} is not "
                    "understood; leave the flag out."
                )
            method(instruction)
        if not self._recipe.base:
            raise ValueError("there is no FROM.")
        return self._recipe

    def _fill(self, text: str) -> str:
        known = {**self._scope, **self._recipe.environment}
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], ""), text)

    def _arg(self, instruction: _Instruction) -> None:
        name, _, default = instruction.rest.partition("=")
        self._scope[name] = self._given.get(name, self._fill(default))

    def _from(self, instruction: _Instruction) -> None:
        if self._recipe.base:
            raise ValueError(f"line {instruction.line}: a second FROM is not understood.")
        self._recipe.base = self._fill(instruction.rest)
        self._scope = {}  # an ARG before FROM is for FROM alone

    def _env(self, instruction: _Instruction) -> None:
        for word in shlex.split(instruction.rest):
            name, separator, value = word.partition("=")
            if not separator:
                raise ValueError(f"line {instruction.line}: write ENV {name}=value.")
            self._recipe.environment[name] = self._fill(value)

    def _copy(self, instruction: _Instruction) -> None:
        words = self._fill(instruction.rest).split()
        if len(words) != 2:
            raise ValueError(f"line {instruction.line}: COPY takes one source and one target.")
        self._recipe.steps.append(Copy(*words))

    def _run(self, instruction: _Instruction) -> None:
        cache_dirs = []
        for flag in instruction.flags:
            found = re.fullmatch(r"--mount=type=cache,target=(/root/\.cache/\w+)", flag)
            if found is None:
                raise ValueError(
                    f"line {instruction.line}: RUN {flag} is not understood; use "
                    "--mount=type=cache,target=/root/.cache/NAME."
                )
            cache_dirs.append(found[1])
        environment = {**self._scope, **self._recipe.environment}
        self._recipe.steps.append(Run(instruction.rest, environment, tuple(cache_dirs)))

    def _user(self, instruction: _Instruction) -> None:
        self._recipe.config["User"] = self._fill(instruction.rest)

    def _workdir(self, instruction: _Instruction) -> None:
        self._recipe.config["WorkingDir"] = self._fill(instruction.rest)

    def _entrypoint(self, instruction: _Instruction) -> None:
        self._recipe.config["Entrypoint"] = _words(instruction)

    def _cmd(self, instruction: _Instruction) -> None:
        self._recipe.config["Cmd"] = _words(instruction)

    def _expose(self, instruction: _Instruction) -> None:
        ports = {f"{port}/tcp": dict[str, str]() for port in self._fill(instruction.rest).split()}
        self._recipe.config.setdefault("ExposedPorts", {}).update(ports)

    def _label(self, instruction: _Instruction) -> None:
        for word in shlex.split(self._fill(instruction.rest)):
            name, _, value = word.partition("=")
            self._recipe.config.setdefault("Labels", {})[name] = value


def _instructions(text: str) -> Iterator[_Instruction]:
    """The instructions, with continued lines joined and comments dropped."""
    joined, first_line = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (not joined and not line.strip()):
            continue
        first_line = first_line if joined else number
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        word, _, rest = joined.strip().partition(" ")
        words = rest.split()
        flags = []
        while words and words[0].startswith("--"):
            flags.append(words[0])
            rest = rest.lstrip().removeprefix(words.pop(0))
        yield _Instruction(first_line, word.upper(), tuple(flags), rest.strip())
        joined = ""


def _words(instruction: _Instruction) -> list[str]:
    """The words of an instruction in JSON form; the shell form would start a shell."""
    try:
        words = json.loads(instruction.rest)
    except json.JSONDecodeError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(
            f'line {instruction.line}: {instruction.word} takes a JSON list, like ["chiasm"].'
        )
    return words
