{{/*
Refuses what the schema cannot, or only without a remedy: keys that the chart sets from values of its own, durations
without a unit, and durations that the daemon would refuse. A pod that cannot start would be the next one to say so.
*/}}
{{- define "leasehold.check" -}}
{{- $config := .Values.leasehold.config -}}
{{- $set := dict
  "lease.name" "set leasehold.leaseName"
  "identity.name" "it is the name of the pod"
  "mongodb.uri" "put it into the Secret that leasehold.mongodb.secretName names"
  "mongodb.uri_file" "put it into the Secret that leasehold.mongodb.secretName names"
  "status.directory" "set leasehold.statusDirectory, where the workload sees it"
  "http.listen" "set leasehold.http.address and leasehold.http.port"
  "workload.ends_first" "it is true for native sidecars"
  "kubernetes.enabled" "set leasehold.kubernetes.enabled"
  "kubernetes.pod_name" "it comes from the pod"
  "kubernetes.pod_namespace" "it comes from the pod"
  "kubernetes.pod_uid" "it comes from the pod"
  "kubernetes.credentials" "the chart mounts them"
  "kubernetes.label_prefix" "set leasehold.kubernetes.labelPrefix"
  "kubernetes.demote_others" "set leasehold.kubernetes.demoteOthers"
  "kubernetes.events" "set leasehold.kubernetes.events"
-}}
{{- range $section, $keys := $config -}}
{{- range $key, $value := $keys -}}
{{- with get $set (printf "%s.%s" $section $key) -}}
{{- fail (printf "leasehold: leave out leasehold.config.%s.%s: %s" $section $key .) -}}
{{- end -}}
{{- if or (kindIs "float64" $value) (kindIs "int64" $value) -}}
{{- fail (printf "leasehold: leasehold.config.%s.%s is a duration and has a unit: write \"%vs\" if seconds are meant" $section $key $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $prefix := .Values.leasehold.kubernetes.labelPrefix -}}
{{- $part := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- if not (and (le (len $prefix) 253) (regexMatch (printf `^%s(\.%s)*$` $part $part) $prefix)) -}}
{{- fail (printf "leasehold: leasehold.kubernetes.labelPrefix is %s, not a domain such as leasehold.dev: lower-case letters, digits, - and ." ($prefix | quote)) -}}
{{- end -}}
{{- $t := include "leasehold.timings" . | fromJson -}}
{{- $needed := addf (mulf 1.2 (addf $t.renew_interval $t.retry_interval)) (mulf 2 $t.operation_timeout) -}}
{{- if lt $t.renew_deadline $needed -}}
{{- fail (printf "leasehold: leasehold.config.lease.renew_deadline leaves no room for a second attempt: it is at least 1.2 × (renew_interval + retry_interval) + 2 × operation_timeout, here %vms" $needed) -}}
{{- end -}}
{{- $needed = addf (mulf 1.1 (addf $t.renew_deadline $t.loss_grace)) 500 -}}
{{- if lt $t.lease_duration $needed -}}
{{- fail (printf "leasehold: leasehold.config.lease.lease_duration could end while the old leader's workload still runs: it is at least (renew_deadline + loss_grace) × 1.1 + 500ms, here %vms" $needed) -}}
{{- end -}}
{{- end -}}

{{/* The durations of the election in milliseconds, as JSON. What is not configured has the daemon's default. */}}
{{- define "leasehold.timings" -}}
{{- $config := .Values.leasehold.config -}}
{{- $timings := dict -}}
{{- range $path, $default := dict
  "lease.lease_duration" "24s"
  "lease.renew_deadline" "18s"
  "lease.renew_interval" "3s"
  "lease.retry_interval" "1s"
  "mongodb.operation_timeout" "3s"
  "workload.loss_grace" "3s"
-}}
{{- $names := splitList "." $path -}}
{{- $text := dig (first $names) (last $names) $default $config -}}
{{- $_ := set $timings (last $names) (include "leasehold.milliseconds" $text | atoi) -}}
{{- end -}}
{{- toJson $timings -}}
{{- end -}}

{{- define "leasehold.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|h|m|s)" (toString .) -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | atoi) (get $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
