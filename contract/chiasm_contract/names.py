"""Every name that more than one part writes or reads: API group, labels, addresses, paths."""

GROUP = "chiasm.dev"
VERSION = "v1alpha1"
KIND = "MultimodalInference"
PLURAL = "multimodalinferences"
SHORT_NAME = "mmi"
API_VERSION = f"{GROUP}/{VERSION}"

FIELD_MANAGER = "chiasm-operator"
FINALIZER = f"{GROUP}/finalizer"

LABEL_OWNER = f"{GROUP}/name"
LABEL_REVISION = f"{GROUP}/revision"
ANNOTATION_APPLIED = f"{GROUP}/applied"
ANNOTATION_TRAFFIC_EPOCH = f"{GROUP}/traffic-epoch"
ANNOTATION_CANARY_WEIGHT = f"{GROUP}/canary-weight"
ANNOTATION_CANARY_BY_HEADER = f"{GROUP}/canary-by-header"
ANNOTATION_CANARY_BY_HEADER_VALUE = f"{GROUP}/canary-by-header-value"
ANNOTATION_CANARY_BY_COOKIE = f"{GROUP}/canary-by-cookie"
ANNOTATION_ROLLOUT_ACTION = f"{GROUP}/rollout-action"
ANNOTATION_RESTARTED_AT = f"{GROUP}/restartedAt"
ANNOTATION_RELOAD_CONFIG = f"{GROUP}/reload-config"
# On a pod template: the values that its pods were replaced for.
ANNOTATION_CONFIG_RESTART = f"{GROUP}/config-restart"
# On a pod, beside the traffic epoch: which approvals it was told of.
ANNOTATION_CONFIG_APPROVAL = f"{GROUP}/config-approval"
LABEL_ENVIRONMENT = f"{GROUP}/environment"
LABEL_APP = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
APP = "chiasm"

API_PORT = 8000
METRICS_PORT = 9100
PEER_PORT = 9200
PEER_DATA_PORT = 9201

WORKER_CONTAINER = "worker"
SIDECAR_CONTAINER = "sidecar"

RUN_DIR = "/run/chiasm"
WORKER_SOCKET = f"{RUN_DIR}/worker.sock"
KV_SOCKET = f"{RUN_DIR}/kv.sock"
KV_STAGING = f"{RUN_DIR}/kv.staging"
DISK_TIER_DIR = "/var/lib/chiasm/blocks"
PEERS_DIR = "/etc/chiasm-peers"
PEERS_KEY_FILE = f"{PEERS_DIR}/secret"
VALKEY_DIR = "/etc/chiasm-valkey"
VALKEY_PASSWORD_FILE = f"{VALKEY_DIR}/password"
VALKEY_CA_FILE = f"{VALKEY_DIR}/ca.crt"
RETIRED_DIR = "/etc/chiasm-namespaces"
RETIRED_KEY = "retired"
CONFIG_DIR = "/etc/chiasm"
TRAFFIC_DIR = "/etc/chiasm-traffic"
TRAFFIC_KEY = "traffic.json"
TRAFFIC_FILE = f"{TRAFFIC_DIR}/{TRAFFIC_KEY}"
# Beside the traffic plan: which values of the configuration pods may take.
APPROVALS_KEY = "config.json"
APPROVALS_FILE = f"{TRAFFIC_DIR}/{APPROVALS_KEY}"
CONFIG_SOURCES_DIR = "/etc/chiasm-sources"
CONFIG_CURRENT_DIR = "/run/chiasm-config"
CONFIG_DIGEST_DIR = "/etc/chiasm-digest"
CONFIG_DIGEST_KEY = "key"
VAULT_TOKEN_DIR = "/run/chiasm-vault"  # noqa: S105 - a folder
VAULT_TOKEN_FILE = f"{VAULT_TOKEN_DIR}/token"
VAULT_CA_DIR = "/etc/chiasm-vault-ca"
VAULT_CA_FILE = f"{VAULT_CA_DIR}/ca.crt"
AGENT_RENDERED_DIR = "/run/chiasm-agent"
INJECTOR_RENDERED_DIR = "/vault/secrets"
WORKER_CONFIG_KEY = "worker.json"
SIDECAR_CONFIG_KEY = "sidecar.json"

TENANT_KEYS_DIR = "/etc/chiasm-tenants/keys"
SERVER_KEY_DIR = "/etc/chiasm-tenants/server"
SERVER_KEY_FILE = "server-key"

BUILTIN_MODELS_DIR = "/opt/chiasm/models"
MODEL_MOUNT_DIR = "/models"

RUN_AS_ID = 10001

# Set by one sidecar on a request that it hands to another: the revision that must answer it.
REVISION_HEADER = "x-chiasm-revision"
# Set by a gateway that divides: the revision is chosen, for a request that nobody counted yet.
ROUTE_HEADER = "x-chiasm-route"
ROUTED_BY_GATEWAY = "gateway"
# Names a conversation in requests; answers carry it back with the revision that it is pinned to.
CONVERSATION_HEADER = "x-chiasm-conversation"


def host_port(host: str, port: int) -> str:
    """An address of either version of IP, or a name, with its port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
