"""Every name that more than one part writes or reads: API group, labels, ports, paths."""

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
CONFIG_DIR = "/etc/chiasm"
WORKER_CONFIG_KEY = "worker.json"
SIDECAR_CONFIG_KEY = "sidecar.json"

TENANT_KEYS_DIR = "/etc/chiasm-tenants/keys"
SERVER_KEY_DIR = "/etc/chiasm-tenants/server"
SERVER_KEY_FILE = "server-key"

BUILTIN_MODELS_DIR = "/opt/chiasm/models"
MODEL_MOUNT_DIR = "/models"

RUN_AS_ID = 10001
