{{/* The name of the lease. All templates use the name, so this template also checks for a missing alias and missing defaults. */}}
{{- define "leasehold.lease" -}}
{{- if not (hasKey .Values "leasehold") -}}
{{- fail "leasehold-sidecar: declare the dependency with `alias: leasehold`" -}}
{{- end -}}
{{- if not (hasKey .Values.leasehold "serviceAccount") -}}
{{- fail (printf "leasehold-sidecar: if a chart is used several times, helm 3 passes the values of its dependency only to the first use: use helm 4, or copy values.yaml of leasehold-sidecar into values.yaml of %s, under leasehold" .Chart.Name) -}}
{{- end -}}
{{- $lease := .Values.leasehold.leaseName | default (printf "%s.%s" .Release.Namespace (include "leasehold.fullname" .)) -}}
{{- if not (and (le (len $lease) 63) (regexMatch "^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$" $lease)) -}}
{{- fail (printf "leasehold: the lease name %s is not 1 to 63 letters, digits, -, _ or ., with a letter or digit at both ends: set %s.leaseName" $lease (.Values.leasehold.at | default "leasehold")) -}}
{{- end -}}
{{- $lease -}}
{{- end -}}

{{- define "leasehold.label" -}}
{{- printf "%s/%s" .Values.leasehold.kubernetes.labelPrefix (include "leasehold.lease" .) -}}
{{- end -}}

{{/*
The pod labels for the selector of a Deployment, StatefulSet or DaemonSet. Kubernetes refuses any change to a selector. It therefore refuses an update to
another lease or collection, during which replicas with the old and the new values would both lead.
*/}}
{{- define "leasehold.contends" -}}
{{- $collection := include "leasehold.collection" . -}}
{{- if not (and (le (len $collection) 63) (regexMatch "^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$" $collection)) -}}
{{- $collection = $collection | sha256sum | trunc 63 -}}
{{- end -}}
contends.leasehold.dev/for: {{ include "leasehold.lease" . | quote }}
contends.leasehold.dev/in: {{ $collection | quote }}
{{- end -}}

{{- define "leasehold.collection" -}}
{{- $settings := include "leasehold.settings" . | fromJson -}}
{{- printf "%s.%s" (get $settings "mongodb.database") (get $settings "mongodb.collection") -}}
{{- end -}}

