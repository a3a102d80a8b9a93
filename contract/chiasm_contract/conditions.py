"""The words of a resource's status: condition types, reasons, phases.

A condition's type is an adjective, its reason one CamelCase word from `Reason`, its message a
sentence. `merge` is the only place where `lastTransitionTime` is decided.

Must not know: clocks (the time is an argument), Kubernetes clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition is about."""

    READY = "Ready"
    SERVING = "Serving"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    IDENTITY_VERIFIED = "IdentityVerified"
    AUTOSCALED = "Autoscaled"
    PAUSED = "Paused"
    ROLLOUT_HEALTHY = "RolloutHealthy"
    TRAFFIC_SYNCED = "TrafficSynced"
    ANALYSIS_HEALTHY = "AnalysisHealthy"
    TIERS_USABLE = "TiersUsable"
    ROUTE_ACCEPTED = "RouteAccepted"
    CONFIG_SYNCED = "ConfigSynced"
    SECRET_LEASE_HEALTHY = "SecretLeaseHealthy"  # noqa: S105 - a word, not a secret


class Phase(StrEnum):
    """The resource in one word; the words are Argo's."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    DEGRADED = "Degraded"


class Reason(StrEnum):
    """Every reason that a condition or an event can have."""

    # Things are as asked
    ALL_REPLICAS_READY = "AllReplicasReady"
    PODS_READY = "PodsReady"
    ROLLOUT_COMPLETE = "RolloutComplete"
    AS_EXPECTED = "AsExpected"
    IDENTITY_CONFIRMED = "IdentityConfirmed"
    NAMESPACE_OPEN = "NamespaceOpen"
    SCALED_TO_ZERO = "ScaledToZero"
    AUTOSCALER_ACTIVE = "AutoscalerActive"
    NOT_PAUSED = "NotPaused"
    NO_CANARY = "NoCanary"
    PLAN_ACKNOWLEDGED = "PlanAcknowledged"
    NO_ANALYSIS = "NoAnalysis"
    ROUTE_FOLLOWED = "RouteFollowed"
    CONFIG_CURRENT = "ConfigCurrent"
    LEASES_RENEWED = "LeasesRenewed"
    LEASES_HELD_ELSEWHERE = "LeasesHeldElsewhere"
    # Under way
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    WAITING_FOR_CLEANUP = "WaitingForCleanup"
    REPLICAS_NOT_READY = "ReplicasNotReady"
    NO_READY_PODS = "NoReadyPods"
    NOT_REPORTED = "NotReported"
    PLAN_NOT_ACKNOWLEDGED = "PlanNotAcknowledged"
    ROUTE_NOT_FOLLOWED = "RouteNotFollowed"
    CANARY_PAUSE_STEP = "CanaryPauseStep"
    PAUSED_BY_ACTION = "PausedByAction"
    PAUSED_BY_SPEC = "PausedBySpec"
    MANUAL_WEIGHT = "ManualWeight"
    ANALYSIS_RUNNING = "AnalysisRunning"
    ROTATION_IN_PROGRESS = "RotationInProgress"
    # Told in events only
    TRAFFIC_WEIGHT_UPDATED = "TrafficWeightUpdated"
    ROLLOUT_STEP_COMPLETED = "RolloutStepCompleted"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_RESUMED = "RolloutResumed"
    ROLLOUT_PROMOTED = "RolloutPromoted"
    ROLLOUT_RETRIED = "RolloutRetried"
    MANUAL_WEIGHT_ANNOTATION_REMOVED = "ManualWeightAnnotationRemoved"
    ACTION_IGNORED = "ActionIgnored"
    SECRET_ROTATED = "SecretRotated"  # noqa: S105 - a word, not a secret
    ROLLOUT_RESTART_TRIGGERED = "RolloutRestartTriggered"
    # Something is wrong
    INVALID_SPEC = "InvalidSpec"
    OPERATOR_FAILED = "OperatorFailed"
    NAME_TAKEN = "NameTaken"
    CHILD_REFUSED = "ChildRefused"
    IMMUTABLE_FIELD = "ImmutableField"
    KEDA_NOT_INSTALLED = "KedaNotInstalled"
    AUTOSCALER_INACTIVE = "AutoscalerInactive"
    REPLICAS_CONTESTED = "ReplicasContested"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    VOLUME_NOT_MOUNTED = "VolumeNotMounted"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a word, not a secret
    CLAIM_NOT_BOUND = "ClaimNotBound"
    UNSCHEDULABLE = "Unschedulable"
    INSUFFICIENT_GPU = "InsufficientGPU"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    NODE_MISMATCH = "NodeMismatch"
    NODE_LOST = "NodeLost"
    EVICTED = "Evicted"
    POD_FAILED = "PodFailed"
    CONTAINER_CANNOT_START = "ContainerCannotStart"
    MODEL_LOAD_FAILED = "ModelLoadFailed"
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OOMKilled"
    PROBE_FAILED = "ProbeFailed"
    PROBE_PICTURE_FAILED = "ProbePictureFailed"
    IDENTITY_MISMATCH = "IdentityMismatch"
    TENANT_KEYS_REFUSED = "TenantKeysRefused"
    TIER_UNAVAILABLE = "TierUnavailable"
    PODS_REFUSED = "PodsRefused"
    PODS_REFUSED_BY_WEBHOOK = "PodRefusedByWebhook"
    QUOTA_EXCEEDED = "QuotaExceeded"
    SERVED_NAMESPACE_RETIRED = "ServedNamespaceRetired"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    ROLLOUT_ABORTED = "RolloutAborted"
    INVALID_ANNOTATION = "InvalidAnnotation"
    STABLE_CAPACITY = "StableCapacity"
    ANALYSIS_INCONCLUSIVE = "AnalysisInconclusive"
    PLAN_REFUSED = "PlanRefused"
    ROUTE_REFUSED = "RouteRefused"
    GATEWAY_API_NOT_INSTALLED = "GatewayApiNotInstalled"
    CONFIG_UNAVAILABLE = "ConfigUnavailable"
    CONFIG_NOT_PROVED = "ConfigNotProved"
    LEASE_TOO_SHORT = "LeaseTooShort"
    LEASE_EXPIRING = "LeaseExpiring"
    DELIVERY_NOT_INSTALLED = "DeliveryNotInstalled"
    # What a comparison of both revisions found
    NOT_WORSE = "NotWorse"
    NO_DATA = "NoData"
    TOO_FEW_SAMPLES = "TooFewSamples"
    ERROR_RATE = "ErrorRate"
    SLOW_FIRST_TOKEN = "SlowFirstToken"  # noqa: S105 - a word, not a secret
    SLOW_TOKENS = "SlowTokens"
    OUTPUT_LENGTH = "OutputLength"
    GUARD_REJECTS = "GuardRejects"
    DISAGREEMENT = "Disagreement"


class Truth(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Finding:
    """What is now true of one condition, before it is known whether that is new."""

    type: ConditionType
    status: Truth
    reason: Reason
    message: str


@dataclass(frozen=True)
class Condition:
    """One entry of `status.conditions`."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int

    def to_dict(self) -> dict[str, str | int]:
        """As the API server stores it."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.last_transition_time,
            "observedGeneration": self.observed_generation,
        }


def merge(
    previous: Iterable[Condition], findings: Sequence[Finding], now: str, generation: int
) -> tuple[Condition, ...]:
    """`findings` as conditions; the transition time moves only when the status changes."""
    known = {condition.type: condition for condition in previous}
    merged = []
    for finding in findings:
        before = known.get(finding.type)
        same = before is not None and before.status == finding.status
        merged.append(
            Condition(
                type=finding.type.value,
                status=finding.status.value,
                reason=finding.reason.value,
                message=finding.message,
                last_transition_time=before.last_transition_time if before and same else now,
                observed_generation=generation,
            )
        )
    return tuple(merged)


def transitions(
    previous: Iterable[Condition], current: Iterable[Condition]
) -> tuple[Condition, ...]:
    """The conditions of `current` whose status or reason is not what it was."""
    known = {condition.type: (condition.status, condition.reason) for condition in previous}
    return tuple(
        condition
        for condition in current
        if known.get(condition.type) != (condition.status, condition.reason)
    )
