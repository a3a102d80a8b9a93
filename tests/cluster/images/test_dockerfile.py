from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.images import dockerfile
from chiasm_cluster.images.dockerfile import Copy, Run
from chiasm_cluster.images.load import PROJECT, version
from chiasm_cluster.images.requirements import PARTS


def read(folder: Path, text: str, **arguments: str) -> dockerfile.Recipe:
    path = folder / "Dockerfile"
    path.write_text(text)
    return dockerfile.read(path, arguments)


def test_a_file_is_read_as_an_engine_reads_it(tmp_path: Path) -> None:
    recipe = read(
        tmp_path,
        """
# a comment
ARG BASE_IMAGE=debian
FROM ${BASE_IMAGE}
ARG INDEX=https://index.example/i
ENV A=1 \\
    B="two words" \\
# a comment inside
    C=${A}$INDEX
RUN --mount=type=cache,target=/root/.cache/uv \\
    first "$INDEX" \\
    && second
COPY src /opt/$A/src
LABEL title=x
EXPOSE 8000
USER 10001:10001
WORKDIR /opt
ENTRYPOINT ["chiasm"]
CMD ["--help"]
""",
        BASE_IMAGE="local",
    )
    assert recipe.base == "local"
    environment = {"A": "1", "B": "two words", "C": "1https://index.example/i"}
    assert recipe.steps == [
        Run('first "$INDEX"     && second', {"INDEX": "https://index.example/i", **environment},
            ("/root/.cache/uv",)),
        Copy("src", "/opt/1/src"),
    ]  # fmt: skip
    assert recipe.image_config == {
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": {"title": "x"}, "ExposedPorts": {"8000/tcp": {}}, "User": "10001:10001",
        "WorkingDir": "/opt", "Entrypoint": ["chiasm"], "Cmd": ["--help"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM x\nADD a b", "line 2: ADD is not understood; use ARG, COPY"),
        ("FROM x\nFROM y", "line 2: a second FROM"),
        ("FROM x\nCOPY --from=y a b", "line 2: COPY --from=y is not understood; leave the flag"),
        ("FROM x\nCOPY a b c", "line 2: COPY takes one source and one target"),
        ("FROM x\nRUN --network=none y", "line 2: RUN --network=none is not understood; use --mou"),
        ("FROM x\nENV A 1", "line 2: write ENV A=value"),
        ("FROM x\n\nENTRYPOINT chiasm run", "line 3: ENTRYPOINT takes a JSON list"),
        ("ARG A=1", "there is no FROM"),
    ],
)
def test_what_is_not_understood_is_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ClusterError) as refused:
        read(tmp_path, text)
    assert words in str(refused.value)


def recipe_of(part: str) -> dockerfile.Recipe:
    return dockerfile.read(PROJECT / part / "Dockerfile", {"BASE_IMAGE": "local"})


@pytest.mark.parametrize("part", PARTS)
def test_each_image_runs_the_command_as_nobody_in_particular(part: str) -> None:
    recipe = recipe_of(part)
    assert recipe.base == "local", "the base image is not a build argument"
    assert recipe.config["User"] == "10001:10001"
    assert recipe.config["Entrypoint"] == ["chiasm"]


@pytest.mark.parametrize("part", PARTS)
def test_each_image_holds_its_own_part_alone(part: str) -> None:
    copied = {step.source for step in recipe_of(part).steps if isinstance(step, Copy)}
    assert {"contract/chiasm_contract", "cli/chiasm_cli", f"{part}/chiasm_{part}"} <= copied
    others = [other for other in PARTS if other != part]
    assert not [source for source in copied if source.startswith(tuple(others))]
    assert ("demo/model" in copied) == (part == "worker")


@pytest.mark.parametrize("part", PARTS)
def test_the_index_and_the_base_are_arguments_and_packages_come_before_code(part: str) -> None:
    text = (PROJECT / part / "Dockerfile").read_text()
    assert "ARG BASE_IMAGE=" in text
    assert f"ARG CHIASM_VERSION={version(PROJECT)}\n" in text
    assert "ARG PACKAGE_INDEX=" in text
    steps = recipe_of(part).steps
    installs = next(i for i, step in enumerate(steps) if "uv pip install" in repr(step))
    code = next(i for i, step in enumerate(steps) if "chiasm_contract" in repr(step))
    assert installs < code
