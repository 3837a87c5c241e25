{{/* The `metadata` of a cluster-scoped object called `name`. The labels `own` and the chart's labels override `commonLabels`. */}}
{{- define "cluster.metadata" -}}
name: {{ .name }}
labels:
  {{- $labels := dict
    "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
    "app.kubernetes.io/name" .root.Chart.Name
    "app.kubernetes.io/instance" .root.Release.Name
    "app.kubernetes.io/version" (.root.Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-")
    "app.kubernetes.io/managed-by" .root.Release.Service
  }}
  {{- merge $labels (.own | default dict) (.root.Values.commonLabels | default dict) | toYaml | nindent 2 }}
{{- with .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
