{{/*
Refuses values that the schema accepts, or would refuse without a remedy: keys that the chart sets from its own values, durations without a
unit, and durations that the daemon would refuse. Otherwise the pod would not start.
*/}}
{{- define "leasehold.check" -}}
{{- include "leasehold.checkCondition" (dict "enabled" .Values.leasehold.enabled "key" "leasehold.enabled") -}}
{{- $at := .Values.leasehold.configAt | default "leasehold.config" -}}
{{- $set := include "leasehold.setElsewhere" . | fromJson -}}
{{- $counts := list "workload.health.failures" "identity.priority" -}}
{{- range $key, $value := include "leasehold.settings" . | fromJson -}}
{{- with get $set $key -}}
{{- fail (printf "leasehold: leave out %s.%s: %s" $at $key .) -}}
{{- end -}}
{{- if and (kindIs "float64" $value) (not (has $key $counts)) -}}
{{- fail (printf "leasehold: %s.%s is a duration and has a unit: write \"%vs\" if seconds are meant" $at $key $value) -}}
{{- end -}}
{{- end -}}
{{- include "leasehold.checkEnv" (dict "root" . "env" .Values.leasehold.extraEnv "key" "leasehold.extraEnv") -}}
{{- $settings := include "leasehold.settings" . | fromJson -}}
{{- range list "mongodb.database" "mongodb.collection" -}}
{{- if contains "$(" (get $settings .) -}}
{{- fail (printf "leasehold: %s.%s is %s, which Kubernetes replaces by a variable: write the name itself, so that the chart notices an update to another name" $at . (get $settings .)) -}}
{{- end -}}
{{- end -}}
{{- $identity := get $settings "identity.name" | default "$(POD_NAME)" -}}
{{- if not (regexMatch `(^|[^$])[$][(]POD_NAME[)]` $identity) -}}
{{- fail (printf "leasehold: %s.identity.name is %s for all replicas: put $(POD_NAME) into it, as in eu1.$(POD_NAME), or leave it out" $at $identity) -}}
{{- end -}}
{{- $prefix := .Values.leasehold.kubernetes.labelPrefix -}}
{{- $part := "[a-z0-9]([-a-z0-9]*[a-z0-9])?" -}}
{{- if not (and (le (len $prefix) 253) (regexMatch (printf `^%s(\.%s)*$` $part $part) $prefix)) -}}
{{- fail (printf "leasehold: leasehold.kubernetes.labelPrefix is %s, not a domain such as leasehold.dev: lower-case letters, digits, - and ." ($prefix | quote)) -}}
{{- end -}}
{{- if regexMatch `(^|\.)(kubernetes|k8s)\.io$` $prefix -}}
{{- fail (printf "leasehold: leasehold.kubernetes.labelPrefix is %s: Kubernetes reserves kubernetes.io, k8s.io and their subdomains; set another domain, such as leasehold.dev" $prefix) -}}
{{- end -}}
{{- include "leasehold.checkResources" (dict "resources" .Values.leasehold.resources "key" "leasehold.resources") -}}
{{- $t := include "leasehold.timings" . | fromJson -}}
{{- $needed := addf (mulf 1.2 (addf $t.renew_interval $t.retry_interval)) (mulf 2 $t.operation_timeout) -}}
{{- if lt $t.renew_deadline $needed -}}
{{- fail (printf "leasehold: %s.lease.renew_deadline leaves no time for a second attempt: set it to at least 1.2 × (renew_interval + retry_interval) + 2 × operation_timeout, here %vms" $at $needed) -}}
{{- end -}}
{{- $needed = addf (mulf 1.1 (addf $t.renew_deadline $t.loss_grace)) 500 -}}
{{- if lt $t.lease_duration $needed -}}
{{- fail (printf "leasehold: %s.lease.lease_duration could end while the old leader's workload still runs: set it to at least (renew_deadline + loss_grace) × 1.1 + 500ms, here %vms" $at $needed) -}}
{{- end -}}
{{- end -}}

{{/* The keys that the chart sets, each with the remedy if the configuration contains the key, as JSON. */}}
{{- define "leasehold.setElsewhere" -}}
{{- $own := .Values.leasehold.at | default "leasehold" -}}
{{- dict
  "lease.name" (printf "set %s.leaseName" $own)
  "mongodb.uri" "put it into the Secret that leasehold.mongodb.secretName names, or into the file of leasehold.mongodb.uriFile"
  "mongodb.uri_file" "set leasehold.mongodb.uriFile"
  "status.directory" (printf "set %s.statusDirectory, where the workload sees it" $own)
  "http.listen" (ternary "set leasehold.http.address and leasehold.http.port" (printf "set leasehold.http.address and %s.port" $own) (eq $own "leasehold"))
  "workload.ends_first" "the chart knows: it is true for native sidecars, and not asked where leasehold runs the workload"
  "workload.socket" "the chart sets it in mode supervisor"
  "kubernetes.enabled" "set leasehold.kubernetes.enabled"
  "kubernetes.pod_name" "it comes from the pod"
  "kubernetes.pod_namespace" "it comes from the pod"
  "kubernetes.pod_uid" "it comes from the pod"
  "kubernetes.pod_account" "it comes from the pod"
  "kubernetes.rendered_for" "the chart knows"
  "kubernetes.credentials" "the chart mounts them"
  "kubernetes.label_prefix" "set leasehold.kubernetes.labelPrefix"
  "kubernetes.demote_others" "set leasehold.kubernetes.demoteOthers"
  "kubernetes.events" "set leasehold.kubernetes.events"
  | toJson
-}}
{{- end -}}

