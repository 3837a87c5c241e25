{{/*
Leases that another release of the namespace, or another use of the chart in this release, would share by accident: two different
values can result in one default name, as orders with the further lease reports, and the release orders-reports. A name that is set may be
shared on purpose.
*/}}

{{/* The values that would name the leases or the lock which have their default names, by lease and collection, as JSON. */}}
{{- define "app.defaultNames" -}}
{{- $names := dict -}}
{{- if not .Values.leasehold.leaseName -}}
{{- $_ := set $names (printf "%s in %s" (include "leasehold.lease" .) (include "leasehold.collection" .)) "leasehold.leaseName" -}}
{{- end -}}
{{- range $key, $own := .Values.leasehold.extraLeases -}}
{{- if not (or $own.leaseName $.Values.leasehold.leaseName) -}}
{{- $root := include "leasehold.rootOf" (dict "root" $ "name" $key) | fromJson -}}
{{- $_ := set $names (printf "%s in %s" (include "leasehold.lease" $root) (include "leasehold.collection" $root)) (printf "leasehold.extraLeases.%s.leaseName" $key) -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Refuses a lease or lock with a default name that is the default name of another release or use, too. */}}
{{- define "app.checkOthers" -}}
{{- $own := include "app.recordName" . -}}
{{- $others := list -}}
{{- range $record, $names := .Release.leaseholdRecords -}}
{{- if ne $record $own -}}
{{- $others = append $others (dict "of" "another use of the chart in this release" "names" $names) -}}
{{- end -}}
{{- end -}}
{{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items -}}
{{- $of := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" -}}
{{- if and $of (ne $of $.Release.Name) (hasSuffix ".leasehold" .metadata.name) -}}
{{- $others = append $others (dict "of" (printf "the release %s" $of) "names" ((.data | default dict).defaultNames | default "{}" | fromJson)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $key := include "app.defaultNames" . | fromJson -}}
{{- range $others -}}
{{- if hasKey .names $name -}}
{{- fail (printf "leasehold: %s contends for %s, too, and both by default: one pod of both would lead; set %s to another name, or to %s to share it" .of $name $key (splitList " " $name | first)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
