{{/* Name of every object of the release. */}}
{{- define "chiasm.name" -}}
{{- if contains "chiasm" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-chiasm" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "chiasm.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "chiasm.name" .) }}
{{- end }}

{{- define "chiasm.selector" -}}
app.kubernetes.io/name: chiasm-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "chiasm.labels" -}}
{{ include "chiasm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Reference of one image: (dict "root" $ "image" .Values.images.worker). */}}
{{- define "chiasm.image" -}}
{{- $registry := .root.Values.images.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What the operator may do in a namespace that it watches; equal to PERMISSIONS in its cluster module. */}}
{{- define "chiasm.rules" -}}
- apiGroups: [chiasm.dev]
  resources: [multimodalinferences]
  verbs: [get, list, watch]
- apiGroups: [chiasm.dev]
  resources: [multimodalinferences/status]
  verbs: [patch]
- apiGroups: [chiasm.dev]
  resources: [multimodalinferences/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, create, patch, delete]
- apiGroups: [external-secrets.io]
  resources: [secretstores, externalsecrets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [generators.external-secrets.io]
  resources: [vaultdynamicsecrets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [secrets.hashicorp.com]
  resources: [vaultconnections, vaultauths, vaultstaticsecrets, vaultdynamicsecrets, vaultpkisecrets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [secrets-store.csi.x-k8s.io]
  resources: [secretproviderclasses]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
