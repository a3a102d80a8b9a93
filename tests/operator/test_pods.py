"""What is said about a pod that does not become ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.conditions import Reason
from chiasm_contract.messages import PodState
from chiasm_operator.reconcile.diagnosis.pods import diagnose
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakePod = Callable[..., dict[str, Any]]
NOW = "2026-01-02T00:00:00Z"


def waiting(name: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(code: int, **more: Any) -> dict[str, Any]:
    return {
        "name": "worker",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": code, "reason": "Error", **more}},
    }


def unscheduled(message: str) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": "False", "message": message}


CLAIM = '0/1 nodes are available: persistentvolumeclaim "models" not found. preemption: 0/1 ...'


@pytest.mark.parametrize(
    ("pod", "reason", "words"),
    [
        (
            {"conditions": [unscheduled(CLAIM)]},
            Reason.CLAIM_NOT_FOUND,
            "PersistentVolumeClaim 'models' (spec.model.source.path.claimName) does not exist in "
            "namespace 'vision'",
        ),
        (
            {"conditions": [unscheduled("0/1 nodes are available: 1 Insufficient memory.")]},
            Reason.UNSCHEDULABLE,
            "Pod pod-1 fits on no node: 0/1 nodes are available: 1 Insufficient memory.",
        ),
        (
            {"init_statuses": [waiting("sidecar", "ErrImagePull", "no such host")]},
            Reason.IMAGE_PULL_FAILED,
            "Image 'example.com/sidecar:1' of container sidecar cannot be pulled: no such host",
        ),
        (
            {"statuses": [waiting("worker", "ImagePullBackOff")]},
            Reason.IMAGE_PULL_FAILED,
            "Image 'example.com/worker:1' of container worker cannot be pulled",
        ),
        (
            {"statuses": [waiting("worker", "CreateContainerConfigError", "configmap gone")]},
            Reason.CONTAINER_CANNOT_START,
            "container worker cannot start: configmap gone",
        ),
        (
            {"statuses": [ended(1, message="chiasm worker: cannot use worker.json: no id.\n")]},
            Reason.CRASH_LOOP,
            "Pod pod-1: container worker ended with code 1 (Error) and was restarted 2 times; its "
            "last words: chiasm worker: cannot use worker.json: no id.",
        ),
        (
            {"statuses": [ended(3, message="a line of the log\n" * 100)]},
            Reason.CRASH_LOOP,
            "ended with code 3 (Error) and was restarted 2 times; its last words: ...",
        ),
        (
            {"statuses": [ended(0)]},
            Reason.CRASH_LOOP,
            "container worker ended with code 0 (Error) and was restarted 2 times.",
        ),
    ],
)
def test_what_is_named(
    pod: dict[str, Any], reason: Reason, words: str, make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    problem = diagnose(target, make_pod(target, **pod), None, (), NOW)
    assert problem is not None
    assert problem.reason is reason
    assert words in problem.message


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"statuses": [waiting("worker", "PodInitializing")]},
        {"statuses": [{"name": "worker", "started": True, "state": {"running": {}}}]},
        {"statuses": [ended(1) | {"started": True, "state": {"running": {}}}]},
        {"statuses": [ended(0) | {"state": {"waiting": {"reason": "PodInitializing"}}}]},
    ],
    ids=["new", "initializing", "running", "recovered", "ended well"],
)
def test_a_pod_that_is_starting_has_no_problem(
    pod: dict[str, Any], make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    assert diagnose(target, make_pod(target, **pod), None, (), NOW) is None


def test_a_crash_is_remembered_until_the_container_is_up(
    make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target()
    restarting = ended(1, message="Bad.") | {"started": False, "state": {"running": {}}}
    problem = diagnose(target, make_pod(target, statuses=[restarting]), None, (), NOW)
    assert problem is not None
    assert problem.reason is Reason.CRASH_LOOP


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("IdentityMismatch", Reason.IDENTITY_MISMATCH),
        ("ProbePictureFailed", Reason.PROBE_PICTURE_FAILED),
        ("ModelLoadFailed", Reason.MODEL_LOAD_FAILED),
        ("TenantKeysRefused", Reason.TENANT_KEYS_REFUSED),
        ("WorkerStarting", None),
        ("WorkerUnavailable", None),
    ],
)
def test_the_sidecars_word_counts(
    reason: str,
    expected: Reason | None,
    make_target: MakeTarget,
    make_pod: MakePod,
    make_state: Callable[..., PodState],
) -> None:
    target = make_target()
    state = make_state(reason=reason, message="compute_dtype is 'float32'.")
    problem = diagnose(target, make_pod(target), state, (), NOW)
    assert (problem.reason if problem else None) is expected
    assert expected is None or "compute_dtype" in (problem.message if problem else "")


def test_a_model_that_cannot_be_loaded_is_told_with_its_source(
    make_target: MakeTarget, make_pod: MakePod, make_state: Callable[..., PodState]
) -> None:
    target = make_target("claim")
    state = make_state(reason="ModelLoadFailed", message="No config.json.")
    problem = diagnose(target, make_pod(target), state, (), NOW)
    assert problem is not None
    assert problem.message.startswith("Pod pod-1: No config.json. (spec.model.source.path: claim ")


def test_a_volume_that_cannot_be_mounted_is_told(
    make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target("claim")
    event = {"reason": "FailedMount", "message": "SetUp failed: no such device", "count": 2}
    problem = diagnose(target, make_pod(target), None, [event], NOW)
    assert problem is not None
    assert problem.reason is Reason.VOLUME_NOT_MOUNTED
    assert "no such device" in problem.message
    assert diagnose(target, make_pod(target), None, [event | {"count": 1}], NOW) is None
    mounted = {"type": "PodReadyToStartContainers", "status": "True"}
    assert diagnose(target, make_pod(target, conditions=[mounted]), None, [event], NOW) is None


FAILED = "MountVolume.SetUp failed for volume"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f'{FAILED} "tenant-keys" : secret "catalogue-api-keys" not found',
            "Secret 'catalogue-api-keys' (spec.tenants.keysSecret.name) does not exist in "
            "namespace 'vision'; create it or name another.",
        ),
        (
            f'{FAILED} "server-key" : secret "catalogue-scopes" not found',
            "Secret 'catalogue-scopes' (spec.tenants.serverKeySecret.name) does not exist",
        ),
        (
            f'{FAILED} "server-key" : references non-existent secret key: hmac',
            "Secret 'catalogue-scopes' (spec.tenants.serverKeySecret.name) has no entry 'hmac' "
            "(spec.tenants.serverKeySecret.key); add it or name another.",
        ),
        (
            f'{FAILED} "valkey" : secret "valkey-users" not found',
            "Secret 'valkey-users' (spec.tiers.valkey.passwordSecret.name) does not exist in "
            "namespace 'vision'; create it or name another.",
        ),
        (
            f'{FAILED} "valkey" : [secret "valkey-ca" not found, secret "valkey-users" not found]',
            "Secret 'valkey-ca' (spec.tiers.valkey.caSecret.name) does not exist in",
        ),
        (
            f'{FAILED} "valkey" : references non-existent secret key: blocks',
            "Secret 'valkey-users' (spec.tiers.valkey.passwordSecret.name) has no entry 'blocks' "
            "(spec.tiers.valkey.passwordSecret.key); add it or name another.",
        ),
        (
            f'{FAILED} "valkey" : [references non-existent secret key: ca.crt, secret "x" not '
            "found]",
            "Secret 'valkey-ca' (spec.tiers.valkey.caSecret.name) has no entry 'ca.crt' "
            "(spec.tiers.valkey.caSecret.key); add it or name another.",
        ),
        (
            f'{FAILED} "peers" : secret "catalogue-peers" not found',
            "Secret 'catalogue-peers' (spec.tiers.peers.secret.name) does not exist in namespace "
            "'vision'; create it or name another.",
        ),
        (
            f'{FAILED} "peers" : references non-existent secret key: secret',
            "Secret 'catalogue-peers' (spec.tiers.peers.secret.name) has no entry 'secret' "
            "(spec.tiers.peers.secret.key); add it or name another.",
        ),
    ],
    ids=[
        "keys",
        "server key",
        "entry",
        "password",
        "both",
        "password entry",
        "authority entry",
        "peers",
        "peers entry",
    ],
)
def test_a_secret_that_is_missing_is_named_at_once(
    text: str, words: str, make_target: MakeTarget, make_pod: MakePod
) -> None:
    target = make_target("complete")
    event = {"reason": "FailedMount", "message": text, "count": 1}
    problem = diagnose(target, make_pod(target), None, [event], NOW)
    assert problem is not None
    assert problem.reason is Reason.SECRET_NOT_FOUND
    assert words in problem.message
    mounted = {"type": "PodReadyToStartContainers", "status": "True"}
    assert diagnose(target, make_pod(target, conditions=[mounted]), None, [event], NOW) is None


def test_one_secret_that_two_fields_name_is_told_with_both(
    make_target: MakeTarget, make_pod: MakePod
) -> None:
    same = {"name": "valkey", "key": "it"}
    valkey = {"host": "valkey", "tls": True, "caSecret": same, "passwordSecret": same}
    target = make_target(tiers={"valkey": valkey})
    event = {"reason": "FailedMount", "count": 1}
    for fault, words in {
        'secret "valkey" not found': "passwordSecret.name and spec.tiers.valkey.caSecret.name)",
        "references non-existent secret key: it": "passwordSecret.key or spec.tiers.valkey.",
    }.items():
        text = f'{FAILED} "valkey" : {fault}'
        problem = diagnose(target, make_pod(target), None, [event | {"message": text}], NOW)
        assert problem is not None
        assert problem.reason is Reason.SECRET_NOT_FOUND
        assert words in problem.message


def test_keys_that_cannot_be_used_are_told_with_their_secrets(
    make_target: MakeTarget, make_pod: MakePod, make_state: Callable[..., PodState]
) -> None:
    target = make_target("complete")
    state = make_state(reason="TenantKeysRefused", message="Tenant 'acme' has no API key.")
    problem = diagnose(target, make_pod(target), state, (), NOW)
    assert problem is not None
    assert "Tenant 'acme' has no API key." in problem.message
    assert "spec.tenants.keysSecret: 'catalogue-api-keys'" in problem.message


def test_a_model_image_is_told_by_its_field(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target("complete")
    source = target.spec.model.source.image
    assert source is not None
    text = f'Failed to pull image "{source.reference}": not found'
    events = [{"reason": "Failed", "message": text}]
    # A kubelet says of the worker only that it is initializing, or pulls the sidecar in vain too.
    for pod in (
        make_pod(target, statuses=[waiting("worker", "PodInitializing")]),
        make_pod(target, statuses=[waiting("sidecar", "ImagePullBackOff", "also not found")]),
    ):
        problem = diagnose(target, pod, None, events, NOW)
        assert problem is not None
        assert problem.reason is Reason.IMAGE_PULL_FAILED
        assert "spec.model.source.image.reference" in problem.message
    loading = {"name": "worker", "containerID": "containerd://1", "state": {"running": {}}}
    assert diagnose(target, make_pod(target, statuses=[loading]), None, events, NOW) is None


def test_a_ready_pod_has_no_problem(make_target: MakeTarget, make_pod: MakePod) -> None:
    target = make_target()
    recovered = ended(1) | {"started": True, "state": {"running": {}}}
    assert (
        diagnose(target, make_pod(target, ready=True, statuses=[recovered]), None, (), NOW) is None
    )
