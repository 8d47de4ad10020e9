{{- define "dgl-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "dgl-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dgl-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dgl-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "dgl-operator.selectorLabels" -}}
app: dgl-operator
app.kubernetes.io/name: {{ include "dgl-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dgl-operator.labels" -}}
{{ include "dgl-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* Full name of an image; takes a dict of `root` and `image`. */}}
{{- define "dgl-operator.image" -}}
{{- $registry := default .root.Values.images.registry .image.registry -}}
{{- if not $registry -}}
{{- fail "images.registry: expected the registry to which you pushed the images, got none; pass --set images.registry=HOST (see docs/howto/install.md)" -}}
{{- end -}}
{{- $tag := default (printf "v%s" .root.Chart.AppVersion) .image.tag -}}
{{- printf "%s/%s:%s" $registry .image.repository $tag -}}
{{- with .image.digest -}}{{- printf "@%s" . -}}{{- end -}}
{{- end -}}

{{/* The namespaces whose jobs are run, as a JSON list; empty for the whole cluster. */}}
{{- define "dgl-operator.namespaces" -}}
{{- if eq .Values.scope "namespace" -}}
{{- default (list .Release.Namespace) .Values.namespaces | toJson -}}
{{- else -}}
{{- if .Values.namespaces -}}
{{- fail "namespaces: expected none with scope cluster; set scope=namespace to limit the operator to them" -}}
{{- end -}}
[]
{{- end -}}
{{- end -}}

{{/* Not empty where operators elect their leader: as the value says, else where there are several. */}}
{{- define "dgl-operator.elects" -}}
{{- if kindIs "bool" .Values.leaderElection.enabled -}}
{{- if .Values.leaderElection.enabled -}}yes{{- end -}}
{{- else if gt (int .Values.replicas) 1 -}}yes{{- end -}}
{{- end -}}

{{/* Number of operators; several need an election. */}}
{{- define "dgl-operator.replicas" -}}
{{- if and (gt (int .Values.replicas) 1) (not (include "dgl-operator.elects" .)) -}}
{{- fail (printf "replicas: expected 1 with leaderElection.enabled=false, got %d; several operators would act on the same jobs" (int .Values.replicas)) -}}
{{- end -}}
{{- .Values.replicas -}}
{{- end -}}

{{/* Not empty where the operator that runs now takes part in no election, as that of an earlier release. */}}
{{- define "dgl-operator.actsUnelected" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "dgl-operator.fullname" .) -}}
{{- range dig "spec" "template" "spec" "containers" (list) $live -}}
{{- if and (eq .name "operator") (not (has "--leader-elect=true" (.args | default list))) -}}
yes
{{- end -}}
{{- end -}}
{{- end -}}
