{{/* A PrometheusRule with the alerts on leases. The comments in values.yaml under `rules` explain the thresholds. */}}
{{- define "leasehold.rules" -}}
{{- $lease := include "leasehold.lease" . -}}
{{- /* A release of charts/leasehold that is scaled to zero has no leader. In another chart, the value may have any meaning. */}}
{{- $deployment := ternary .Values.deployment dict (kindIs "map" .Values.deployment) -}}
{{- $scaled := ne (toString (get $deployment "replicas")) "0" -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "leasehold.metadata" (dict "root" . "name" (include "leasehold.name" .) "labels" .Values.leasehold.rules.labels "key" "leasehold.rules.labels") | nindent 2 }}
spec:
  groups:
    - name: {{ include "leasehold.clusterName" . }}
      rules:
        {{- include "leasehold.alerts" (dict "root" . "match" (printf "lease=%q" $lease) "lease" $lease "known" true "scaled" $scaled "labelled" (include "leasehold.labelled" .)) | nindent 8 }}
    {{- range $name, $_ := .Values.leasehold.extraLeases }}
    {{- $root := include "leasehold.rootOf" (dict "root" $ "name" $name) | fromJson }}
    {{- $lease = include "leasehold.lease" $root }}
    - name: {{ include "leasehold.clusterName" $ }}.{{ $name }}
      rules:
        {{- include "leasehold.alerts" (dict "root" $root "match" (printf "lease=%q" $lease) "lease" $lease "known" true "scaled" $scaled "labelled" (include "leasehold.labelled" $)) | nindent 8 }}
    {{- end }}
{{- end -}}

{{/*
The alerts on the series that `match` selects. Texts show the name `lease`. If `known` is true, the name is known when the rules are rendered;
otherwise the name is a label of the series. If `scaled` is true, replicas should run, so an alert fires if no replica is scraped.
*/}}
{{- define "leasehold.alerts" -}}
{{- $rules := .root.Values.leasehold.rules -}}
{{- $match := .match -}}
{{- $lease := .lease -}}
{{- /* A replica on a host, outside Kubernetes, has no label `pod`. */}}
{{- $pod := "{{ or $labels.pod $labels.instance }}" -}}
{{- $apart := $rules.aggregationLabels | default list -}}
{{- $group := prepend $apart "lease" | uniq | join ", " -}}
{{- /* A replica counts once even if two jobs scrape it. */}}
{{- $replica := concat (list "lease") $apart (list "pod" "instance") | uniq | join ", " -}}
{{- /*
The leader may run in another cluster, with another Prometheus. The candidates of this cluster still report its name. A paused lease has no
leader.
*/}}
{{- $noLeader := printf "max by (%[2]s) (leasehold_leader{%[1]s}) == 0 unless on (%[2]s) leasehold_holder_info{%[1]s} unless on (%[2]s) leasehold_paused{%[1]s} == 1" $match $group -}}
{{- if .scaled -}}
{{- $namespace := .root.Release.Namespace -}}
{{- /* Series of another namespace belong to another lease. Some scrape configurations add no namespace. */}}
{{- $here := ternary (printf "%s,namespace=~\"%s|\"" $match $namespace) $match (has "namespace" $apart) -}}
{{- $noLeader = printf "%s or label_replace(absent(leasehold_leader{%s}), \"namespace\", %q, \"\", \"\")" $noLeader $here $namespace -}}
{{- end -}}
{{- /*
Two jobs may scrape one pod under two values of `instance`, so pods are counted by the start times of their processes. Pods of two clusters may
have one name, but rarely start within one second. Hosts are counted by `instance`, because a cloned virtual machine has the original's start
time. A pod without a scraped start time is also counted by `instance`.
*/}}
{{- $started := printf "(leasehold_leader{%s,pod!=\"\"} == 1) * ignoring (lease) group_left () process_start_time_seconds" $match -}}
{{- $pods := printf "count_values by (%s) (\"started\", %s)" (concat (list "lease") $apart (list "pod") | uniq | join ", ") $started -}}
{{- $others := printf "max by (%[1]s) (leasehold_leader{%[2]s} == 1 unless on (%[1]s) %[3]s)" $replica $match $started -}}
{{- $alerts := list
  (dict "name" "LeaseholdNoLeader" "expr" $noLeader "lease" .known
    "summary" (printf "No replica leads %s" $lease)
    "description" "No replica leads, or none is scraped. MongoDB may have no primary, or no pod runs.")
  (dict "name" "LeaseholdMoreThanOneLeader"
    "expr" (printf "count by (%s) (%s or %s) > 1" $group $pods $others)
    "summary" (printf "{{ $value }} replicas lead %s" $lease)
    "description" "The likely cause is different stores (compare leasehold_store_info) or a stopped clock. Stop all replicas except one.")
  (dict "name" "LeaseholdStoresDiffer"
    "expr" (printf "count by (%[2]s) (count by (%[2]s, set, database, collection) (leasehold_store_info{%[1]s})) > 1" $match $group)
    "summary" (printf "Replicas of %s contend on different stores" $lease)
    "description" "They do not exclude each other. Give all of them one connection string, database and collection.")
  (dict "name" "LeaseholdLeadershipFlaps"
    "expr" (printf "sum by (%s) (max by (%s, reason) (increase(leasehold_transitions_total{%s,to=\"leader\"}[15m]))) > %v" $group $replica $match $rules.acquisitionsMax)
    "summary" (printf "The leadership of %s changed {{ $value | humanize }} times in 15 minutes" $lease)
    "description" "The label reason of leasehold_transitions_total shows the reason of each loss.")
  (dict "name" "LeaseholdRenewalsFail"
    "expr" (printf "max by (%s) (sum without (outcome) (increase(leasehold_store_operations_total{%s,operation=\"renew\",outcome=~\"failed|unknown\"}[5m]))) > %v" $replica $match $rules.renewFailuresMax)
    "summary" (printf "%s cannot renew %s" $pod $lease)
    "description" "Its log has the reason: search for 'MongoDB renew failed'.")
  (dict "name" "LeaseholdAuthorityNearlyGone"
    "expr" (printf "min_over_time(min by (%s) (leasehold_authority_seconds{%s} and leasehold_leader{%s} == 1)[1m:5s]) < %s" $replica $match $match (include "leasehold.authorityLeft" .root))
    "summary" (printf "%s is or was about to lose %s" $pod $lease)
    "description" "{{ $value | humanizeDuration }} of authority were left within the last minute: MongoDB does not acknowledge renewals.")
  (dict "name" "LeaseholdSurfaceFails"
    "expr" (printf "max by (%s, surface) (increase(leasehold_publish_failures_total{%s,surface=~\"file|http\"}[5m])) > %v" $replica $match (int $rules.surfaceFailuresMax))
    "summary" (printf "%s cannot show the status of %s on {{ $labels.surface }}" $pod $lease)
    "description" "Readers of that surface may see an old status. The deadline in that status still applies.")
-}}
{{- /* LeaseholdSurfaceFails excludes labels, which have a separate alert, and Events, because a lost Event does not show a wrong leader. */}}
{{- if .labelled -}}
{{- $alerts = append $alerts (dict "name" "LeaseholdLabelOutOfSync"
    "expr" (printf "min by (%s) (leasehold_label_in_sync{%s}) == 0" $replica $match)
    "summary" (printf "The leadership label of %s is wrong" $pod)
    "description" "The API server cannot be reached or refuses the patch; a Service that selects the leader may route to no pod or to an old leader.") -}}
{{- end -}}
{{- include "leasehold.alertList" (dict "rules" $rules "settings" $rules.alerts "key" "leasehold.rules.alerts" "off" "prometheusRule.enabled" "alerts" $alerts "name" $lease) -}}
{{- end -}}

