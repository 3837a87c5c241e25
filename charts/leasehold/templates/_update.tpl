{{/*
Refuses updates that would result in two leaders: an old replica, and a replica with the new values. The API server refuses an update of a
Deployment or StatefulSet that changes the lease or the collection, because the selector contains both and cannot change. The API server also
refuses this update from helm rollback, which runs no template, and from other tools. To find an object of another name or kind, the templates
read a record of the release, except in helm template. The record contains only the name of the object, because a failed rollback may have
changed the record.
*/}}

{{/* Describes the lease or lock for messages. */}}
{{- define "app.contendsFor" -}}
{{- printf "the %s %s in %s" (ternary "lock" "lease" (include "app.locks" . | eq "true")) (include "leasehold.lease" .) (include "leasehold.collection" .) -}}
{{- end -}}

{{/* Describes the leases of `extraLeases` for messages, as a JSON object by key. */}}
{{- define "app.contendsAlsoFor" -}}
{{- $all := dict -}}
{{- range $name, $_ := .Values.leasehold.extraLeases -}}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson -}}
{{- $_ := set $all $name (printf "the lease %s in %s" (include "leasehold.lease" $root) (include "leasehold.collection" $root)) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The name of the record: the name of the release, because the names of the objects may change. A dependency has one record for each path. */}}
{{- define "app.recordName" -}}
{{- if .Chart.IsRoot -}}
{{- printf "%s.leasehold" .Release.Name -}}
{{- else -}}
{{- printf "%s.%s.leasehold" .Release.Name (.Template.BasePath | sha256sum | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* The content of the record. */}}
{{- define "app.record" -}}
kind: {{ .Values.workload.kind }}
name: {{ include "leasehold.fullname" . | quote }}
derivedNames: {{ include "app.derivedNames" . | quote }}
extraLeases: {{ include "app.extraLeasesEver" . | quote }}
{{- end -}}

{{/*
The present and former leases of `extraLeases`, by their keys, as JSON. A key keeps its lease even if the key is removed and added again.
Otherwise a rollback could return to the first lease while pods of the second lease are running.
*/}}
{{- define "app.extraLeasesEver" -}}
{{- $ever := dict -}}
{{- range include "app.recordsBefore" . | fromJsonArray -}}
{{- $ever = mergeOverwrite $ever (.extraLeases | default "{}" | fromJson) -}}
{{- end -}}
{{- mergeOverwrite $ever (include "app.contendsAlsoFor" . | fromJson) | toJson -}}
{{- end -}}

{{/*
Stores the record of this instance in `.Release`, which all charts of a release share. Helm first renders the templates with the most
directories in their path, and each nested chart adds two directories. The path of note.yaml has eleven directories, so that the record is
stored before the checks of charts up to five levels deeper run. In deeper charts, a new instance counts as a rename.
*/}}
{{- define "app.noteInstance" -}}
{{- $names := dict -}}
{{- if .Values.deployment.enabled -}}
{{- $names = include "app.derivedNames" . | fromJson -}}
{{- end -}}
{{- $_ := set .Release "leaseholdRecords" (set (.Release.leaseholdRecords | default dict) (include "app.recordName" .) $names) -}}
{{- end -}}

{{/*
The records of objects that this instance may replace, as JSON. An existing instance has its own record. A new instance has no record and may
have been renamed, so the result is all records of the release whose instance is no longer rendered.
*/}}
{{- define "app.recordsBefore" -}}
{{- $own := include "app.recordName" . -}}
{{- $rendered := .Release.leaseholdRecords | default dict -}}
{{- $gone := list -}}
{{- $mine := list -}}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items -}}
{{- $of := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" -}}
{{- if eq .metadata.name $own -}}
{{- $mine = append $mine .data -}}
{{- else if and (eq $of $.Release.Name) (hasSuffix ".leasehold" .metadata.name) (not (hasKey $rendered .metadata.name)) -}}
{{- $gone = append $gone .data -}}
{{- end -}}
{{- end -}}
{{- $mine | default $gone | toJson -}}
{{- end -}}

{{/* Annotations of the workload's object. A later update reads the leases of the pods from these annotations. */}}
{{- define "app.contendsAnnotations" -}}
leasehold.dev/contends-for: {{ include "app.contendsFor" . | quote }}
{{- if .Values.leasehold.extraLeases }}
leasehold.dev/contends-also-for: {{ include "app.contendsAlsoFor" . | quote }}
{{- end }}
{{- if not (include "app.locks" .) }}
leasehold.dev/label: {{ include "leasehold.label" . | quote }}
{{- end }}
{{- end -}}

{{/* "true" if an object has pods or should have pods, otherwise empty. A CronJob has pods during a run. */}}
{{- define "app.mayRun" -}}
{{- $status := .status | default dict -}}
{{- if eq .kind "CronJob" -}}
{{- ternary "true" "" (not (empty $status.active)) -}}
{{- else if eq .kind "Job" -}}
{{- ternary "" "true" (or (not (empty $status.completionTime)) (include "app.hasFailed" $status | eq "true")) -}}
{{- else if eq .kind "DaemonSet" -}}
{{- /* Before the controller has seen a new DaemonSet, the status is empty. */}}
{{- ternary "true" "" (or (empty $status.observedGeneration) (gt (int $status.desiredNumberScheduled) 0) (gt (int $status.currentNumberScheduled) 0)) -}}
{{- else -}}
{{- ternary "true" "" (or (gt (int .spec.replicas) 0) (gt (int $status.replicas) 0)) -}}
{{- end -}}
{{- end -}}

{{- define "app.hasFailed" -}}
{{- range .conditions -}}
{{- if and (eq .type "Failed") (eq .status "True") -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Explains how to end the pods of an `object`. `same` means that the new values apply to this object. */}}
{{- define "app.updateRemedy" -}}
{{- $kind := .object.kind -}}
{{- $delete := printf "kubectl --namespace %s delete %s %s" .object.metadata.namespace (lower $kind) .object.metadata.name -}}
{{- if has $kind (list "Job" "CronJob") -}}
{{- printf "wait until the %s %s has no run, or delete it" $kind .object.metadata.name -}}
{{- else if eq $kind "DaemonSet" -}}
{{- printf "delete the DaemonSet and wait for the end of its pods (%s --cascade=foreground), and repeat this command" $delete -}}
{{- else if not .same -}}
{{- printf "set deployment.replicas to 0 in an update of the %s %s before this one, and wait until its pods are gone" $kind .object.metadata.name -}}
{{- else if eq $kind "Deployment" -}}
{{- printf "delete the Deployment and wait for the end of its pods (%s --cascade=foreground), and repeat this command" $delete -}}
{{- else -}}
{{- printf "set deployment.replicas to 0 in an update before this one, wait until its pods are gone, delete the StatefulSet without its claims (%s --cascade=orphan), and repeat this command" $delete -}}
{{- end -}}
{{- end -}}

{{- define "app.checkUpdate" -}}
{{- include "app.checkOthers" . -}}
{{- range include "app.recordsBefore" . | fromJsonArray -}}
{{- include "app.checkReplaced" (list $ .) -}}
{{- end -}}
{{- end -}}

{{/* Refuses to replace the object of a record: a list of the root and the record. */}}
{{- define "app.checkReplaced" -}}
{{- $record := index . 1 -}}
{{- with index . 0 -}}
{{- $api := ternary "batch/v1" "apps/v1" (has $record.kind (list "Job" "CronJob")) -}}
{{- $object := lookup $api $record.kind .Release.Namespace $record.name -}}
{{- if $object -}}
{{- $kind := .Values.workload.kind -}}
{{- $same := and (eq $record.kind $kind) (eq $record.name (include "leasehold.fullname" .)) -}}
{{- $runs := include "app.mayRun" $object | eq "true" -}}
{{- $fixed := and $same (not (include "app.isJob" .)) -}}
{{- $before := $object.metadata.annotations | default dict -}}
{{- $now := include "app.contendsAnnotations" . | fromYaml -}}
{{- $key := "leasehold.dev/contends-for" -}}
{{- $was := get $before $key -}}
{{- if and $was (ne $was (get $now $key)) (or $runs $fixed) -}}
{{- fail (printf "leasehold: the replicas contend for %s, and with these values they would contend for %s: during the update two would lead; %s, or undo the change of workload.kind, mode, leasehold.leaseName, leasehold.config.mongodb or the name of the release or dependency" $was (get $now $key) (include "app.updateRemedy" (dict "object" $object "same" $same))) -}}
{{- end -}}
{{- $key = "leasehold.dev/label" -}}
{{- $was = get $before $key -}}
{{- $ends := or (and (eq $kind "Deployment") (eq .Values.deployment.strategy.type "Recreate")) (eq (toString .Values.deployment.replicas) "0") -}}
{{- if and $fixed $runs $was (ne $was (get $now $key)) (not $ends) -}}
{{- $remedies := dict "Deployment" "set deployment.strategy.type to Recreate for this update" "StatefulSet" "set deployment.replicas to 0 for this update" -}}
{{- $remedy := get $remedies $kind | default (include "app.updateRemedy" (dict "object" $object "same" $same)) -}}
{{- fail (printf "leasehold: the label of the pods is %s, and with these values it would be %s: during the update a Service would find no leader; %s, or undo the change of leasehold.kubernetes.labelPrefix" $was (get $now $key) $remedy) -}}
{{- end -}}
{{- $also := include "app.contendsAlsoFor" . | fromJson -}}
{{- $ever := $record.extraLeases | default "{}" | fromJson -}}
{{- range $name, $was := mergeOverwrite $ever (get $before "leasehold.dev/contends-also-for" | default "{}" | fromJson) -}}
{{- $is := get $also $name -}}
{{- if and $runs $is (ne $was $is) -}}
{{- fail (printf "leasehold: leasehold.extraLeases.%s: the replicas contend for %s, or did before, and with these values they would contend for %s: during the update or a rollback two would lead; use another key for another lease, %s, or undo the change" $name $was $is (ternary (include "app.updateRemedy" (dict "object" $object "same" $same)) "set deployment.replicas to 0 in an update before this one" (eq $record.kind "DaemonSet"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
