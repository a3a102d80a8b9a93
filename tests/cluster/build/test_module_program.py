from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from chiasm_cluster.build import external_secrets, gateway, metrics, module_program, prometheus
from chiasm_cluster.build.module_program import ModuleProgram

PROGRAMS = [external_secrets.PROGRAM, gateway.PROGRAM, metrics.PROGRAM, prometheus.PROGRAM]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> ModuleProgram:
    chosen: ModuleProgram = request.param
    return chosen


def test_what_another_built_meanwhile_is_not_built_again(
    program: ModuleProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one held the lock, and has the folder ready when it lets go."""
    folder = tmp_path / program.sources.name / program.digest()

    @contextmanager
    def locked(name: str) -> Iterator[None]:
        folder.mkdir(parents=True)
        (folder / program.name).write_text("built by another")
        yield

    monkeypatch.setattr(module_program, "locked", locked)
    monkeypatch.setattr(module_program, "find_go", lambda: "no-such-go")
    monkeypatch.setattr(module_program.requirements, "require_disk", lambda *_: None)
    said: list[str] = []
    assert program.ensure(tmp_path, said.append).read_text() == "built by another"
    assert said == []


def test_version_and_digest_follow_the_module_files(program: ModuleProgram, tmp_path: Path) -> None:
    copied = replace(program, sources=shutil.copytree(program.sources, tmp_path / "copy"))
    before = copied.digest()
    assert before == program.digest()
    named = f" -X {program.version_variable}={program.version}"
    assert program.target.flags == "-s -w" + (named if program.version_variable else "")
    (copied.sources / "README.md").write_text("words")
    assert copied.digest() == before
    for name in ("go.mod", "go.sum"):
        path = copied.sources / name
        text = path.read_text()
        path.write_text(text + "\n")
        assert copied.digest() != before, name
        path.write_text(text.replace(program.version, "v99.0.0"))
        assert copied.version == ("v99.0.0" if name == "go.mod" else program.version)
        path.write_text(text)


def test_every_program_is_kept_in_a_folder_of_its_own() -> None:
    folders = {program.sources.name for program in PROGRAMS}
    assert len(folders) == len(PROGRAMS)
    assert not folders & {"clusters", "images", "kubernetes"}


def test_programs_of_one_module_are_built_together() -> None:
    target = prometheus.PROGRAM.target
    assert [package.rpartition("/")[2] for package in target.packages] == ["prometheus", "promtool"]
    assert target.command("go", Path("out"))[4:6] == ["-tags", "remove_all_sd,enable_kubernetes_sd"]
