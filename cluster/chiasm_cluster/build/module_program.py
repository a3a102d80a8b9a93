"""A program of another project, built from its Go module once per digest of the module files.

Only an end-to-end test that is asked for by name needs one. Its folder beside `cluster/kube` holds
the go.mod that pins it; its version is read there and nowhere else.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chiasm_cluster import cache
from chiasm_cluster.build.binaries import Target, compile_into, find_go, module_version
from chiasm_cluster.host import requirements
from chiasm_cluster.host.commands import run
from chiasm_cluster.state import locked


@dataclass(frozen=True)
class ModuleProgram:
    """Package `package` of `module`, which the go.mod in `sources` requires.

    `package` is empty where the module itself is the program; `version_variable`, what the linker
    sets to the version, where the program has none. `minutes` a build on 2 cores takes. `also` are
    further packages of the module, whose programs come to lie beside it.
    """

    title: str
    sources: Path
    module: str
    package: str
    version_variable: str
    minutes: int
    disk_bytes: int
    also: tuple[str, ...] = ()
    tags: str = ""

    @property
    def name(self) -> str:
        """The name of the program's file."""
        return self._path.rpartition("/")[2]

    @property
    def _path(self) -> str:
        return f"{self.module}/{self.package}" if self.package else self.module

    @property
    def version(self) -> str:
        """The version that the module file requires."""
        return module_version(self.sources / "go.mod", self.module)

    @property
    def target(self) -> Target:
        """What is built."""
        variable = self.version_variable
        flags = "-s -w" + (f" -X {variable}={self.version}" if variable else "")
        packages = (self._path, *(f"{self.module}/{package}" for package in self.also))
        return Target(f"{self.title} {self.version}", self.sources, packages, flags, self.tags)

    def digest(self) -> str:
        """The digest of the module files and how it is built."""
        state = hashlib.sha256(repr(self.target.command("go", Path("out"))).encode())
        for name in ("go.mod", "go.sum"):
            state.update((self.sources / name).read_bytes())
        return state.hexdigest()[:16]

    def ensure(self, cache_dir: Path, say: Callable[[str], None]) -> Path:
        """The program, built when it is not there.

        Raises: ClusterError when there is no Go or the build fails.
        """
        folder = cache_dir / self.sources.name / self.digest()
        if not folder.is_dir():
            go = find_go()
            requirements.require_disk(cache_dir, self.disk_bytes, f"Building {self.title}")
            with locked(f"build-{self.sources.name}"):
                if not folder.is_dir():
                    say(
                        f"Building {self.title} from its Go module: "
                        f"about {self.minutes} minutes on 2 cores, once."
                    )
                    self._build(go, folder)
                    cache.prune(folder.parent)
        cache.use(folder)
        return folder / self.name

    def _build(self, go: str, folder: Path) -> None:
        """Build into `folder`, which appears only when complete."""
        unfinished = folder.with_name(folder.name + ".building")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        compile_into(unfinished, self.target, go)
        unfinished.rename(folder)

    def folder(self) -> Path:
        """The module's own folder in Go's read-only module cache."""
        command = ["env", "-C", str(self.sources), find_go(), "list", "-m", "-f", "{{.Dir}}"]
        return Path(run([*command, self.module], timeout=600).strip())

    def charts(self) -> Path:
        """The folder of the module's own Helm charts."""
        return self.folder() / "charts"