{{/*
Refuses `env`, the value of `key`, if it contains a key of the configuration. The checks of a release and its updates do not see environment
variables, and a flag of the chart would silently override the variable.
*/}}
{{- define "leasehold.checkEnv" -}}
{{- $set := include "leasehold.setElsewhere" .root | fromJson -}}
{{- $at := .root.Values.leasehold.configAt | default "leasehold.config" -}}
{{- $list := .key -}}
{{- range .env -}}
{{- include "leasehold.checkValue" (dict "value" .name "key" (printf "the name of an item of %s" $list) "kind" "string") -}}
{{- if regexMatch "^LEASEHOLD_[A-Z]+__" (required (printf "leasehold: an item of %s has no name" $list) .name) -}}
{{- $key := trimPrefix "LEASEHOLD_" .name | lower | replace "__" "." -}}
{{- fail (printf "leasehold: leave %s out of %s: %s" .name $list (get $set $key | default (printf "set %s.%s; Kubernetes replaces $(NAME) in it by another variable" $at $key))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The configured values as a JSON object, with the full names of the keys. A section may contain sections. The database and the collection are
always set, because flags override environment variables. Variables may come from Secrets and ConfigMaps, which templates cannot read.
*/}}
{{- define "leasehold.settings" -}}
{{- $settings := dict -}}
{{- range $section, $keys := .Values.leasehold.config -}}
{{- range $key, $value := $keys -}}
{{- if kindIs "map" $value -}}
{{- range $inner, $value := $value -}}
{{- $_ := set $settings (printf "%s.%s.%s" $section $key $inner) $value -}}
{{- end -}}
{{- else -}}
{{- $_ := set $settings (printf "%s.%s" $section $key) $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $default := dict "mongodb.database" "leasehold" "mongodb.collection" "leases" -}}
{{- $_ := set $settings $key (get $settings $key | default $default) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{/*
The settings as flags, except the keys in `except`. A command is a JSON list of words, so that a word may contain spaces and quotes. In this
container, the variable `podName` contains the pod's name.
*/}}
{{- define "leasehold.settingFlags" -}}
{{- $except := .except | default list }}
{{- range $key, $value := include "leasehold.settings" .root | fromJson }}
{{- if not (has $key $except) }}
{{- if eq $key "identity.name" }}
{{- $value = $value | replace "$(POD_NAME)" (printf "$(%s)" $.podName) }}
{{- end }}
{{- if kindIs "slice" $value }}
{{- $value = ternary ($value | toRawJson) "" (gt (len $value) 0) }}
{{- end }}
- {{ printf "--%s=%v" ($key | replace "lease.lease_" "lease_" | replace "." "-" | replace "_" "-") $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The timings of the election in milliseconds, as JSON. All other durations have the daemon's default. */}}
{{- define "leasehold.timings" -}}
{{- $settings := include "leasehold.settings" . | fromJson -}}
{{- $timings := dict -}}
{{- $profile := get $settings "lease.profile" | default "steady" -}}
{{- $steady := dict
  "lease.lease_duration" "24s"
  "lease.renew_deadline" "18s"
  "lease.renew_interval" "3s"
  "lease.retry_interval" "1s"
  "mongodb.operation_timeout" "3s"
  "workload.loss_grace" "3s"
-}}
{{- $brisk := dict "lease.lease_duration" "15s" "lease.renew_deadline" "10s" "lease.renew_interval" "2s" -}}
{{- $fast := dict
  "lease.lease_duration" "8s"
  "lease.renew_deadline" "5800ms"
  "lease.renew_interval" "1s"
  "lease.retry_interval" "500ms"
  "mongodb.operation_timeout" "1500ms"
  "workload.loss_grace" "1s"
-}}
{{- $profiles := dict "steady" dict "brisk" $brisk "fast" $fast -}}
{{- range $key, $default := merge (dict) (get $profiles $profile | default dict) $steady -}}
{{- $text := get $settings $key | default $default -}}
{{- $_ := set $timings ($key | splitList "." | last) (include "leasehold.milliseconds" $text | atoi) -}}
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

{{/* The keys for a workload that leasehold runs, as a JSON list. */}}
{{- define "leasehold.supervisorKeys" -}}
{{- list "workload.stop_signal" "workload.stop_scope" "workload.stop_grace" "workload.linger" "workload.on_exit" | toJson -}}
{{- end -}}

{{/* Refuses keys that a sidecar would ignore silently, because it does not run the workload. */}}
{{- define "leasehold.checkSidecar" -}}
{{- $at := .Values.leasehold.configAt | default "leasehold.config" -}}
{{- $settings := include "leasehold.settings" . | fromJson -}}
{{- range include "leasehold.supervisorKeys" . | fromJsonArray -}}
{{- if hasKey $settings . -}}
{{- fail (printf "leasehold: leave out %s.%s: it is for a workload that leasehold runs itself, not for one next to a sidecar" $at .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