{{/*
The name of the objects that a release creates from this chart: the name of the release. If the chart is a dependency, its name or alias is
appended, because the chart may be used more than once. The name is never truncated, because two names, and therefore two leases, could become
equal.
*/}}
{{- define "leasehold.fullname" -}}
{{- range list "nameOverride" "fullnameOverride" -}}
{{- include "leasehold.checkValue" (dict "value" (get $.Values .) "key" . "kind" "string") -}}
{{- end -}}
{{- $part := .Values.nameOverride | default (ternary "" .Chart.Name .Chart.IsRoot) -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $part) (or (empty $part) (eq $part .Release.Name)) -}}
{{- $name = .Values.fullnameOverride | default $name -}}
{{- if gt (len $name) 53 -}}
{{- fail (printf "leasehold: the name %s is longer than 53 characters: set fullnameOverride, or a shorter nameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The name of the sidecar's namespaced objects. */}}
{{- define "leasehold.name" -}}
{{- printf "%s-leasehold" (include "leasehold.fullname" .) -}}
{{- end -}}

{{/* The name of the sidecar's cluster-scoped objects. */}}
{{- define "leasehold.clusterName" -}}
{{- printf "%s.%s.leasehold" (include "leasehold.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "leasehold.serviceAccountName" -}}
{{- if .Values.leasehold.serviceAccount.create -}}
{{- .Values.leasehold.serviceAccount.name | default (include "leasehold.name" .) -}}
{{- else -}}
{{- required "leasehold: serviceAccount.create is false: set leasehold.serviceAccount.name to an existing account that nothing else uses" .Values.leasehold.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The namespace and the service account of the pods. If a kustomization moves or renames the objects, this text is not changed. */}}
{{- define "leasehold.renderedFor" -}}
{{- printf "%s/%s" .Release.Namespace (include "leasehold.serviceAccountName" .) -}}
{{- end -}}

{{/*
The `metadata` of an object called `name`; `cluster` is true for a cluster-scoped object. `labels`, the value called `key`, override
`commonLabels`, and `annotations` override `commonAnnotations`. The labels `own` override all others.
*/}}
{{- define "leasehold.metadata" -}}
{{- $common := .root.Values.commonAnnotations -}}
{{- include "leasehold.checkValue" (dict "value" $common "key" "commonAnnotations" "kind" "map") -}}
{{- range $key, $value := $common -}}
{{- include "leasehold.checkValue" (dict "value" $value "key" (printf "commonAnnotations.%s" $key) "kind" "string") -}}
{{- if hasPrefix "helm.sh/hook" $key -}}
{{- fail (printf "leasehold: commonAnnotations has %s: leave it out; every object would become a hook, which helm does not update or delete; set job.annotations for a Job" $key) -}}
{{- end -}}
{{- end -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- merge (.own | default dict) (include "leasehold.labelsWith" (dict "root" .root "more" .labels "key" .key) | fromYaml) | toYaml | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) ($common | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "leasehold.labels" -}}
{{- include "leasehold.labelsWith" (dict "root" . "more" dict "key" "") -}}
{{- end -}}

{{/*
The labels of an object. The labels `more`, from the value called `key`, override `commonLabels`.
*/}}
{{- define "leasehold.labelsWith" -}}
{{- $own := include "leasehold.ownLabels" .root -}}
{{- include "leasehold.checkValue" (dict "value" .root.Values.commonLabels "key" "commonLabels" "kind" "map") -}}
{{- include "leasehold.checkLabels" (dict "root" .root "labels" .root.Values.commonLabels "key" "commonLabels") -}}
{{- include "leasehold.checkLabels" (dict "root" .root "labels" .more "key" .key) -}}
{{- $own -}}
{{- with merge (deepCopy (.more | default dict)) (.root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "leasehold.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "leasehold.selector" . }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ . | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Refuses `labels`, the value of `key`, if the chart or leasehold sets one of them. */}}
{{- define "leasehold.checkLabels" -}}
{{- $own := include "leasehold.ownLabels" .root | fromYaml -}}
{{- $prefix := .root.Values.leasehold.kubernetes.labelPrefix -}}
{{- $key := .key -}}
{{- range $label, $value := .labels -}}
{{- include "leasehold.checkValue" (dict "value" $value "key" (printf "%s.%s" $key $label) "kind" "string") -}}
{{- if hasPrefix (printf "%s/" $prefix) $label -}}
{{- fail (printf "leasehold: %s has %s: leave it out; leasehold sets the labels of leasehold.kubernetes.labelPrefix (%s), and a pod created with it would report a wrong role" $key $label $prefix) -}}
{{- end -}}
{{- if or (hasKey $own $label) (hasPrefix "contends.leasehold.dev/" $label) -}}
{{- fail (printf "leasehold: %s has %s: leave it out; the chart sets it, and finds objects by it; set nameOverride or fullnameOverride for another name" $key $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels that distinguish the pods of two instances of a chart. */}}
{{- define "leasehold.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | quote }}
app.kubernetes.io/instance: {{ include "leasehold.fullname" . | quote }}
{{- end -}}

{{- define "leasehold.image" -}}
{{- $_ := required "leasehold: set leasehold.image.repository to where you have pushed the image of leasehold: no public registry has it (make image; docs/image.md)" .Values.leasehold.image.repository -}}
{{- $tag := .Values.leasehold.image.tag | default "0.1.0" -}}
{{- include "leasehold.imageName" (dict "root" . "image" .Values.leasehold.image "tag" $tag "key" "leasehold.image") -}}
{{- end -}}

{{/*
The name of an image. YAML changes a tag that it reads as a number: 010 becomes 8, and 1.10 becomes 1.1.
*/}}
{{- define "leasehold.imageName" -}}
{{- if regexMatch "[:@]" (splitList "/" .image.repository | last) -}}
{{- fail (printf "leasehold: %s.repository is %s, with a tag or digest in it: set %s.tag or %s.digest instead" .key .image.repository .key .key) -}}
{{- end -}}
{{- $global := (include "leasehold.global" .root | fromJson).imageRegistry -}}
{{- include "leasehold.checkValue" (dict "value" $global "key" "global.imageRegistry" "kind" "string") -}}
{{- $registry := $global | default .image.registry | default "" | trimSuffix "/" -}}
{{- if contains "://" $registry -}}
{{- fail (printf "leasehold: %s is %s: leave out the scheme, as in registry.example:5000" (ternary "global.imageRegistry" (printf "%s.registry" .key) (not (empty $global))) $registry) -}}
{{- end -}}
{{- $repository := .image.repository -}}
{{- if $registry -}}
{{- $host := splitList "/" $repository | first -}}
{{- if and (contains "/" $repository) (or (regexMatch "[.:]" $host) (eq $host "localhost")) -}}
{{- fail (printf "leasehold: %s.repository is %s, and its registry is set to %s too: put %s into %s.registry, which global.imageRegistry replaces, and leave it out of %s.repository" .key $repository $registry $host .key .key) -}}
{{- end -}}
{{- $repository = printf "%s/%s" $registry $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else if kindIs "string" .tag -}}
{{- printf "%s:%s" $repository .tag -}}
{{- else -}}
{{- fail (printf "leasehold: %s.tag is a number: quote it in a file, or say --set-string %s.tag=…" .key .key) -}}
{{- end -}}
{{- end -}}

{{- define "leasehold.global" -}}
{{- include "leasehold.checkValue" (dict "value" .Values.global "key" "global" "kind" "map") -}}
{{- .Values.global | default dict | toJson -}}
{{- end -}}

{{/* The names of the image pull Secrets, as a JSON list. In the values, an item is a name, or an object with a name. */}}
{{- define "leasehold.pullSecretNames" -}}
{{- $global := (include "leasehold.global" . | fromJson).imagePullSecrets -}}
{{- $names := list -}}
{{- range $key, $secrets := dict "global.imagePullSecrets" $global "imagePullSecrets" .Values.imagePullSecrets -}}
{{- include "leasehold.checkValue" (dict "value" $secrets "key" $key "kind" "slice") -}}
{{- range $secrets -}}
{{- $name := ternary (get (ternary . dict (kindIs "map" .)) "name") . (kindIs "map" .) -}}
{{- include "leasehold.checkValue" (dict "value" $name "key" (printf "an item of %s" $key) "kind" "string") -}}
{{- $names = append $names (required (printf "leasehold: an item of %s has no name" $key) $name) -}}
{{- end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The field `imagePullSecrets` of a pod's spec, if there are any. */}}
{{- define "leasehold.imagePullSecrets" -}}
{{- with include "leasehold.pullSecretNames" . | fromJsonArray -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* "true" if pods are labelled, otherwise empty. Without a policy, the permission would also cover other pods. */}}
{{- define "leasehold.labelled" -}}
{{- $values := .Values.leasehold -}}
{{- if and $values.kubernetes.enabled (or $values.policy.create $values.policy.existing (include "leasehold.clusterRights" .) $values.kubernetes.allowUnrestrictedStatusPatch) -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if the chart leasehold-cluster has the policies and the ClusterRoles, otherwise empty. */}}
{{- define "leasehold.clusterRights" -}}
{{- $rights := .Values.leasehold.rights | default "release" -}}
{{- if not (has $rights (list "release" "cluster")) -}}
{{- fail (printf "leasehold: leasehold.rights is %v: set it to release or cluster" $rights) -}}
{{- end -}}
{{- ternary "true" "" (eq $rights "cluster") -}}
{{- end -}}
