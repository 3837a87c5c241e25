{{/* The name of the lease. Everything needs it, so a forgotten alias shows here. */}}
{{- define "leasehold.lease" -}}
{{- if not (hasKey .Values "leasehold") -}}
{{- fail "leasehold-sidecar: declare the dependency with `alias: leasehold`" -}}
{{- end -}}
{{- $lease := .Values.leasehold.leaseName | default (printf "%s.%s" .Release.Namespace (include "leasehold.fullname" .)) -}}
{{- if not (and (le (len $lease) 63) (regexMatch "^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$" $lease)) -}}
{{- fail (printf "leasehold: the lease name %s is not 1 to 63 letters, digits, -, _ or ., with a letter or digit at both ends: set leasehold.leaseName" $lease) -}}
{{- end -}}
{{- $lease -}}
{{- end -}}

{{- define "leasehold.label" -}}
{{- printf "%s/%s" .Values.leasehold.kubernetes.labelPrefix (include "leasehold.lease" .) -}}
{{- end -}}

{{/*
The name of what a release makes of this chart: the release's. A chart that is part of another may be there more than once,
so its own name (or its alias) is added. It is not cut: two names could become one, and with them two leases.
*/}}
{{- define "leasehold.fullname" -}}
{{- $part := .Values.nameOverride | default (ternary "" .Chart.Name .Chart.IsRoot) -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $part) (or (empty $part) (eq $part .Release.Name)) -}}
{{- $name = .Values.fullnameOverride | default $name -}}
{{- if gt (len $name) 53 -}}
{{- fail (printf "leasehold: the name %s is longer than 53 characters: set fullnameOverride, or a shorter nameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The name of what belongs to the sidecar in the namespace. */}}
{{- define "leasehold.name" -}}
{{- printf "%s-leasehold" (include "leasehold.fullname" .) -}}
{{- end -}}

{{/* The name of what belongs to it in the cluster. */}}
{{- define "leasehold.clusterName" -}}
{{- printf "%s.%s.leasehold" (include "leasehold.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "leasehold.serviceAccountName" -}}
{{- if .Values.leasehold.serviceAccount.create -}}
{{- .Values.leasehold.serviceAccount.name | default (include "leasehold.name" .) -}}
{{- else -}}
{{- required "leasehold: serviceAccount.create is false: set leasehold.serviceAccount.name to one that is there and that nothing else uses" .Values.leasehold.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "leasehold.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "leasehold.selector" . }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The labels that tell the pods of one use of a chart from those of another. */}}
{{- define "leasehold.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ include "leasehold.fullname" . }}
{{- end -}}

{{- define "leasehold.image" -}}
{{- $_ := required "leasehold: set leasehold.image.repository to where you have pushed the image of leasehold: no public registry has it (make image; docs/image.md)" .Values.leasehold.image.repository -}}
{{- $tag := .Values.leasehold.image.tag | default "0.1.0" -}}
{{- include "leasehold.imageName" (dict "image" .Values.leasehold.image "tag" $tag "key" "leasehold.image") -}}
{{- end -}}

{{/*
The name of an image. A tag that YAML took for a number may be another one by now: 010 is 8, 1.10 is 1.1.
*/}}
{{- define "leasehold.imageName" -}}
{{- if regexMatch "[:@]" (splitList "/" .image.repository | last) -}}
{{- fail (printf "leasehold: %s.repository is %s, with a tag or digest in it: set %s.tag or %s.digest instead" .key .image.repository .key .key) -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else if kindIs "string" .tag -}}
{{- printf "%s:%s" .image.repository .tag -}}
{{- else -}}
{{- fail (printf "leasehold: %s.tag is a number: quote it in a file, or say --set-string %s.tag=…" .key .key) -}}
{{- end -}}
{{- end -}}

{{/* "true" where pods are labelled; else nothing. Without a policy the right would reach too far. */}}
{{- define "leasehold.labelled" -}}
{{- $values := .Values.leasehold -}}
{{- if and $values.kubernetes.enabled (or $values.policy.create $values.policy.existing $values.kubernetes.allowUnrestrictedStatusPatch) -}}
true
{{- end -}}
{{- end -}}