{{/*
Renders `alerts` with the settings from the value called `key` and the common `rules`. An alert whose `lease` is true gets the label `lease`
with this `name`. If all alerts are off, the error names the value `off`.
*/}}
{{- define "leasehold.alertList" -}}
{{- $rules := .rules -}}
{{- $name := .name -}}
{{- $key := .key -}}
{{- range list "severity" "lease" -}}
{{- if hasKey ($rules.alertLabels | default dict) . -}}
{{- fail (printf "leasehold: leave out leasehold.rules.alertLabels.%s: the alerts set it%s" . (ternary (printf "; set %s.<alert>.severity" $key) "" (eq . "severity"))) -}}
{{- end -}}
{{- end -}}
{{- $on := false -}}
{{- $settings := .settings -}}
{{- range $alert := .alerts -}}
{{- $set := get $settings .name }}
{{- if $set.enabled }}
{{- $on = true }}
- alert: {{ .name }}
  {{- /* The authority alert looks a minute back, because an evaluation may fall between two scrapes. */}}
  expr: {{ .expr }}
  {{- if $set.for }}
  for: {{ $set.for }}
  {{- end }}
  labels:
    severity: {{ $set.severity }}
    {{- if .lease }}
    lease: {{ $name | quote }}
    {{- end }}
    {{- with $rules.alertLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- with $rules.runbookUrl }}
    runbook_url: {{ printf "%s#%s" . (lower $alert.name) | quote }}
    {{- end }}
    summary: {{ .summary | quote }}
    description: {{ .description | quote }}
{{- end }}
{{- end }}
{{- if not $on -}}
{{- fail (printf "leasehold: every alert in %s is off: set %s to false instead" .key .off) -}}
{{- end -}}
{{- end -}}

{{/*
The alert's threshold, in seconds of remaining authority. In normal operation, the minimum remaining authority is renew_deadline −
renew_interval, right before a renewal. With a threshold of this value or more, the alert would always fire.
*/}}
{{- define "leasehold.authorityLeft" -}}
{{- $timings := include "leasehold.timings" . | fromJson -}}
{{- $rest := divf (subf $timings.renew_deadline $timings.renew_interval) 1000 -}}
{{- $given := .Values.leasehold.rules.authorityLeftSeconds | float64 -}}
{{- if ge $given $rest -}}
{{- fail (printf "leasehold: leasehold.rules.authorityLeftSeconds must be less than %v, which is left before each renewal (renew_deadline - renew_interval)" $rest) -}}
{{- end -}}
{{- $given | default (round (divf (mulf $rest 2) 3) 2) -}}
{{- end -}}
