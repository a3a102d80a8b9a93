"""The recording of a promotion and an abort: what it types exists, and its file is well made."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from chiasm_cli.rollout import app
from chiasm_contract import names
from chiasm_contract.api.status import RolloutState
from chiasm_contract.conditions import Reason
from chiasm_tour.casting import DOCS, NAME, SCENES, Recording, Terminal, Typed, Until

LINES = [scene.line for scene in SCENES if isinstance(scene, Typed)]


def test_every_state_that_is_waited_for_exists() -> None:
    waited = {scene.state for scene in SCENES if isinstance(scene, Until)}
    assert waited <= set(get_args(RolloutState))


@pytest.mark.parametrize("line", LINES)
def test_every_command_exists_and_is_about_the_demo(line: str) -> None:
    found = re.match(r"chiasm rollout (\w+) (\S+)", line)
    if found is not None:
        assert found[1] in {
            command.name or command.callback.__name__ for command in app.registered_commands
        }
        assert found[2] == NAME
    for annotation in re.findall(r"chiasm\.dev/[\w-]+", line):
        assert annotation in {names.ANNOTATION_CANARY_WEIGHT, names.ANNOTATION_ROLLOUT_ACTION}


def test_it_types_into_the_clusters_own_kubectl(tmp_path: Path) -> None:
    """Not into one of another version that was built or installed beside it."""
    programs, recording = tmp_path / "programs", Recording()
    programs.mkdir()
    kubectl = programs / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$0 $KUBECONFIG $*"\n')
    kubectl.chmod(0o755)
    Terminal(tmp_path / "config", programs, recording).type(Typed("kubectl get mmi"))
    assert recording.text[-1] == f"{kubectl} {tmp_path / 'config'} get mmi\n\n"


def test_a_recording_is_an_asciicast_and_the_page_says_the_same() -> None:
    recording = Recording()
    recording.show("$ kubectl get mmi\n")
    recording.show("NAME\nreader\n")
    header, *events = map(json.loads, recording.cast().splitlines())
    assert header["version"] == 2
    assert [kind for _, kind, _ in events] == ["o", "o"]
    moments = [moment for moment, _, _ in events]
    assert moments == sorted(moments)
    shown = "".join(text for _, _, text in events).replace("\r\n", "\n")
    assert shown.rstrip() in recording.markdown()


def test_the_recording_in_the_docs_names_only_what_exists() -> None:
    """Reasons of events and states; the page and the cast hold the same text."""
    page = (DOCS / "rollout-cast.md").read_text()
    _, *events = map(json.loads, (DOCS / "rollout.cast").read_text().splitlines())
    assert "".join(text for _, _, text in events).replace("\r\n", "\n").rstrip() in page
    for line in LINES:
        assert f"$ {line}\n" in page
    table = page.rpartition("REASON")[2].partition("```")[0].splitlines()[1:]
    reasons = {line.split()[0] for line in table if line.strip()}
    assert reasons <= {reason.value for reason in Reason}
    assert "RolloutPromoted" in reasons
    assert "RolloutAborted" in reasons
