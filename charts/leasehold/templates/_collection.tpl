{{/* The label `job` of the series from the page's pod. */}}
{{- define "app.collectionJob" -}}
{{ .Release.Namespace }}/{{ include "leasehold.fullname" . }}-web
{{- end -}}

{{/*
The alerts on the leases and locks of the collection. The exporter drops the series when its data is stale, so no alert uses old values. Two
exporters of one job count as one.
*/}}
{{- define "app.collectionAlerts" -}}
{{- $monitoring := .Values.web.monitoring -}}
{{- $job := printf "job=%q" (include "app.collectionJob" .) -}}
{{- $held := printf "leasehold_collection_lease_held{%[1]s} + leasehold_collection_lease_silent{%[1]s} + leasehold_collection_lease_paused{%[1]s}" $job -}}
{{- $success := printf "leasehold_collection_lock_last_success_age_seconds{%s}" $job -}}
{{- /* A job that has never succeeded has no series with its age. */}}
{{- $never := printf "leasehold:job_age_max:seconds{%[1]s} unless on (job, lock, key) %[2]s and on (job) leasehold_collection_live{%[1]s} == 1" $job $success -}}
{{- $alerts := list
  (dict "name" "LeaseholdLeaseWithoutHolder"
    "expr" (printf "max by (job, lease) (%s) == 0" $held)
    "summary" "No candidate holds the lease {{ $labels.lease }}"
    "description" "The lease is free and not paused. If its service no longer exists, retire the lease with leasehold leases retire.")
  (dict "name" "LeaseholdLeaseSilent"
    "expr" (printf "min by (job, lease) (leasehold_collection_lease_silent{%s}) == 1" $job)
    "summary" "The holder of the lease {{ $labels.lease }} does not renew, and no candidate takes over"
    "description" "The holder has not renewed for its lease duration. No other candidate runs, or none can write to MongoDB.")
  (dict "name" "LeaseholdLeasePausedLong"
    "expr" (printf "max by (job, lease) (time() - leasehold_collection_lease_paused_since_timestamp_seconds{%s}) > %v" $job $monitoring.leasePausedMaxSeconds)
    "summary" "The lease {{ $labels.lease }} has been paused for {{ $value | humanizeDuration }}"
    "description" "No candidate leads while the lease is paused. leasehold describe {{ $labels.lease }} shows who paused it and why.")
  (dict "name" "LeaseholdLeaseWithoutStandby"
    "expr" (printf "min by (job, lease) (leasehold_collection_lease_held{%[1]s} - leasehold_collection_lease_standby{%[1]s}) == 1" $job)
    "summary" "The lease {{ $labels.lease }} has no standby"
    "description" "If the leader fails, no other candidate is ready to take over. Only one candidate runs, or the others are unhealthy.")
  (dict "name" "LeaseholdLeaseFlaps"
    "expr" (printf "max by (job, lease) (changes(leasehold_collection_lease_token{%s}[15m])) > %v" $job .Values.leasehold.rules.acquisitionsMax)
    "summary" "The lease {{ $labels.lease }} was acquired at least {{ $value }} times in 15 minutes"
    "description" "Each change interrupts the work. The history in leasehold describe {{ $labels.lease }} shows why each leadership ended.")
  (dict "name" "LeaseholdLockSilent"
    "expr" (printf "min by (job, lock) (leasehold_collection_lock_silent{%s}) > 0" $job)
    "summary" "A holder of the lock {{ $labels.lock }} does not renew, and no waiter removes it"
    "description" "The holder has not renewed for its lease duration. The next waiter removes it; without a waiter: leasehold locks break {{ $labels.lock }}.")
  (dict "name" "LeaseholdJobDidNotRun"
    "expr" (printf "min by (job, lock, key) (%s) > on (job, lock, key) leasehold:job_age_max:seconds{%s} or %s" $success $job $never)
    "summary" "The job {{ $labels.key }} of the lock {{ $labels.lock }} has not succeeded in time"
    "description" "Its last success is older than its limit, or no success is recorded. Only lock --once-per records successes.")
  (dict "name" "LeaseholdLockHeldLong"
    "expr" (printf "max by (job, lock) (leasehold_collection_lock_held_seconds{%s}) > %v" $job $monitoring.lockHeldMaxSeconds)
    "summary" "A holder has worked under the lock {{ $labels.lock }} for {{ $value | humanizeDuration }}"
    "description" "Its job hangs, or takes longer than expected. leasehold_collection_holder_info names the holders.")
  (dict "name" "LeaseholdLockWaitersLong"
    "expr" (printf "max by (job, lock) (leasehold_collection_lock_wait_seconds{%s}) > %v" $job $monitoring.lockWaitMaxSeconds)
    "summary" "A waiter has waited for the lock {{ $labels.lock }} for {{ $value | humanizeDuration }}"
    "description" "The holders do not leave, or more jobs arrive than the lock admits.")
  (dict "name" "LeaseholdDocumentsNotShown"
    "expr" (printf "max by (job, reason) (leasehold_collection_documents_not_shown{%s,reason=~\"foreign|maximum\"}) > 0" $job)
    "summary" "The exporter does not show {{ $value }} documents of the collection (reason: {{ $labels.reason }})"
    "description" "No alert can fire for these documents. foreign: neither a lease nor a lock; maximum: the collection has more than 500 leases and locks.")
  (dict "name" "LeaseholdExporterBlind"
    "expr" (printf "max by (job) (leasehold_collection_live{%[1]s}) == 0 or absent(leasehold_collection_live{%[1]s})" $job)
    "summary" "The exporter of the collection sees no leases and locks"
    "description" "MongoDB does not answer the exporter, or no exporter is scraped. No other alert on the collection can fire.")
-}}
{{- include "leasehold.alertList" (dict "rules" .Values.leasehold.rules "settings" $monitoring.alerts "key" "web.monitoring.alerts" "off" "web.monitoring.enabled" "alerts" $alerts "name" "") -}}
{{- end -}}
