{{/* A PrometheusRule on the lease. Where they mark an alert's limit, the values under `rules` say why. */}}
{{- define "leasehold.rules" -}}
{{- $lease := include "leasehold.lease" . -}}
{{- $rules := .Values.leasehold.rules -}}
{{- $series := printf `{lease="%s"}` $lease -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "leasehold.name" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "leasehold.labels" . | nindent 4 }}
    {{- with $rules.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  groups:
    - name: {{ include "leasehold.clusterName" . }}
      rules:
        - alert: LeaseholdNoLeader
          expr: absent(leasehold_leader{{ $series }} == 1)
          for: {{ $rules.noLeaderFor }}
          labels:
            severity: critical
            lease: {{ $lease | quote }}
          annotations:
            runbook_url: {{ printf "%s#leaseholdnoleader" $rules.runbookUrl | quote }}
            summary: "No replica leads {{ $lease }}"
            description: "No replica leads, or none is scraped. The lease may be paused, MongoDB without a primary, or no pod running."
        - alert: LeaseholdMoreThanOneLeader
          expr: sum by (lease) (leasehold_leader{{ $series }}) > 1
          for: {{ $rules.moreThanOneLeaderFor }}
          labels:
            severity: critical
          annotations:
            runbook_url: {{ printf "%s#leaseholdmorethanoneleader" $rules.runbookUrl | quote }}
            summary: "{{ `{{ $value }}` }} replicas lead {{ $lease }}"
            description: "Most likely they contend on different stores (compare leasehold_store_info), or a clock was stopped. Stop all but one."
        - alert: LeaseholdStoresDiffer
          expr: count by (lease) (count by (lease, set, database, collection) (leasehold_store_info{{ $series }})) > 1
          for: {{ $rules.moreThanOneLeaderFor }}
          labels:
            severity: critical
          annotations:
            runbook_url: {{ printf "%s#leaseholdstoresdiffer" $rules.runbookUrl | quote }}
            summary: "Replicas of {{ $lease }} contend on different stores"
            description: "They do not exclude each other. Give all of them one connection string, database and collection."
        - alert: LeaseholdLeadershipFlaps
          expr: sum by (lease) (increase(leasehold_transitions_total{lease="{{ $lease }}",to="leader"}[15m])) > {{ $rules.acquisitionsMax }}
          labels:
            severity: warning
          annotations:
            runbook_url: {{ printf "%s#leaseholdleadershipflaps" $rules.runbookUrl | quote }}
            summary: "The leadership of {{ $lease }} changed {{ `{{ $value | humanize }}` }} times in 15 minutes"
            description: "The label reason of leasehold_transitions_total says why it was lost."
        - alert: LeaseholdRenewalsFail
          expr: sum by (lease, pod) (increase(leasehold_store_operations_total{lease="{{ $lease }}",operation="renew",outcome=~"failed|unknown"}[5m])) > 2
          labels:
            severity: warning
          annotations:
            runbook_url: {{ printf "%s#leaseholdrenewalsfail" $rules.runbookUrl | quote }}
            summary: "{{ `{{ $labels.pod }}` }} cannot renew {{ $lease }}"
            description: "Its log has the lines 'MongoDB renew failed' with the reason."
        - alert: LeaseholdAuthorityNearlyGone
          {{- /* Looks a minute back, because an evaluation may fall between two scrapes. */}}
          expr: min_over_time((leasehold_authority_seconds{{ $series }} and leasehold_leader{{ $series }} == 1)[1m:5s]) < {{ include "leasehold.authorityLeft" . }}
          labels:
            severity: warning
          annotations:
            runbook_url: {{ printf "%s#leaseholdauthoritynearlygone" $rules.runbookUrl | quote }}
            summary: "{{ `{{ $labels.pod }}` }} is or was about to lose {{ $lease }}"
            description: "{{ `{{ $value | humanizeDuration }}` }} of authority were left within the last minute: renewals do not get through."
        {{- /* Labels have an alert of their own, and carry no deadline. A lost Event misleads no reader. */}}
        - alert: LeaseholdSurfaceFails
          expr: sum by (lease, pod, surface) (increase(leasehold_publish_failures_total{lease="{{ $lease }}",surface=~"file|http"}[5m])) > 0
          for: 5m
          labels:
            severity: warning
          annotations:
            runbook_url: {{ printf "%s#leaseholdsurfacefails" $rules.runbookUrl | quote }}
            summary: "{{ `{{ $labels.pod }}` }} cannot show the status of {{ $lease }} on {{ `{{ $labels.surface }}` }}"
            description: "Readers of that surface may see an old status; its deadline still holds."
        {{- if include "leasehold.labelled" . }}
        - alert: LeaseholdLabelOutOfSync
          expr: leasehold_label_in_sync{{ $series }} == 0
          for: 3m
          labels:
            severity: warning
          annotations:
            runbook_url: {{ printf "%s#leaseholdlabeloutofsync" $rules.runbookUrl | quote }}
            summary: "The label of {{ `{{ $labels.pod }}` }} is not what it should be"
            description: "The API server cannot be reached or refuses the patch; a Service that selects the leader may route to no pod or to an old leader."
        {{- end }}
{{- end -}}

{{/*
Seconds of authority that are too few. At rest, renew_deadline less renew_interval is left right before a renewal: an
alert at that or above would never end.
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
