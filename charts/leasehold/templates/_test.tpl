{{/*
The name of the test's objects, which helm deletes before each test, so no release may have an object of this name. It has 63
characters and ends with a hash: names of releases have 53 at most, and the suffixes of other objects are not hashes. A Service's
name begins with a letter and has no dot in it; a release's may have one.
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

{{- define "app.testLabels" -}}
{{- merge (include "app.testSelector" . | fromYaml) (include "leasehold.labels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* A container that asks every replica of one lease. The image has no shell; the program does it. */}}
{{- define "app.testContainer" -}}
- name: {{ include "leasehold.partName" (dict "part" "replicas" "name" .name) }}
  image: {{ include "leasehold.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.leasehold.image.pullPolicy }}
  args:
    - replicas
    - {{ include "app.testName" .root }}:{{ .port }}
    - --lease={{ .lease }}
    {{- /* An autoscaler chooses the number if it is null or empty. */}}
    {{- with .root.Values.deployment.replicas }}
    - --expect={{ . }}
    {{- end }}
    - --wait={{ .root.Values.test.wait }}
  resources:
    {{- toYaml .root.Values.leasehold.resources | nindent 4 }}
  securityContext:
    {{- toYaml .root.Values.leasehold.securityContext | nindent 4 }}
{{- end -}}
