{{/* Refuses a release that would do nothing, or not what its values say. */}}
{{- define "app.checkRelease" -}}
{{- if not (or .Values.deployment.enabled .Values.inject.enabled .Values.dashboard.enabled .Values.web.enabled) -}}
{{- fail "leasehold: deployment.enabled is false, and nothing else is on: set inject.enabled for a release that injects the sidecar into pods of others" -}}
{{- end -}}
{{- /* As a part of another chart it is given what that one says to all of its parts. */}}
{{- if and .Chart.IsRoot .Values.global -}}
{{- fail (printf "leasehold: leave out global: this chart has no global values, so %s would be ignored; images are set in workload.image and leasehold.image" (keys .Values.global | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.prometheusRule.enabled -}}
{{- $interval := include "leasehold.milliseconds" .Values.podMonitor.interval | float64 -}}
{{- $left := include "leasehold.authorityLeft" . | float64 -}}
{{- if gt $interval (mulf 1000 $left) -}}
{{- fail (printf "leasehold: podMonitor.interval is %s: a leader could lose its authority between two scrapes, and no alert would see it; set it to %vs (leasehold.rules.authorityLeftSeconds) or less" .Values.podMonitor.interval $left) -}}
{{- end -}}
{{- $for := .Values.leasehold.rules.moreThanOneLeaderFor -}}
{{- if le (include "leasehold.milliseconds" $for | float64) (mulf 2 $interval) -}}
{{- fail (printf "leasehold: leasehold.rules.moreThanOneLeaderFor is %s: each hand-off would alert, since scrapes are podMonitor.interval (%s) apart; set it to more than twice that" $for .Values.podMonitor.interval) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses what the pods of the Deployment could not have, or should not. */}}
{{- define "app.checkPods" -}}
{{- $values := .Values -}}
{{- $supervised := include "app.supervised" . -}}
{{- $prefix := $values.leasehold.kubernetes.labelPrefix -}}
{{- $selector := include "leasehold.selector" . | fromYaml -}}
{{- range $key, $value := $values.deployment.podLabels -}}
{{- if hasPrefix (printf "%s/" $prefix) $key -}}
{{- fail (printf "leasehold: deployment.podLabels has %s: leave it out; leasehold sets the labels of leasehold.kubernetes.labelPrefix (%s), and a pod that is born with one says what is not so" $key $prefix) -}}
{{- end -}}
{{- if hasKey $selector $key -}}
{{- fail (printf "leasehold: deployment.podLabels has %s: leave it out; the chart finds the pods by it; set nameOverride or fullnameOverride" $key) -}}
{{- end -}}
{{- end -}}
{{- $port := $values.leasehold.http.port -}}
{{- range $values.workload.ports -}}
{{- if eq (int .containerPort) (int $port) -}}
{{- fail (printf "leasehold: workload.ports has containerPort %v, on which leasehold listens in the same pod: set leasehold.http.port to another one" .containerPort) -}}
{{- end -}}
{{- end -}}
{{- range $check := list
  (list "leasehold.port" "leasehold.port" $values.workload.ports "name" "workload.ports")
  (list "leasehold.statusFile" "leasehold.supervisorEnv" $values.workload.env "name" "workload.env or leasehold.extraEnv")
  (list "leasehold.statusMount" "leasehold.supervisorMounts" $values.workload.volumeMounts "mountPath" "workload.volumeMounts or leasehold.extraVolumeMounts")
  (list "leasehold.volumes" "leasehold.supervisorVolumes" $values.workload.volumes "name" "workload.volumes or leasehold.extraVolumes")
-}}
{{- $own := include (index $check (ternary 1 0 (eq $supervised "true"))) $ | fromYamlArray -}}
{{- include "leasehold.checkUnique" (dict "items" (concat $own (index $check 2)) "field" (index $check 3) "keys" (index $check 4)) -}}
{{- end -}}
{{- include "leasehold.checkResources" (dict "resources" $values.workload.resources "key" "workload.resources") -}}
{{- end -}}

{{/*
The lease that a release contends for, in words. Replicas that contend for different things do not exclude each other, and a Service
would select pods by a label that none of the old ones has: an update that would have both at once is refused. Only helm
itself can look at what is there; `helm template` finds nothing.
*/}}
{{- define "app.contendsFor" -}}
{{- $mongodb := .Values.leasehold.config.mongodb | default dict -}}
{{- printf "%s in %s.%s" (include "leasehold.label" .) ($mongodb.database | default "leasehold") ($mongodb.collection | default "leases") -}}
{{- end -}}

{{- define "app.checkUpdate" -}}
{{- if eq .Values.deployment.strategy.type "RollingUpdate" -}}
{{- $there := lookup "apps/v1" "Deployment" .Release.Namespace (include "leasehold.fullname" .) -}}
{{- $before := dig "metadata" "annotations" "leasehold.dev/contends-for" "" $there -}}
{{- $now := include "app.contendsFor" . -}}
{{- if and $before (ne $before $now) -}}
{{- fail (printf "leasehold: the replicas contend for %s, and with these values they would contend for %s: during a rolling update two would lead; set deployment.strategy.type to Recreate for this update, or take back the change of leasehold.leaseName, leasehold.kubernetes.labelPrefix, leasehold.config.mongodb or the name of the release" $before $now) -}}
{{- end -}}
{{- end -}}
{{- end -}}
