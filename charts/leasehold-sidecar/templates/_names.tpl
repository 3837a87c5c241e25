{{/* The name of the lease. Everything needs it, so a forgotten alias shows here. */}}
{{- define "leasehold.lease" -}}
{{- if not (hasKey .Values "leasehold") -}}
{{- fail "leasehold-sidecar: declare the dependency with `alias: leasehold`" -}}
{{- end -}}
{{- $lease := .Values.leasehold.leaseName | default (printf "%s.%s" .Release.Namespace .Release.Name) -}}
{{- if gt (len $lease) 63 -}}
{{- fail (printf "leasehold: the lease name %s has more than 63 characters: set leasehold.leaseName" $lease) -}}
{{- end -}}
{{- $lease -}}
{{- end -}}

{{- define "leasehold.label" -}}
{{- printf "%s/%s" .Values.leasehold.kubernetes.labelPrefix (include "leasehold.lease" .) -}}
{{- end -}}

{{/* The name of what belongs to the sidecar in the namespace. */}}
{{- define "leasehold.name" -}}
{{- printf "%s-leasehold" (.Release.Name | trunc 53 | trimSuffix "-") -}}
{{- end -}}

{{/* The name of what belongs to it in the cluster. */}}
{{- define "leasehold.clusterName" -}}
{{- printf "%s.%s.leasehold" .Release.Name .Release.Namespace -}}
{{- end -}}

{{- define "leasehold.serviceAccountName" -}}
{{- if .Values.leasehold.serviceAccount.create -}}
{{- .Values.leasehold.serviceAccount.name | default (include "leasehold.name" .) -}}
{{- else -}}
{{- .Values.leasehold.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "leasehold.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "leasehold.image" -}}
{{- $image := .Values.leasehold.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default "0.1.0") -}}
{{- end -}}
{{- end -}}

{{/* "true" where pods are labelled; else nothing. Without a policy the right would reach too far. */}}
{{- define "leasehold.labelled" -}}
{{- $values := .Values.leasehold -}}
{{- if and $values.kubernetes.enabled (or $values.policy.create $values.policy.existing $values.kubernetes.allowUnrestrictedStatusPatch) -}}
true
{{- end -}}
{{- end -}}
