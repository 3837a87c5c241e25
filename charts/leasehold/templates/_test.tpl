{{/*
The name of the test's objects. Helm deletes them before each test, so no object of a release may have this name. The name therefore has 63
characters and ends with a hash: names of releases have at most 53 characters, and the suffixes of other objects are not hashes. Unlike the name
of a release, the name of a Service must begin with a letter and contain no dot.
*/}}
{{- define "app.testName" -}}
{{- $name := include "leasehold.fullname" . -}}
{{- printf "test-%s-%s" ($name | replace "." "-" | trunc 16) (sha256sum $name) | trunc 63 -}}
{{- end -}}

{{/* The labels that distinguish the test's pod from the workload's pods, which the other objects select. */}}
{{- define "app.testSelector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-test
app.kubernetes.io/instance: {{ include "leasehold.fullname" . | quote }}
{{- end -}}

{{/* The `metadata` of the objects that exist during the test only. They have different hooks. */}}
{{- define "app.testMetadata" -}}
{{- $hook := merge .hook (dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded") -}}
{{- include "leasehold.metadata" (dict "root" .root "name" (include "app.testName" .root) "own" (include "app.testSelector" .root | fromYaml) "annotations" $hook) -}}
{{- end -}}

{{/* A container that asks every replica of one lease. The image has no shell, so it runs `leasehold replicas`. */}}
{{- define "app.testContainer" -}}
- name: {{ include "leasehold.partName" (dict "part" "replicas" "name" .name) }}
  image: {{ include "leasehold.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.leasehold.image.pullPolicy }}
  args:
    - replicas
    - {{ include "app.testName" .root }}:{{ .port }}
    - --lease={{ .lease }}
    {{- /* If the number of replicas is null or empty, an autoscaler sets it. The number of nodes sets the number of pods of a DaemonSet. */}}
    {{- if and .root.Values.deployment.replicas (include "app.isReplicated" .root) }}
    - --expect={{ .root.Values.deployment.replicas }}
    {{- end }}
    - --wait={{ .root.Values.test.wait }}
  resources:
    {{- toYaml .root.Values.leasehold.resources | nindent 4 }}
  securityContext:
    {{- toYaml .root.Values.leasehold.securityContext | nindent 4 }}
{{- end -}}
