from __future__ import annotations

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.images import requirements
from chiasm_cluster.images.load import PROJECT

PYPROJECT = """
[project]
dependencies = ["Base_Lib>=1"]
[project.optional-dependencies]
worker = ["torch>=2; python_version > '3'", "serve[fast]>=1"]
operator = ["kopf"]
more = ["serve==4"]
"""
CONSTRAINTS = """
base-lib==1.0
    # via chiasm (pyproject.toml)
cuda==13
    # via torch
fast==2
    # via serve
kopf==3
    # via chiasm (pyproject.toml)
serve==4
    # via
    #   chiasm (pyproject.toml)
    #   other
shared==5
    # via
    #   cuda
    #   kopf
torch==6
    # via chiasm (pyproject.toml)
"""


def pins(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_part_gets_its_packages_and_what_they_need() -> None:
    assert pins(requirements.render("worker", PYPROJECT, CONSTRAINTS)) == [
        "base-lib==1.0", "cuda==13", "fast==2", "serve==4", "shared==5", "torch==6",
    ]  # fmt: skip
    assert pins(requirements.render("operator", PYPROJECT, CONSTRAINTS)) == [
        "base-lib==1.0", "kopf==3", "shared==5",
    ]  # fmt: skip


def test_an_image_with_an_extra_gets_what_that_names_and_no_more() -> None:
    assert pins(requirements.render("operator-more", PYPROJECT, CONSTRAINTS)) == [
        "base-lib==1.0", "kopf==3", "serve==4", "shared==5",
    ]  # fmt: skip


def test_nixl_is_in_the_image_for_it_alone() -> None:
    lists = {
        image: set(pins((PROJECT / name).read_text())) for image, name in requirements.LISTS.items()
    }
    more = {pin.partition("==")[0] for pin in lists["sidecar-peers"] - lists["sidecar"]}
    assert more == {"nixl-cu12", "numpy"}
    assert lists["sidecar"] <= lists["sidecar-peers"]


def test_a_package_without_a_pin_is_named() -> None:
    with pytest.raises(ClusterError, match="no pin for kopf, which the operator image needs"):
        requirements.render("operator", PYPROJECT, CONSTRAINTS.replace("kopf==3", "other==3"))


@pytest.mark.parametrize("image", requirements.LISTS)
def test_the_written_lists_are_current(image: str) -> None:
    wanted = requirements.render(
        image, (PROJECT / "pyproject.toml").read_text(), (PROJECT / "constraints.txt").read_text()
    )
    assert (PROJECT / requirements.LISTS[image]).read_text() == wanted, (
        "run: python -m chiasm_cluster requirements"
    )


def test_torch_is_in_the_workers_image_alone() -> None:
    holders = {
        image
        for image, name in requirements.LISTS.items()
        for pin in pins((PROJECT / name).read_text())
        if pin.startswith(("torch", "nvidia", "triton", "transformers"))
    }
    assert holders == {"worker"}
